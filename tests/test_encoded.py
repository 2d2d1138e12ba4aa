"""Rows of a suite that release the encoded clips of another row: planned once, checked on every release, refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import SUITE, start

from bench import budget_tables
from bench.errors import ConfigError
from bench.registry import Spec
from bench.run import suite
from bench.run.cache import WorkFolder
from bench.run.plan import Request, make_plan
from bench.run.suite_check import check
from bench.run.views import load_tensors
from bench.run.workers import method_facts

SHARED = 'encoded = { two_parts = ["two_parts@noisy"], dp_latent = ["dp_latent@eps4"] }\n'


@pytest.fixture(scope="module")
def finished(road, tmp_path_factory) -> tuple[WorkFolder, str]:
    """Two methods with one follower each: that of two_parts encodes as it does, that of dp_latent otherwise."""
    base = tmp_path_factory.mktemp("encoded")
    folder = Path(shutil.copytree(road, base / "work"))
    own = base / "shared.toml"
    text = SUITE.read_text(encoding="utf-8").replace('"blur@2"', '"two_parts", "two_parts@noisy", "dp_latent", '
                                                     '"dp_latent@eps4"')
    own.write_text(text.replace("\n[budget", f"{SHARED}\n[budget", 1), encoding="utf-8")
    run = start("run", own, "--workdir", folder, "--metric", "psnr_released", "--display", "plain", cwd=base)
    out, err = run.communicate(timeout=600)
    assert run.returncode == 1, f"{out}\n{err}"
    return WorkFolder(folder), out + err


def stages(work: WorkFolder, kind: str) -> dict[tuple[str, str | None], dict]:
    return {(r["identity"]["config"]["method"], r["identity"]["config"]["variant"]): r for r in work.finished(kind)}


def test_variants_that_differ_after_encode_are_encoded_once(finished):
    work, _ = finished
    assert set(stages(work, "encode")) == {("two_parts", None), ("dp_latent", None)}
    made = stages(work, "enforced")
    lead, follower = made["two_parts", None]["identity"], made["two_parts", "noisy"]["identity"]
    assert follower["inputs"]["encode"] == lead["inputs"]["encode"]
    assert follower["inputs"]["fit"] != lead["inputs"]["fit"], "each row keeps its own fitted state"
    assert follower["config"]["encoded_by"] == "two_parts" and "encoded_by" not in lead["config"]


def test_a_follower_draws_its_own_noise_on_the_shared_clips(finished):
    work, _ = finished
    noise = {}
    for variant in (None, "noisy"):
        folder = stages(work, "enforced")["two_parts", variant]["folder"]
        found = load_tensors(folder / "vault" / "residuals.safetensors")
        noise[variant] = found["residual:what"].astype(np.float64)
        assert set(np.unique(found["scale:what"])) == {0.02 if variant is None else 4.0}
    assert noise["noisy"].std() / noise[None].std() == pytest.approx(200, rel=0.1)
    assert abs(np.corrcoef(noise["noisy"].ravel(), noise[None].ravel())[0, 1]) < 0.1


def test_a_follower_that_encodes_otherwise_is_not_released(finished):
    work, said = finished
    assert "dp_latent@eps4 encodes a clip to other values than dp_latent" in said
    assert ("dp_latent", "eps4") not in stages(work, "enforced") and ("dp_latent", None) in stages(work, "enforced")
    assert [f["title"] for f in work.failures("enforced")] == ["release dp_latent@eps4"]


def test_encoding_counts_in_the_cost_of_every_row_that_releases_it(finished):
    work, _ = finished
    done = [record for kind in ("encode", "enforced") for record in work.finished(kind)]
    rows = [{**record, "identity": json.dumps(record["identity"])} for record in done]
    costs = budget_tables.release_costs(rows)
    encoding = stages(work, "encode")["two_parts", None]["seconds"]
    for variant in (None, "noisy"):
        own = stages(work, "enforced")["two_parts", variant]["seconds"]
        assert costs["two_parts", variant][0] == pytest.approx(own + encoding)


# ---- planned and refused -------------------------------------------------------------------------------------------

def test_tadp_encodes_once_for_all_rows_that_share_its_clips(tmp_path):
    asked = suite.load("tadp")
    plan = make_plan(Request(asked, methods=["tadp@a1", "tadp@t8"], metrics=["tlpips_adj@synth"]), WorkFolder(tmp_path))
    assert {s.title for s in plan.stages if s.kind == "encode"} == {"encode tadp", "encode tadp@t8"}
    followers = {name for names in asked.encoded.values() for name in names}
    frames = {"tadp@t8", "tadp@t32"}  # clips of another length are other clips
    assert followers == {m for m in asked.methods if m.startswith("tadp@")} - frames


@pytest.mark.parametrize("encoded, said", [
    ({"tadp": ["tadp@a9"]}, "'tadp@a9' in `encoded`, which is none of its rows.*tadp@a"),
    ({"tadp@eps4": ["tadp@a1"]}, "'tadp@eps4' in `encoded`, which is none of its rows"),
    ({"tadp": []}, "gives the encoded clips of 'tadp' to nobody"),
    ({"tadp": ["blur"]}, "gives 'blur' the encoded clips of 'tadp'.*Another method"),
    ({"tadp": ["tadp"]}, "lets 'tadp' both give and take"),
    ({"tadp": ["tadp@a1"], "tadp@a1": ["tadp@a2"]}, "lets 'tadp@a1' both give and take"),
    ({"tadp": ["tadp@a2"], "tadp@a1": ["tadp@a2"]}, "names 'tadp@a2' twice")])
def test_what_cannot_be_shared_is_refused_before_anything_runs(encoded, said):
    asked = suite.Suite(title="t", dataset="blocks", name="mine", encoded=encoded,
                        methods=["original", "blur", "tadp", "tadp@a1", "tadp@a2"])
    with pytest.raises(ConfigError, match=said):
        check(asked, [], [])


@pytest.mark.parametrize("row, lead, said", [
    ("tadp@t8", "tadp", "Its clips have 8 frames, those of tadp have 16.*'tadp@t8' out"),
    ("blur@2", "blur", "It has none: its lane is 'none'"),
    ("dp_pix@eps8", "dp_pix", None)])
def test_rows_whose_clips_are_of_another_kind_are_refused_before_anything_runs(tmp_path, row, lead, said):
    asked = suite.Suite(title="t", dataset="blocks", name="mine", encoded={lead: [row]}, methods=[lead, row],
                        metrics=["psnr_released"])
    variants = method_facts(Spec(lead))["variants"]
    if said is None:  # the same reader and clip length: whether the values agree is seen while it releases
        row = f"{lead}@{variants[0]}"
        asked = asked.model_copy(update={"encoded": {lead: [row]}, "methods": [lead, row]})
        plan = make_plan(Request(asked), WorkFolder(tmp_path))
        assert [s.title for s in plan.stages if s.kind == "encode"] == [f"encode {lead}"]
        return
    with pytest.raises(ConfigError, match=said):
        make_plan(Request(asked), WorkFolder(tmp_path))


def test_an_encoded_table_of_another_kind_says_what_fits(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("title = 't'\ndataset = 'blocks'\nmethods = ['tadp']\nencoded = ['tadp']\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="encoded is a table of lists"):
        suite.load(str(path))
