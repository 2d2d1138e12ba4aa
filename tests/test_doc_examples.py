"""The examples of CONTRIBUTING.md as a reader would use them: each is whole, is accepted, runs and measures rightly."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib

import numpy as np
import pytest
from conftest import ROOT
from test_stage_match import write_release

import bench.video as video_io
from bench import Context, Noise, Opened, PluginError, Sample, Video, registry, seeds
from bench.data.clips import Clips
from bench.diagnostics import Diagnostic
from bench.measures import Evaluator, Match, Recover, SetMetric, VideoMetric
from bench.registry import Spec
from bench.run import suite
from bench.run.cache import WorkFolder
from bench.run.cells import value_of
from bench.run.executors import _reason
from bench.run.plan import Request, make_plan
from bench.run.stages import Job, function
from bench.run.trials import ALL_PEOPLE, read_trials
from bench.run.views import load_tensors
from bench.run.workers import MethodWorker, method_facts

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WHOLE = {found[2]: text for text in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
         if text.startswith('"""') and (found := re.search(r'@(method|attack|metric)\("(\w+)"', text))}
KINDS = {"gain": Recover, "palette": Match, "loudest": Diagnostic, "blink": VideoMetric, "shift": SetMetric,
         "nearest_mean": Evaluator}
SUITE = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)[1]
CONFIG = {"variant": None, "budget": {}, "profile": "tiny", "seed": 1, "numbers_seed": 1}


@pytest.fixture(scope="module")
def examples(tmp_path_factory, plugins):
    """The folder of all whole examples, known as plug-ins while this file is tested."""
    folder, patch = tmp_path_factory.mktemp("examples"), pytest.MonkeyPatch()
    for name, text in WHOLE.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    broken = WHOLE["gain"].replace('"gain"', '"broken_gain"').replace("videos = ", "1 / 0\n        videos = ")
    (folder / "broken_gain.py").write_text(broken, encoding="utf-8")
    patch.setenv(registry.EXTRA, os.pathsep.join([os.environ[registry.EXTRA], *map(str, sorted(folder.iterdir()))]))
    registry._locations.cache_clear()
    yield folder
    patch.undo()
    registry._locations.cache_clear()


