"""Shipped networks: verified before use, of the architecture that reads them, and only under their own recipe."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from bench import registry, weights
from bench.asset_list import ASSETS
from bench.errors import DataError
from bench.nets.architectures import architecture
from bench.nets.coders import ClipCoder, FrameAutoencoder, FrameCoder
from bench.nets.image import frame_classifier
from bench.nets.video import SIZES, x3d
from bench.run import suite as suites
from bench.run.plan import asset_stage

NAMES = sorted(weights.shipped())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(weights.FOLDER, tmp_path / "shipped")
    monkeypatch.setattr(weights, "FOLDER", tmp_path / "shipped")
    return tmp_path / "shipped"


def test_evaluation_networks_and_those_of_tadp_are_shipped_and_all_are_as_their_digests_say():
    evaluate = {"clip_identity_eval", "expression_eval", "feature_eval", "identity_eval"}
    assert set(NAMES) == evaluate | set(registry.get("methods", "tadp").assets)
    assert set(NAMES) <= set(ASSETS)
    assert weights.check() == []


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_or_missing_file_is_refused(folder, name):
    path = folder / f"{name}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="SHA-256"):
        weights.verified(name)
    path.unlink()
    with pytest.raises(DataError, match="version control"):
        weights.verified(name)
    assert len(weights.check()) == 1


MARKS = 2 * 57  # coordinates of landmarks that the coders of expressions learn beside


@pytest.mark.parametrize("name, build", [("identity_eval", lambda: frame_classifier("resnet10t", 24)),
                                         ("clip_identity_eval", lambda: architecture("clip_vit", 24)),
                                         ("feature_eval", lambda: frame_classifier("resnet10t", 66)),
                                         ("expression_eval", lambda: x3d(6, SIZES["tiny"])),
                                         ("identity_code_method", lambda: FrameCoder(24)),
                                         ("expression_frame_method", lambda: FrameCoder(6, MARKS)),
                                         ("expression_code_method", lambda: ClipCoder(6, MARKS)),
                                         ("autoencoder_method", FrameAutoencoder)])
def test_shapes_fit_the_architecture_and_values_are_finite(name, build):
    model = build()
    arrays = load_file(weights.verified(name))
    beside = {k: arrays.pop(k) for k in ("codebook", "latent_mean", "latent_deviation") if k in arrays}
    assert all(np.isfinite(v).all() for v in beside.values())
    assert {k: tuple(v.shape) for k, v in model.state_dict().items()} == {k: v.shape for k, v in arrays.items()}
    model.load_state_dict({k: torch.from_numpy(v) for k, v in arrays.items()})
    assert all(torch.isfinite(v).all() for v in model.state_dict().values())


def test_another_data_seed_or_a_budget_trains_its_own():
    demo = suites.load("demo")
    shipped = json.loads((weights.FOLDER / "weights.json").read_text())
    given = asset_stage(demo, "identity_eval")
    assert given.config == {"asset": "identity_eval", "shipped": shipped["identity_eval"]}
    taken = registry.ROOT / "bench" / "run" / "stage_shipped.py"
    code = {p.name for p in registry.source_closure([taken])}
    assert given.kind == "shipped" and "assets.py" not in code, "the file counts, not the code that trained it"
    for changes in ({"data_seed": 7}, {"budget": {"identity_eval": {"epochs": 1}}}):
        stage = asset_stage(demo.model_copy(update=changes), "identity_eval")
        assert stage.kind == "asset" and "shipped" not in stage.config and set(stage.inputs) == {"clips"}
