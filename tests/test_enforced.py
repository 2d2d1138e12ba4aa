"""The road of an enforced method: encode, noise, render, replay, its border, and the attack on its transcript."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import SUITE, start
from scipy.stats import norm

import bench.video as video_io
from bench import seeds, store
from bench.data.clips import Clips
from bench.errors import DataError
from bench.privacy.audit import laplace_scale_test, noise_scale_test
from bench.registry import Spec
from bench.run import cells as cells_of
from bench.run.cache import WorkFolder
from bench.run.enforced import all_branches, loss_of, priced
from bench.run.plan import known_facts
from bench.run.released import open_release
from bench.run.sandbox import available
from bench.run.stage_diagnose import run_diagnose
from bench.run.stage_enforced import noise_bits
from bench.run.stage_transcript import _Known, read_values
from bench.run.stages import Job
from bench.run.trials import read_trials
from bench.run.views import load_tensors


@pytest.fixture(scope="module")
def work(road, tmp_path_factory) -> WorkFolder:
    """The finished run on blocks, and two enforced methods with their attack."""
    folder = Path(shutil.copytree(road, tmp_path_factory.mktemp("enforced") / "work"))
    run = start("run", SUITE, "--workdir", folder.name, "--method", "dp_latent", "--method", "dp_pix",  # a relative one
                "--attack", "plr", "--attack", "latent_llr", "--metric", "psnr_released", cwd=folder.parent)
    out, err = run.communicate(timeout=600)
    assert run.returncode == 0, f"{out}\n{err}"
    return WorkFolder(folder)


def stage(work: WorkFolder, kind: str, method: str) -> Path:
    return next(r["folder"] for r in work.finished(kind) if r["identity"]["config"]["method"] == method)


def cell(work: WorkFolder, method: str, attack: str) -> dict:
    return next(c for c in store.read_cells(work.root / "veilbench.duckdb")
                if (c["method"], c["attack"]) == (method, attack))


@pytest.mark.parametrize("method, unit", [("dp_latent", "clip"), ("dp_pix", "pixels")])
def test_a_row_carries_its_claim_and_its_lane(work, method, unit):
    for attack in ("plr", "latent_llr"):
        row = cell(work, method, attack)
        assert (row["lane"], row["unit"], row["status"]) == ("enforced", unit, "ok")
        assert row["epsilon"] == pytest.approx(8, rel=1e-6) and row["value"] is not None
    assert cell(work, method, "latent_llr")["decoding"] == "isolated"


def test_no_transcript_attack_on_methods_without_one(work):
    attacked = {c["method"] for c in store.read_cells(work.root / "veilbench.duckdb") if c["attack"] == "latent_llr"}
    assert attacked == {"dp_latent", "dp_pix"}


@pytest.mark.parametrize("method", ["dp_latent", "dp_pix"])
def test_what_a_release_says_of_itself(work, method):
    folder = stage(work, "enforced", method)
    facts = json.loads((folder / "release" / "release.json").read_text())
    assert facts["lane"] == "enforced" and facts["benchmark_only"] and facts["noise"] == "seeded" and facts["replayed"]
    assert facts["isolation"] == json.loads(json.dumps(available().as_dict()))
    assert facts["price"]["epsilon"] == pytest.approx(8, rel=1e-6)
    values = (folder / "release" / "transcript.safetensors").read_bytes()
    assert facts["transcript"] == hashlib.sha256(values).hexdigest()
    words = (folder / "release" / "release.json").read_text().lower()
    assert not any(word in words for word in ("seed\"", "failed", "seconds", "person", "residual"))
    media = sorted(p.name for p in (folder / "release" / "media").iterdir())
    assert len(media) == facts["files"] and len(open_release(folder)) == facts["files"]


@pytest.mark.parametrize("method", ["dp_latent", "dp_pix"])
def test_released_values_are_atoms_plus_the_noise_of_the_vault(work, method):
    encode, folder = stage(work, "encode", method), stage(work, "enforced", method)
    atoms = load_tensors(encode / "vault" / "atoms.safetensors")
    released = load_tensors(folder / "release" / "transcript.safetensors")
    noise = load_tensors(folder / "vault" / "residuals.safetensors")
    known = {tuple(map(tuple, a)) for key in atoms if key.startswith("steps:") for a in atoms[key].tolist()}
    for key in (k for k in released if k.startswith("steps:")):
        clean = released[key].astype(np.int64) - noise[key.replace("steps", "residual")]
        assert {tuple(map(tuple, a)) for a in clean.tolist()} <= known


def test_the_noise_has_the_claimed_scale(work):
    facts = known_facts(Spec("dp_latent"), work)
    branches, _ = all_branches(facts, 64)
    noise = load_tensors(stage(work, "enforced", "dp_latent") / "vault" / "residuals.safetensors")
    residuals = noise["residual:latent"] * branches[0].clip * 2.0**-20
    assert not noise_scale_test(residuals, branches[0].floor).refuted()
    assert noise_scale_test(residuals / math.sqrt(2), branches[0].floor).refuted()
    assert noise["scale:latent"] == pytest.approx(branches[0].floor)
    noise = load_tensors(stage(work, "enforced", "dp_pix") / "vault" / "residuals.safetensors")
    scale = float(all_branches(known_facts(Spec("dp_pix"), work), 64)[1]["cells"])
    assert scale == 16 * 255 * 3 * 16 / 8
    assert not laplace_scale_test(noise["residual:cells"], scale).refuted()


def test_latent_llr_stays_under_the_ceiling_and_reaches_the_matched_filter(work):
    """Its accuracy is that of the likeliest of the candidates under Gaussian noise, here drawn anew 400 times."""
    row, folder = cell(work, "dp_latent", "latent_llr"), stage(work, "enforced", "dp_latent")
    facts = known_facts(Spec("dp_latent"), work)
    branches, _ = all_branches(facts, 64)
    clips = Clips(next(r["folder"] for r in work.finished("clips")
                       if r["identity"]["config"]["dataset"] == "blocks"))
    known = _Known(stage(work, "encode", "dp_latent") / "vault", branches, clips)
    choose, draw = seeds.derive(42, "compare", "latent_llr", "candidates"), np.random.default_rng(5)
    right = []
    for item in open_release(folder, role="probe"):
        for k in range(item.streams):
            inputs = known.candidates(item, k, choose)["latent"]  # (P, T, dim)
            truth = known.people.index(item.person)
            noisy = inputs[truth] + draw.normal(0, branches[0].floor, (400, *inputs.shape[1:]))
            distance = ((noisy[:, None] - inputs[None]) ** 2).sum((2, 3))  # (400, P)
            right.append(float((distance.argmin(1) == truth).mean()))
    theory = float(np.mean(right))
    spread = math.sqrt(sum(p * (1 - p) for p in right)) / len(right)  # of the measured share, given the candidates
    assert row["n"] == len(right) and abs(row["value"] - theory) <= 4 * spread
    assert 1 / 3 < theory <= row["ceiling"] and row["value"] <= row["ceiling"] + 4 * spread
    mu = priced(facts)[1].mu
    assert row["ceiling"] >= norm.cdf(norm.ppf(1 / 3) + mu / 2) - 1e-9  # Theorem 8 at equal priors, a little above else


def test_an_edited_transcript_is_refused(work, tmp_path):
    release = Path(shutil.copytree(stage(work, "enforced", "dp_latent") / "release", tmp_path / "release"))
    branches, _ = all_branches(known_facts(Spec("dp_latent"), work), 64)
    assert read_values(release, branches).released["latent"].shape[1:] == (16, 8)
    path = release / "transcript.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="not the one that was released"):
        read_values(release, branches)


def test_nothing_of_the_vault_leaves_in_an_export(work, cli, tmp_path):
    assert cli("db", "export", tmp_path / "out", "--workdir", work.root).code == 0
    said = b"".join(p.read_bytes() for p in (tmp_path / "out").iterdir())
    for kind, method in (("encode", "dp_latent"), ("enforced", "dp_latent"), ("enforced", "dp_pix")):
        for path in (stage(work, kind, method) / "vault").iterdir():
            assert hashlib.sha256(path.read_bytes()).hexdigest().encode() not in said


def test_the_site_shows_the_card_and_the_section(work, cli):
    assert cli("site", "build", "--workdir", work.root).code == 0
    page = (work.root / "site" / "methods" / "dp_latent.html").read_text()
    for words in ("Mironov", "isolation level", "benchmark only", "claim allows"):
        assert words.lower() in page.lower()
    board = (work.root / "site" / "index.html").read_text()
    assert "Claim about one clip of 16 frames, ε ≤ 8" in board and "Claim about some pixels of a frame" in board


def test_no_two_releases_share_their_noise(work):
    """Else the difference of two released values is that of the two inputs, without any noise."""
    record = next(r for r in work.finished("enforced") if r["identity"]["config"]["method"] == "dp_latent")
    config = record["identity"]["config"]
    clips = Clips(work.stage("clips", record["identity"]["inputs"]["clips"]))
    words = noise_bits(config, clips).words(4).tolist()
    assert words == noise_bits(config, clips).words(4).tolist()
    for change in ({"decoding": "isolated"}, {"variant": "eps2"}, {"draws": 2}, {"seed": 43}, {"parts": ["probe"]}):
        assert noise_bits({**config, **change}, clips).words(4).tolist() != words, change


@pytest.mark.parametrize("method", ["dp_latent", "dp_pix"])
def test_the_vault_says_that_the_noise_drawn_is_the_noise_claimed(work, method, tmp_path):
    record = next(r for r in work.finished("enforced") if r["identity"]["config"]["method"] == method)
    inputs = {"release": record["folder"], **{k: work.stage("encode" if k == "encode" else "clips", v)
                                              for k, v in record["identity"]["inputs"].items() if k != "fit"}}
    config = {"attack": "noise_scale", "variant": None, "budget": {}, "profile": "tiny", "seed": 1, "numbers_seed": 1,
              "facts": record["identity"]["config"]["facts"]}
    run_diagnose(Job(config, inputs, tmp_path, print))
    ratios = read_trials(tmp_path / "trials.parquet")["value"]
    values = ratios.size * 16 * 4  # no fewer coordinates than this
    assert ratios.size >= 6 and abs(ratios.mean() - 1) < 5 * np.sqrt(5 / values)


# ---- ceilings and lanes of cells -----------------------------------------------------------------------------------

def test_the_ceiling_of_a_cell():
    rows = {"truth": np.array([0, 1, 2, 0, 1, 2]), "value": np.ones(6)}

    def ceiling_of(column, *more):
        return cells_of.ceiling_of({"id": column, "params": None}, *more)

    gaussian = {"kind": "gaussian", "mu": 1.5, "norm_clipped": True}
    one = ceiling_of("top1", gaussian, {"classes": 3, "clips_read": {"1": 6}}, rows)
    assert one == pytest.approx(norm.cdf(norm.ppf(1 / 3) + 0.75), abs=1e-9)
    mixed = ceiling_of("top1", gaussian, {"classes": 3, "clips_read": {"1": 3, "4": 3}}, rows)
    assert mixed == pytest.approx((one + norm.cdf(norm.ppf(1 / 3) + 1.5)) / 2, abs=1e-9)
    pure = ceiling_of("fer", {"kind": "pure", "epsilon": 1.0}, {"classes": 3, "clips_read": {"1": 6}}, rows)
    assert pure == pytest.approx(math.e / (math.e + 2), abs=1e-9)
    assert ceiling_of("top1", None, {"classes": 3, "clips_read": {"1": 6}}, rows) is None
    assert ceiling_of("psnr_released", gaussian, {"clips_read": {"1": 6}}, rows) is None


def test_only_a_clip_claim_bounds_who_is_who(work):
    assert loss_of(known_facts(Spec("dp_pix"), work)) is None
    assert loss_of(known_facts(Spec("dp_latent"), work))["norm_clipped"]
    assert cell(work, "dp_pix", "plr")["ceiling"] is None and cell(work, "dp_latent", "plr")["ceiling"] > 1 / 3


def test_without_green_isolation_a_claim_is_merely_declared():
    assert cells_of._lane("enforced", {"level": 2}) == "enforced" == cells_of._lane("enforced", None)
    assert cells_of._lane("enforced", {"level": 5}) == "declared" and cells_of._lane("none", {"level": 5}) == "none"


def test_a_users_own_video_leaves_as_the_noisy_crop_with_its_card(cli, tmp_path):
    frames = np.random.default_rng(3).integers(0, 255, (20, 72, 96, 3)).astype(np.uint8)
    video_io.write_lossless(tmp_path / "own.mkv", frames, 25)
    outs = []
    for name in ("a.mkv", "b.mkv"):
        answer = cli("release", "dp_pix", tmp_path / "own.mkv", "-o", tmp_path / name, "--lossless")
        assert answer.code == 0, answer.err
        outs.append(video_io.read(tmp_path / name))
    assert outs[0].frames.shape == (20, 64, 64, 3) and not np.array_equal(outs[0].frames, outs[1].frames)  # no seed
    for said in ("2 clips of 16", "epsilon = 16", "No face was found in 2 of 2"):
        assert said in answer.out
    assert (outs[0].frames[0, :8, :8] == outs[0].frames[0, 0, 0]).all()  # a cell of 8 x 8 is one colour
    short = cli("release", "dp_pix", tmp_path / "nosuch.mkv", "-o", tmp_path / "c.mkv")
    assert short.code == 2 and not (tmp_path / "c.mkv").exists()
