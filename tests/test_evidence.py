"""What stands behind a claim on the board, and when a row loses it."""

from __future__ import annotations

import json
import math

import pytest

from bench.run.cache import WorkFolder
from bench.run.evidence import behind, claim_rows, withdrawn

CELL = {"method": "shy", "variant": None, "lane": "enforced", "unit": "clip", "adjacency": "replace",
        "horizon": "1 clip of 16 frames", "delta": 1e-5, "epsilon": 8.0, "ceiling": 0.4, "value": 0.3, "text": None}


def finished(work: WorkFolder, kind: str, name: str, source: str, files: dict) -> None:
    folder = work.root / "stages" / kind / name
    for path, value in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(value))
    record = {"finished": 1.0, "identity": {"plugins": {"methods/shy": source}}}
    (folder / "stage.json").write_text(json.dumps(record))


@pytest.fixture
def work(tmp_path) -> WorkFolder:
    work = WorkFolder(tmp_path)
    finished(work, "enforced", "a", "source 1", {"release/release.json": {
        "method": "shy", "variant": None, "isolation": {"level": 2}, "noise": "seeded"}})
    return work


def audit(refuted: bool) -> dict:
    return {"audit.json": {"method": "shy", "variant": None, "refuted": refuted, "bound": 9.5,
                           "claim": {"epsilon": 8.0}, "n": 4000}}


@pytest.mark.parametrize("source, refuted, stays", [("source 1", True, False), ("source 1", False, True),
                                                    ("source 0", True, True)])
def test_a_refuted_claim_leaves_the_formal_section(work, source, refuted, stays):
    finished(work, "audit", "b", source, audit(refuted))
    row = withdrawn(CELL, behind(work))
    if stays:
        assert row == CELL
    else:
        assert (row["lane"], row["unit"], row["epsilon"], row["ceiling"]) == ("none", "none", math.inf, None)
        assert "4000 releases show epsilon above 9.5, claimed 8" in row["text"] and row["value"] == 0.3


def test_claims_carry_isolation_noise_and_audit(work):
    finished(work, "audit", "b", "source 1", audit(False))
    (row,) = claim_rows([CELL, CELL], behind(work))
    assert json.loads(row["isolation"]) == {"level": 2} and json.loads(row["noise"]) == "seeded"
    assert json.loads(row["audit"])["bound"] == 9.5 and "source" not in json.loads(row["audit"])
    (bare,) = claim_rows([{**CELL, "method": "other"}], behind(work))
    assert bare["isolation"] is None and bare["audit"] is None