@pytest.fixture(scope="module")
def releases(tmp_path_factory, small):
    """Release folders of the blocks: as they are, and at half the brightness."""
    base = tmp_path_factory.mktemp("releases")
    return {"same": write_release(base / "same", small),
            "half": write_release(base / "half", small, lambda frames, row, draw: frames // 2)}


def ran(kind, name, out, **inputs):
    """Run one stage in this process; the folder that it filled."""
    out.mkdir()
    word = "metric" if kind in ("metric", "embed") else "attack"
    function(kind)(Job({word: name, **CONFIG, "subset": "one"}, inputs, out, lambda text: None))
    return out


def rows_of(folder, column):
    trials = read_trials(folder / "trials.parquet")
    return {k: v[trials["column"] == column] for k, v in trials.items()}


def context() -> Context:
    return Context(rng=lambda *more: seeds.derive(9, "example", *more), report=lambda text: None,
                   torch_seed=lambda *more: seeds.derive_torch(9, "example", *more))


def grey(*levels) -> Video:
    """One grey level a frame."""
    return Video(np.broadcast_to(np.array(levels, np.uint8)[:, None, None, None], (len(levels), 4, 4, 3)))


# ---- what the text promises ----------------------------------------------------------------------------------------

def test_every_kind_has_one_whole_short_example():
    assert set(KINDS) < set(WHOLE)
    for name in KINDS:
        lines = [line for line in WHOLE[name].splitlines() if line.strip()]
        assert 10 <= len(lines) <= 30 and max(map(len, lines)) <= 120, name


@pytest.mark.parametrize("name", KINDS)
def test_an_example_is_found_by_its_file_and_says_what_it_is(name, examples):
    kind = "metrics" if KINDS[name] in (VideoMetric, SetMetric, Evaluator) else "attacks"
    cls = registry.get(kind, name)
    assert issubclass(cls, KINDS[name]) and cls.name == name and isinstance(registry.build(kind, name), cls)
    assert len(cls.__doc__) > 150 and "Source:" in cls.__doc__
    assert KINDS[name] is Recover or all(f"`{column.unit}`" in TEXT for column in cls.columns)


def test_the_suite_of_the_examples_is_accepted_and_uses_all_of_them(examples, tmp_path):
    path = tmp_path / "examples.toml"
    path.write_text(SUITE, encoding="utf-8")
    made = make_plan(Request(suite.load(str(path))), WorkFolder(tmp_path))
    titles = {s.title for s in made.stages}
    assert {"diagnose loudest on mean_colour", "apply gain to blur", "attack palette on blur via gain",
            "metric blink on original", "metric shift on blur via gain", "metric nearest_mean on blackout"} <= titles
    assert not any("nearest_mean" in t and "via" in t or "loudest on blur" in t for t in titles)


def test_the_table_of_fields_is_that_of_the_suites():
    table = TEXT.partition("## A suite is a TOML file")[2].partition("\n## ")[0]
    rows = {m[1]: m[2] for m in re.finditer(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", table, re.MULTILINE)}
    fields = {name: field for name, field in suite.Suite.model_fields.items() if name != "name"}
    assert list(rows) and set(rows) == set(fields)
    for name, field in fields.items():
        said = {"required": "required", "none": None}.get(rows[name], ...)
        if said is ...:
            said = tomllib.loads(f"x = {rows[name].strip('`')}")["x"]
        default = field.get_default(call_default_factory=True, validated_data={})
        assert said == ("required" if field.is_required() else default), name


# ---- what the examples measure -------------------------------------------------------------------------------------

def test_the_gain_is_learned_and_undoes_a_darkening(examples, releases, small, tmp_path):
    learned = ran("learn", "gain", tmp_path / "learn", release=releases["half"], clips=small)
    made = ran("derive", "gain", tmp_path / "derive", train=learned, release=releases["half"])
    attack = registry.build("attacks", "gain")
    clip = Clips(small).video(Clips(small).rows("test")[0])
    attack.load(load_tensors(learned / "state.safetensors"), context())
    assert np.all((attack.factor >= 2) & (attack.factor < 2.02))  # v // 2 is v / 2 or a little less
    back = attack.recover(Video(clip.frames // 2)).frames
    assert np.abs(back.astype(int) - clip.frames).max() <= 4 and len(list((made / "release" / "media").iterdir()))
    file = sorted((made / "release" / "media").iterdir())[0]
    assert 1 <= len(video_io.read(file)) <= 16


def test_the_matcher_tells_people_of_one_colour_apart(examples, releases, small, tmp_path):
    learned = ran("train_match", "palette", tmp_path / "learn", release=releases["same"])
    made = ran("match", "palette", tmp_path / "match", train=learned, release=releases["same"], clips=small)
    assert value_of(rows_of(made, "eer"), "eer", 0) < 0.1 and len(rows_of(made, "tar[far=0.1]")["value"])


def test_the_diagnostic_is_the_largest_noise_in_scales(examples):
    residual = np.zeros((16, 3))
    residual[5, 1] = -7.0
    scale = np.full(16, 2.0)
    scale[5] = 3.5

    def opened(law):
        return Opened(residual, residual, Noise(law, scale), 2.0, np.ones(16), 1.0)

    attack = registry.build("attacks", "loudest")
    assert attack.measure({"a": opened("gaussian"), "b": opened(None)}) == {"loudest": 2.0}
    assert math.isnan(attack.measure({"b": opened("randomized_response")})["loudest"])


def test_the_video_metric_is_the_mean_jump(examples, releases, small, tmp_path):
    found = registry.build("metrics", "blink").values(grey(10, 10, 10), grey(10, 13, 4))
    assert found["blink"].tolist() == [3, 9] and found["blink_src"].tolist() == [0, 0]
    same, half = (ran("metric", "blink", tmp_path / n, release=releases[n], clips=small) for n in ("same", "half"))
    np.testing.assert_array_equal(rows_of(same, "blink")["value"], rows_of(same, "blink_src")["value"])
    np.testing.assert_array_equal(rows_of(half, "blink_src")["value"], rows_of(same, "blink_src")["value"])


def test_the_distance_of_sets_is_zero_for_equal_ones(examples, releases, small, tmp_path):
    metric = registry.build("metrics", "shift")
    a, b = (np.stack([metric.embed(grey(v, v + 2)) for v in levels]) for levels in ((10, 20), (40, 50)))
    assert metric.distance(a, a, a) == 0 and metric.distance(a, b, a) == pytest.approx(30 * math.sqrt(3))
    originals = ran("embed", "shift", tmp_path / "originals", clips=small)
    said = {n: ran("embed", "shift", tmp_path / f"{n} features", release=releases[n]) for n in ("same", "half")}
    same, half = (ran("metric", "shift", tmp_path / n, release=releases[n], clips=small, features=said[n],
                      originals=originals) for n in said)
    assert not rows_of(same, "shift")["value"].any() and (rows_of(half, "shift")["value"] > 10).all()
    assert ALL_PEOPLE in rows_of(half, "shift")["person"]


def test_the_evaluator_reads_a_label_that_is_there(examples, releases, small, tmp_path):
    evaluator = registry.build("metrics", "nearest_mean")
    evaluator.fit([Sample(grey(20, 30), label=0), Sample(grey(200, 220), label=1)], [], 2, {}, context())
    assert [int(evaluator.predict(grey(v)).argmax()) for v in (40, 190)] == [0, 1]
    made = ran("metric", "nearest_mean", tmp_path / "metric", release=releases["same"], clips=small)
    result = json.loads((made / "result.json").read_text(encoding="utf-8"))
    assert result["chance"] == 0.5 and set(rows_of(made, "nearest_mean")["value"]) <= {0.0, 1.0}


def test_the_method_that_draws_its_own_noise_is_priced_counted_and_noisy(examples):
    facts = method_facts(Spec("own_colour"))
    assert facts["lane"] == "declared" and float(facts["claim"]["epsilon"]) == pytest.approx(8, abs=1e-6)
    grey_clips = Video(np.full((32, 8, 8, 3), 127, np.uint8))
    with MethodWorker(Spec("own_colour"), "tiny") as worker:
        made = worker.release(grey_clips, 1).frames
    assert (made == made[:, :1, :1]).all() and len(np.unique(made[:, 0, 0], axis=0)) > 8
    few = WHOLE["own_colour"].replace("rows=len(rows)", "rows=1")
    assert few != WHOLE["own_colour"]
    (examples / "few.py").write_text(few.replace("own_colour", "few"), encoding="utf-8")
    os.environ[registry.EXTRA] += os.pathsep + str(examples / "few.py")
    with MethodWorker(Spec("few"), "tiny") as worker, pytest.raises(PluginError, match="drew 1 of the 16 rows"):
        worker.release(grey_clips, 1)


def test_what_an_example_raises_is_told_with_its_line(examples, releases, small, tmp_path):
    with pytest.raises(ZeroDivisionError) as caught:
        ran("learn", "broken_gain", tmp_path / "learn", release=releases["half"], clips=small)
    lines = (examples / "broken_gain.py").read_text(encoding="utf-8").splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "1 / 0" in text)
    assert _reason(caught.value, ["attacks/broken_gain"]) == (
        f"ZeroDivisionError: division by zero (broken_gain.py, line {line})")
    assert _reason(caught.value) == "ZeroDivisionError: division by zero"
