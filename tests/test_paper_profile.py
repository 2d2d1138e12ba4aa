"""The paper profile: what needs no published network runs, everything else says which weights are missing."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from conftest import start
from safetensors.torch import save_file

from bench import Context, Pair, Sample, Video, registry, seeds, store, weights
from bench.errors import WeightsMissing
from bench.nets.image import frame_classifier
from bench.run import suite

SUITE = """
title = "Paper-sized networks on blocks"
dataset = "blocks"
methods = ["original"]
attacks = ["plr", "recover_rvrt"]
metrics = ["psnr_released", "fer@x3d"]
via = ["psnr_recovered"]
profile = "paper"
canvas_px = 64
"""

pytestmark = pytest.mark.usefixtures("one_thread")


def test_without_published_weights_a_cell_says_so_and_the_rest_is_measured(tmp_path):
    (tmp_path / "paper.toml").write_text(SUITE, encoding="utf-8")
    run = start("run", tmp_path / "paper.toml", "--workdir", tmp_path / "runs", "--jobs", 2, cwd=tmp_path)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, f"{out}\n{err}"
    cells = store.read_cells(tmp_path / "runs" / "veilbench.duckdb")
    found = {(c["method"], c["attack"] or c["metric"]): c["status"] for c in cells}
    for method in ("original",):
        assert found[method, "psnr_released"] == "ok"
        assert found[method, "plr"] == "weights missing: resnet50"
        assert found[method, "psnr_recovered"] == "weights missing: rvrt"
        assert found[method, "fer"].startswith("weights missing: ")
    assert {c["profile"] for c in cells} == {"paper"}
    assert all(c["value"] is None for c in cells if c["status"] != "ok")


def test_the_canvas_follows_the_profile(tmp_path):
    path = tmp_path / "s.toml"
    for profile, side in (("tiny", 64), ("paper", 256)):
        text = f"title = 'x'\ndataset = 'blocks'\nmethods = ['original']\nprofile = '{profile}'\n"
        path.write_text(text, encoding="utf-8")
        assert suite.load(str(path)).canvas_px == side
    path.write_text(SUITE, encoding="utf-8")
    assert suite.load(str(path)).canvas_px == 64


def context():
    return Context(rng=lambda *n: seeds.derive(1, *n), torch_seed=lambda *n: seeds.derive_torch(1, *n),
                   report=lambda text: None, profile="paper")


def brought(tmp_path, monkeypatch, name, tensors):
    """The weights lie where a user would put them."""
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    save_file(tensors, tmp_path / f"{name}.safetensors")
    sha256 = hashlib.sha256((tmp_path / f"{name}.safetensors").read_bytes()).hexdigest()
    (tmp_path / "weights.json").write_text(json.dumps({name: sha256}), encoding="utf-8")


def test_the_frame_attacker_starts_from_the_weights_that_were_brought(tmp_path, monkeypatch):
    samples = [Sample(Video(seeds.derive(2, i).integers(0, 256, (2, 32, 32, 3)).astype("uint8")), person=i, label=0)
               for i in range(2)]
    attack = registry.get("attacks", "plr")(epochs=1, frames_per_video=1)
    with pytest.raises(WeightsMissing, match="resnet50"):
        attack.fit(samples, 2, {}, context())
    start = {name: tensor + 0.5 if tensor.is_floating_point() else tensor
             for name, tensor in frame_classifier("resnet50", 7).state_dict().items()}
    brought(tmp_path, monkeypatch, "resnet50", start)
    monkeypatch.setattr("bench.nets.attackers.train_classifier", lambda *a, **k: None)
    attack.fit(samples, 2, {}, context())
    assert torch.equal(attack.model.state_dict()["layer4.2.conv3.weight"], start["layer4.2.conv3.weight"])
    assert attack.model.state_dict()["fc.weight"].shape == (2, 2048)  # a classifier of its own


def test_recovery_in_the_paper_profile_needs_its_weights():
    pair = Pair(Video(seeds.derive(2, "p").integers(0, 256, (2, 32, 32, 3)).astype("uint8")), ())
    with pytest.raises(WeightsMissing, match="rvrt"):
        registry.get("attacks", "recover_rvrt")().fit([pair], {}, context())
