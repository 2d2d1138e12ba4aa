"""The declared lane: noise by the claim's law, counted draws, refused claims, and the road to the board."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from conftest import SUITE, start
from scipy import stats

import bench.video as video_io
from bench import ConfigError, FullClaim, PluginError, Video, registry, store
from bench.account import find, report
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.claims import BranchClaim
from bench.privacy.declared import DeclaredMethod, Event, Noise, declared_claim, release_clips
from bench.privacy.radial import isotropic_exponential
from bench.publish import site_data
from bench.registry import Spec
from bench.run import suite
from bench.run.cache import WorkFolder
from bench.run.evidence import behind
from bench.run.plan import known_facts
from bench.run.rows import Builder
from bench.run.workers import MethodWorker, method_facts
from bench.seeds import derive
from bench.views import boards


def bits(*names) -> SeededBits:
    return SeededBits(derive(5, "declared", *names))


def chance(*names):
    return derive(6, *names)


def clip(frames=16, fps=25.0) -> Video:
    picture = derive(2, "clip").integers(0, 256, (frames, 8, 8, 3)).astype(np.uint8)
    picture.flags.writeable = False
    return Video(picture, fps)


# ---- the law of the noise ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dim, epsilon", [(1, 0.5), (2, 3.0), (8, 2.0), (33, 0.1)])
def test_noise_by_distance_has_a_gamma_length_and_no_direction(dim, epsilon):
    noise = isotropic_exponential(3000, dim, epsilon, bits("radial", dim))
    length = np.linalg.norm(noise, axis=1)
    assert stats.kstest(length, stats.gamma(dim, scale=1 / epsilon).cdf).pvalue > 1e-3
    direction = noise / length[:, None]
    assert stats.chi2(dim).sf(3000 * dim * (direction.mean(axis=0) ** 2).sum()) > 1e-3  # mean 0, variance 1 / dim
    if dim > 1:  # the cosine to a fixed direction: (1 + u) / 2 is Beta((d - 1) / 2, (d - 1) / 2)
        law = stats.beta((dim - 1) / 2, (dim - 1) / 2)
        for towards in (np.eye(dim)[0], np.ones(dim) / np.sqrt(dim)):
            assert stats.kstest((1 + direction @ towards) / 2, law.cdf).pvalue > 1e-3
        assert abs(stats.spearmanr(length, direction[:, 0]).statistic) < 4 / np.sqrt(3000)


def test_the_loss_of_noise_by_distance_is_epsilon_times_the_distance():
    """Two points at distance .7: the ratio of densities never exceeds exp(epsilon x .7), and nearly reaches it."""
    epsilon, away = 3.0, np.array([0.7, 0.0])
    noise = isotropic_exponential(4000, 2, epsilon, bits("loss"))
    loss = epsilon * (np.linalg.norm(noise - away, axis=1) - np.linalg.norm(noise, axis=1))  # log p(z) / p(z - away)
    assert np.abs(loss).max() <= epsilon * 0.7 * (1 + 1e-12) and np.abs(loss).max() > epsilon * 0.7 * 0.99


def test_the_wrong_law_would_be_seen():
    gauss = np.linalg.norm(derive(3, "wrong").normal(0, np.sqrt(9 / 8) / 2.0, (3000, 8)), axis=1)
    assert stats.kstest(gauss, stats.gamma(8, scale=0.5).cdf).pvalue < 1e-6


@pytest.mark.parametrize("law, more, cdf", [
    ("gaussian", {"clip_norm": 1.0, "noise_std": 2.5}, stats.norm(scale=2.5).cdf),
    ("discrete_laplace", {"clip_norm": 300, "scale": 200, "norm": "box"}, stats.laplace(scale=200).cdf)])
def test_a_draw_has_the_law_and_scale_of_its_branch(law, more, cdf):
    claim = FullClaim("clip", branches=(BranchClaim("a", law, dim=300, **more),))
    drawn = Noise(claim, bits(law)).draw(Event("a", 16))
    assert drawn.shape == (16, 300) and drawn.dtype == np.float64
    assert stats.kstest(drawn.ravel() + derive(1, "fill").uniform(-0.5, 0.5, drawn.size) * (law != "gaussian"),
                        cdf).pvalue > 1e-3


# ---- what is counted and what is refused ---------------------------------------------------------------------------

def released(spec: str, video: Video, *names) -> Video:
    return release_clips(registry.build("methods", spec), video, chance, lambda k: bits(*names, k), "tiny")


def test_every_clip_has_noise_of_its_own_and_the_same_bits_give_the_same_bytes():
    one, again, other = (released("self_noised", Video(np.tile(clip().frames, (3, 1, 1, 1))[:40]), n).frames
                         for n in ("a", "a", "b"))
    assert len(one) == 40 and one.tobytes() == again.tobytes() != other.tobytes()
    assert not np.array_equal(one[:16], one[16:32]) and not np.array_equal(one[0], one[1])


@pytest.mark.parametrize("fault, said", [
    ("none", "drew 0 of the 16 rows"), ("few", "drew 15 of the 16 rows"), ("many", "17 rows .* pays for 16"),
    ("unknown", "no branch of its claim.*colour"), ("shape", "something else than a clip"),
    ("zero", "rows of 'colour'")])
def test_a_clip_whose_draws_are_not_the_claim_is_not_released(fault, said):
    with pytest.raises((PluginError, ConfigError), match=f"(?s){said}"):
        released(f"self_noised@{fault}", clip())


@pytest.mark.parametrize("variant, said", [
    ("clear", "cannot be drawn"), ("response", "cannot be drawn"), ("frame", "unit 'frame'"), ("wide", "how wide"),
    ("long", "1 x 32 frames")])
def test_a_claim_that_cannot_be_met_is_refused(variant, said):
    with pytest.raises(PluginError, match=said):
        declared_claim(registry.build("methods", f"self_noised@{variant}"))
    with pytest.raises(PluginError, match=said):
        method_facts(Spec("self_noised", variant))


def test_no_claim_and_no_memory():
    class Bare(DeclaredMethod):
        pass

    with pytest.raises(PluginError, match="claims nothing"):
        declared_claim(Bare())
    method = registry.build("methods", "self_noised")
    method.memory_between_clips = True
    with pytest.raises(PluginError, match="memory"):
        declared_claim(method)
    with pytest.raises(ConfigError, match="without frames"):
        released("self_noised", Video(np.zeros((0, 4, 4, 3), np.uint8)))


def test_the_worker_prices_the_claim_and_names_faults(capfd):
    facts = method_facts(Spec("self_noised"))
    want = price(registry.build("methods", "self_noised").terms)
    assert facts["lane"] == "declared" and facts["claim"]["epsilon"] == pytest.approx(want.epsilon)
    claim, name, lane = find("self_noised")
    assert (name, lane, claim.unit) == ("self_noised", "declared", "clip")
    assert report(claim, name)["epsilon_exact"] == pytest.approx(want.epsilon)
    with MethodWorker(Spec("self_noised"), "tiny") as worker:
        first, again, other = (worker.release(clip(20, 23.976), seed) for seed in (5, 5, 6))
    assert first.fps == 23.976 and len(first) == 20
    assert first.frames.tobytes() == again.frames.tobytes() != other.frames.tobytes()
    with MethodWorker(Spec("self_noised", "few"), "tiny") as worker, \
            pytest.raises(PluginError, match="self_noised@few cannot be used: It drew 15"):
        worker.release(clip(), 1)
    with MethodWorker(Spec("self_noised", "writes"), "tiny") as worker, \
            pytest.raises(PluginError, match="writes to its input"):
        worker.release(clip(), 1)


def test_two_rows_of_one_method_share_no_noise():
    flat = Video(np.full((16, 4, 4, 3), 127, np.uint8))
    seen = []
    for variant in (None, "writes"):  # the same method under another name
        with MethodWorker(Spec("self_noised"), "tiny") as worker:
            if variant:
                worker.call({"op": "load", "name": "self_noised", "variant": "metric", "profile": "tiny"})
            seen.append(worker.release(flat, 9).frames.astype(int)[:, 0, 0] - 127)
    assert abs(np.corrcoef(seen[0].ravel(), seen[1].ravel())[0, 1]) < 0.6


# ---- on the road ---------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def work(road, tmp_path_factory) -> WorkFolder:
    """The finished run on blocks, and a declared method under both units with one fault beside."""
    folder = shutil.copytree(road, tmp_path_factory.mktemp("declared") / "work")
    run = start("run", SUITE, "--workdir", folder, "--method", "self_noised", "--method", "self_noised@metric",
                "--method", "self_noised@few", "--attack", "plr", "--metric", "psnr_released",
                "--display", "plain", cwd=folder.parent)
    out, err = run.communicate(timeout=900)
    assert run.returncode == 1 and "drew 15 of the 16" in out + err, f"{out}\n{err}"
    return WorkFolder(folder)


def cells(work: WorkFolder, variant: str | None) -> dict[str, dict]:
    return {c["attack"] or c["metric"]: c for c in store.read_cells(work.root / "veilbench.duckdb")
            if (c["method"], c["variant"]) == ("self_noised", variant)}


def test_cells_are_declared_and_carry_the_price(work):
    for variant, unit in ((None, "clip"), ("metric", "image_metric")):
        row = cells(work, variant)
        want = price(registry.build("methods", Spec("self_noised", variant)).terms).epsilon
        assert {c["lane"] for c in row.values()} == {"declared"} and {c["unit"] for c in row.values()} == {unit}
        assert all(c["status"] == "ok" and c["epsilon"] == pytest.approx(want) for c in row.values())
    assert cells(work, None)["plr"]["ceiling"] is not None and cells(work, "metric")["plr"]["ceiling"] is None
    assert all("drew 15 of the 16" in c["status"] for c in cells(work, "few").values())


def test_declared_rows_stand_in_sections_of_their_own(work):
    sections = [s for board in boards(store.read_cells(work.root / "veilbench.duckdb")) for s in board["sections"]]
    own = {r["name"]: s for s in sections for r in s["rows"] if r["name"].startswith("self_noised")}
    assert own["self_noised"] is not own["self_noised@metric"]
    for name, words in (("self_noised", "one clip of 16 frames"), ("self_noised@metric", "one image, by distance")):
        assert own[name]["lane"] == "declared" and words in own[name]["title"]
        assert "declared, not enforced" in own[name]["badge"]["text"] and own[name]["badge"]["symbol"] == "◐"
        assert not {"blur@2", "dp_latent"} & {r["name"] for r in own[name]["rows"]}


def test_the_page_of_a_declared_method_says_so(work, tmp_path):
    assert behind(work)["self_noised"]["noise"] == "seeded"
    pages = {(m["name"], m["variant"]): m for m in
             site_data(work, work.root / "veilbench.duckdb", tmp_path).methods}
    card = pages["self_noised", None]["card"]
    assert card["lane"]["id"] == "declared" and "not enforced" in card["lane"]["text"] and card["rows"]
    assert card["noise"] and not card["noise"]["green"] and card["isolation"] is None


def test_the_release_is_marked_and_names_no_seed(work):
    folder = next(r["folder"] for r in work.finished("release") if r["identity"]["config"]["method"] == "self_noised"
                  and r["identity"]["config"]["variant"] is None)
    facts = json.loads((folder / "release" / "release.json").read_text(encoding="utf-8"))
    assert facts["lane"] == "declared" and "seed" not in facts and not facts["memory"]
    assert facts["claim"]["epsilon"] == cells(work, None)["plr"]["epsilon"]


def test_a_suite_asks_for_as_many_draws_as_of_an_enforced_method(tmp_path):
    asked, spec = suite.load(str(SUITE)).model_copy(update={"draws": 3, "redraws": 5}), Spec("self_noised")
    builder, facts = Builder(asked, None), known_facts(spec, WorkFolder(tmp_path))
    road = builder.road(spec, facts)
    assert road.draws == 3 == road.assembled.config["draws"] and road.isolated is road.assembled
    assert builder._redrawn(road).config["draws"] == 5 and road.assembled.kind == "release"


def test_a_users_own_video_leaves_as_the_crop_with_its_card(cli, tmp_path):
    frames = derive(3, "own").integers(0, 255, (20, 72, 96, 3)).astype(np.uint8)
    video_io.write_lossless(tmp_path / "own.mkv", frames, 25)
    outs = []
    for name in ("a.mkv", "b.mkv"):
        answer = cli("release", "self_noised", tmp_path / "own.mkv", "-o", tmp_path / name, "--lossless")
        assert answer.code == 0, answer.err
        outs.append(video_io.read(tmp_path / name).frames)
    assert outs[0].shape == (20, 64, 64, 3) and not np.array_equal(*outs)  # no seed
    for said in ("2 clips of 16", "declared, not enforced", "Noise of the operating system"):
        assert said in answer.out


def test_an_audit_says_why_it_is_none(cli):
    answer = cli("audit", "self_noised")
    assert answer.code == 2 and "declared, not enforced" in answer.err
