"""What every plug-in of the repository must do; a new file is tested by lying in its folder."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from bench import CLIP_FRAMES, Context, Sample, Video, registry, seeds
from bench.asset_list import ASSETS
from bench.describe import describe
from bench.diagnostics import Diagnostic
from bench.measures import Compare, Evaluator, Identify, Metric, Recover, SetMetric, VideoMetric
from bench.nets.architectures import architecture
from bench.nets.training import use_threads
from bench.privacy.contract import PrivateMethod
from bench.registry import Spec
from bench.run.enforced import PublicWorker, all_branches, priced
from bench.run.sandbox import available
from bench.run.trials import hit
from bench.run.workers import MethodWorker, method_facts
from bench.types import LABELS, LANES

METHODS, ATTACKS, METRICS = (registry.names(kind) for kind in ("methods", "attacks", "metrics"))
REPORTERS = [n for n in METHODS if getattr(registry.get("methods", n), "atom", "") == "chunk"]  # tests/test_traffic.py
KINDS = [("attacks", n) for n in ATTACKS] + [("metrics", n) for n in METRICS]


def moving(frames=17, size=64, fps=29.97) -> Video:
    """A bright disc on smooth noise; read-only."""
    rng = seeds.derive(1, "contract")
    video = rng.integers(60, 90, (frames, size, size, 3)).astype(np.uint8)
    rows, columns = np.mgrid[:size, :size]
    for t in range(frames):
        video[t][(rows - size // 2) ** 2 + (columns - size // 3 - t) ** 2 < (size // 4) ** 2] = (200, 160, 140)
    video.flags.writeable = False
    return Video(video, fps)


@pytest.mark.parametrize("kind, name", [("methods", n) for n in METHODS] + KINDS)
def test_the_documentation_says_what_it_is(kind, name):
    about = describe(kind, name)
    assert 10 < len(about.title) <= 120 and about.title.endswith((".", "does."))
    plugin = registry.get(kind, name)
    sources = [c.source for c in getattr(plugin, "columns", ())]
    assert len(about.doc) > 150 and ("ource:" in about.doc or sources and all(sources)), "what it does, its source"
    assert plugin.name == name
    for variant in getattr(plugin, "variants", {}):
        assert registry.settings(kind, Spec(name, variant)) == dict(plugin.variants[variant])


@pytest.mark.parametrize("kind, name", [("methods", n) for n in METHODS] + [k for k in KINDS if not isinstance(
    registry.get(*k), Metric)])
def test_settings_are_named_and_have_defaults(kind, name):
    parameters = list(inspect.signature(registry.get(kind, name).__init__).parameters.values())[1:]
    own = [p for p in parameters if p.name not in ("args", "kwargs")]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in own)
    registry.build(kind, name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_declares_what_it_is(name):
    cls = registry.get("methods", name)
    assert cls.lane in LANES and cls.needs <= set(LABELS) and set(cls.assets) <= set(ASSETS)
    assert all(a.endswith("_method") for a in cls.assets), "evaluation assets are not for methods"
    assert cls.lane != "none" or cls.claim.epsilon == float("inf")
    assert cls.fits or not (cls.needs or cls.assets)
    assert cls.control in (None, "positive", "negative")


def test_the_controls_are_there():
    controls = {(n in REPORTERS, registry.get("methods", n).control): n for n in METHODS}
    assert controls[False, "positive"] == "original" and controls[False, "negative"] == "blackout"
    assert controls[True, "positive"] == "vtpm_style" and controls[True, "negative"] == "public_median"


@pytest.mark.parametrize("spec", [s for n in METHODS for s in (n, *(f"{n}@{v}" for v in describe("methods",
                                                                                             n).variants))])
def test_a_method_keeps_the_contract_in_its_worker(spec):
    given = moving() if Spec.parse(spec).variant is None else moving(frames=4)  # a variant: same code, other numbers
    cls = registry.get("methods", Spec.parse(spec).name)
    before = given.frames.copy()
    if cls.fits or issubclass(cls, PrivateMethod):
        pytest.skip("tested with its fit, or below with its claim")
    with MethodWorker(Spec.parse(spec), "tiny", call_s=120) as worker:
        first, other, again = (worker.release(given, seed) for seed in (5, 6, 5))
    assert first.frames.shape == before.shape and first.frames.dtype == np.uint8 and first.fps == 29.97
    assert first.frames.tobytes() == again.frames.tobytes()
    if Spec.parse(spec).variant is None:  # a variant is the same code with other numbers
        with MethodWorker(Spec.parse(spec), "tiny", call_s=120) as worker:
            elsewhere = worker.release(given, 5)
        assert first.frames.tobytes() == elsewhere.frames.tobytes()
    assert other.frames.shape == before.shape
    np.testing.assert_array_equal(given.frames, before)
    hides = registry.get("methods", Spec.parse(spec).name).control != "positive"
    assert (first.frames != before).any() == hides


@pytest.mark.parametrize("name", [n for n in METHODS if registry.get("methods", n).lane == "enforced"])
def test_a_method_with_a_claim_prices_and_renders(name):
    """Its claim has a finite price; what it renders from any released values is video, the same in two processes."""
    facts = method_facts(Spec(name))
    claim, cost = priced(facts)
    silent = registry.get("methods", name).control == "negative"  # it releases nothing, and that costs nothing
    assert (0 < cost.epsilon < np.inf or silent and cost.epsilon == 0) and claim.unit != "none" and facts["doc"]
    if facts["fits"]:
        return  # rendering needs its state: tests/test_enforced.py
    branches, _ = all_branches(facts, 64)
    rng = np.random.default_rng(1)
    clips = [{b.name: rng.normal(0, 3 * b.clip, (16, b.dim)) for b in branches} for _ in range(2)]
    public = {"fps": 25.0, "canvas_px": 64, "frames": 27, "profile": "tiny"}
    seen = []
    for _ in range(2):
        with PublicWorker(Spec(name), "tiny", available()) as worker:
            seen.append(worker.render(clips, public, "assembled"))
    assert seen[0].shape == (27, 64, 64, 3) and seen[0].tobytes() == seen[1].tobytes()


UNITS = ("rate", "dB", "px", "s", "m", "km/h", "years", "nats", "bits", "1", "")  # the last two: without dimension


@pytest.mark.parametrize("kind, name", KINDS)
def test_columns_have_unit_direction_and_range(kind, name):
    plugin = registry.get(kind, name)
    if kind == "attacks" and issubclass(plugin, Recover):
        assert not plugin.columns, "what it made is read by other attacks and metrics"
        return
    assert plugin.columns and len({c.key for c in plugin.columns}) == len(plugin.columns)
    for column in plugin.columns:
        assert column.unit in UNITS and column.title and column.better in ("higher", "lower", "none")
        assert column.low < column.high and column.role in ("privacy", "utility", "descriptive", "diagnostic")
        assert (column.role in ("descriptive", "diagnostic")) == (column.better == "none")
        assert column.unit != "rate" or (column.low, column.high) == (0, 1), "rates are stored in 0 .. 1"
    if kind == "attacks" and not issubclass(plugin, (Compare, Diagnostic)):  # these two never rank
        ranked = [c for c in plugin.columns if c.role != "descriptive"]
        assert ranked and all(c.role == "privacy" for c in ranked)
        assert all(c.better == ("higher" if c.id == "eer" else "lower") for c in ranked), "a high error rate is private"


@pytest.mark.parametrize("kind, name", KINDS)
def test_assets_are_those_that_evaluate(kind, name):
    assets = getattr(registry.get(kind, name), "assets", ())
    assert set(assets) <= set(ASSETS) and all(a.endswith("_eval") for a in assets)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_threat_model_is_a_sentence(name):
    threat = registry.get("attacks", name).threat
    assert len(threat.knows) > 20 and threat.reads in ("frame", "clip", "video", "draws", "transcript", "vault")
    assert threat.decoding in ("assembled", "isolated")
    assert threat.trained_on in ("released enrolment", "original enrolment", "released development",
                                 "development pairs", "nothing")


# ---- attacks really attack -----------------------------------------------------------------------------------------

PEOPLE = 3
SMALL = {"epochs": 4, "frames_per_video": 6}  # budget of an attack in these tests
SMALL_CLIPS = {"epochs": 12}  # of one that reads clips: from a random start, and with one sample a video


def context(*names) -> Context:
    return Context(rng=lambda *more: seeds.derive(9, *names, *more), report=lambda text: None,
                   torch_seed=lambda *more: seeds.derive_torch(9, *names, *more))


def started_assets(names):
    """Untrained networks in place of the assets."""
    torch.manual_seed(0)
    return {n: architecture(ASSETS[n].architecture, 4).state_dict() for n in names}


def people_videos(clear: bool, role: str, each: int) -> list[Sample]:
    """Videos whose colour names the person, or noise that names nobody."""
    rng = seeds.derive(1, "people", role, str(clear))
    samples = []
    for person in range(PEOPLE):
        for _ in range(each):
            frames = rng.integers(0, 256 if not clear else 60, (CLIP_FRAMES, 32, 32, 3))
            if clear:
                frames[..., person] += 180
            samples.append(Sample(Video(frames.astype(np.uint8)), person=person))
    return samples


def scored(attack: Identify, video: Video) -> np.ndarray:
    """Rows of one probe, read as the threat model says."""
    return attack.score_draws([video, video]) if attack.threat.reads == "draws" else attack.score(video)


def rate_of(attack: Identify, clear: bool, each: int) -> tuple[float, list[np.ndarray]]:
    """Share of right trials on probes, person by person."""
    scores = [(s.person, scored(attack, s.video)) for s in people_videos(clear, "probe", each)]
    assert all(sc.ndim == 2 and sc.shape[1] == PEOPLE and np.isfinite(sc).all() for _, sc in scores)
    return float(np.mean([hit(row, p) for p, sc in scores for row in sc])), [sc for _, sc in scores]


def trained(name: str, clear: bool) -> Identify:
    use_threads()
    cls = registry.get("attacks", name)
    budget = SMALL_CLIPS if cls.threat.reads == "clip" else SMALL
    attack = cls(**{k: v for k, v in budget.items() if k in inspect.signature(cls.__init__).parameters})
    attack.fit(people_videos(clear, "enrolment", 4), PEOPLE, started_assets(cls.assets), context(name))
    return attack


def fitted(name: str, clear: bool) -> Identify:
    """Trained itself, or with the state of the attack that it trains like."""
    teacher = registry.get("attacks", name).trains_like
    if not teacher:
        return trained(name, clear)
    assert registry.get("attacks", teacher).threat.trained_on == registry.get("attacks", name).threat.trained_on
    attack = registry.get("attacks", name)()
    attack.load(trained(teacher, clear).state(), PEOPLE, context(name))
    return attack


IDENTIFY = [n for n in ATTACKS if issubclass(registry.get("attacks", n), Identify)]


@pytest.mark.parametrize("name", IDENTIFY)
def test_an_attack_wins_on_clear_people_and_goes_through_its_state(name):
    attack = fitted(name, True)
    rate, scores = rate_of(attack, True, 2)
    assert rate >= 0.9
    again = registry.get("attacks", name)()
    again.load({k: np.array(v) for k, v in attack.state().items()}, PEOPLE, context(name))
    for one, other in zip(scores, rate_of(again, True, 2)[1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", IDENTIFY)
def test_an_attack_is_at_chance_on_noise(name):
    rate, scores = rate_of(fitted(name, False), False, 8)
    trials = sum(len(s) for s in scores)
    assert trials >= 24 and abs(rate - 1 / PEOPLE) < 4 * np.sqrt(2 / 9 / trials)


# ---- metrics -------------------------------------------------------------------------------------------------------

PURE = [n for n in METRICS if isinstance(registry.get("metrics", n), Metric)]


def of_kind(base: type) -> list[str]:
    return [n for n in METRICS if n not in PURE and issubclass(registry.get("metrics", n), base)]


def loaded(name: str):
    """A metric with its stand-in evaluator, untrained."""
    plugin = registry.get("metrics", name)
    assert plugin.headline in plugin.variants
    metric = plugin(**plugin.variants[plugin.headline])
    metric.load(started_assets(plugin.assets), context(name))
    return metric


@pytest.mark.parametrize("name", of_kind(VideoMetric))
def test_a_metric_of_a_video_fills_every_column_and_remembers_nothing(name):
    use_threads()
    metric, original = loaded(name), moving(20)
    changed = Video((original.frames // 2 + 30).astype(np.uint8))
    first = metric.values(original, changed)
    metric.values(changed, original)  # another video in between
    again = metric.values(original, changed)
    assert set(first) == {c.id for c in metric.columns}
    for column in metric.columns:
        np.testing.assert_array_equal(first[column.id], again[column.id])
        known = np.asarray(first[column.id])[~np.isnan(first[column.id])]
        assert len(known) and (known >= column.low).all() and (known <= column.high).all(), column.id
    single = Video(original.frames[:1])
    assert all(np.isnan(v).all() for v in metric.values(single, single).values())  # one frame has no neighbour


@pytest.mark.parametrize("name", of_kind(SetMetric))
def test_a_distance_of_sets_is_least_for_equal_sets_and_seeded(name):
    use_threads()
    metric, rng = loaded(name), seeds.derive(3, "sets", name)
    clips = [Video(rng.integers(0, 256, (CLIP_FRAMES, 32, 32, 3), dtype=np.uint8)) for _ in range(4)]
    dark = [Video(clip.frames // 8) for clip in clips]
    one, other = (np.stack([metric.embed(c) for c in part]) for part in (clips, dark))
    np.testing.assert_array_equal(one, np.stack([loaded(name).embed(c) for c in clips]))
    assert metric.distance(one, one, one) < metric.distance(one, other, one)


@pytest.mark.parametrize("name", PURE)
def test_a_pure_metric_gives_one_value_a_frame_and_remembers_nothing(name):
    plugin = registry.get("metrics", name)
    original = moving(6)
    released = Video((original.frames // 2 + 30).astype(np.uint8))

    def values(a: Video, b: Video) -> np.ndarray:
        return np.asarray(plugin.function(a.as_float(), b.as_float()) if plugin.of == "pair" else
                          plugin.function(b.frames))

    first = values(original, released)
    values(released, original)  # another video in between
    assert first.shape == (6,)
    np.testing.assert_array_equal(values(original, released), first)
    known = first[~np.isnan(first)]
    assert len(known) and ((known >= plugin.column.low) & (known <= plugin.column.high)).all()
    if plugin.of == "pair":
        order = np.array([3, 0, 5, 1, 4, 2])
        shuffled = plugin.function(original.as_float()[order], released.as_float()[order])
        np.testing.assert_allclose(shuffled, first[order], rtol=1e-6)


@pytest.mark.parametrize("name", of_kind(Evaluator))
def test_an_evaluator_tells_labels_apart_and_is_seeded(name):
    plugin = registry.get("metrics", name)
    use_threads()

    samples, fitted = [Sample(s.video, label=s.person) for s in people_videos(True, "train", 2)], []

    def predictions() -> np.ndarray:
        evaluator = plugin(epochs=1)
        fitted.append(evaluator)
        evaluator.fit(samples, samples[::2], PEOPLE, started_assets(plugin.assets), context(name))
        return np.stack([evaluator.predict(s.video) for s in samples])

    first = predictions()
    again = plugin(epochs=1)
    again.load({k: np.array(v) for k, v in fitted[-1].state().items()}, PEOPLE, context(name))
    np.testing.assert_array_equal(again.predict(samples[0].video), first[0])  # what other stages read with
    assert first.shape == (PEOPLE * 2, PEOPLE) and np.isfinite(first).all()
    np.testing.assert_array_equal(first, predictions())
