"""What a fitted state says: read from the stages behind a cell, and from the source only while it is the same."""

from __future__ import annotations

import numpy as np
import pytest
from test_figures import stage

from bench import fitted, registry
from bench.privacy.claim_table import claim_to
from bench.privacy.contract import full_claim
from bench.registry import Spec
from bench.run.cache import WorkFolder, write_json
from bench.run.views import save_tensors

CELL = {"dataset": "blocks", "profile": "tiny", "method": "tadp", "variant": "a4", "score": "score"}


def folder(root, source, frames=8, **state) -> WorkFolder:
    """A score with the fit and the release behind it."""
    work = WorkFolder(root)
    fit = stage(work, "fit", "fit", {"method": "tadp", "variant": "a4"})
    record = work.read_stage("fit", "fit")
    record["identity"]["plugins"] = {"methods/tadp": source}
    write_json(fit / "stage.json", record)
    save_tensors(fit / "state.safetensors", {"clip.id": np.float64([0.5]), "clip.expr": np.float64([2.0]), **state})
    made = registry.build("methods", Spec("tadp", f"t{frames}"))
    facts = {"full_claim": claim_to(full_claim(made)), "branches": [b.as_dict() for b in made.branches]}
    stage(work, "enforced", "made", {"facts": facts}, {"fit": "fit"})
    stage(work, "score", "score", inputs={"trials:42": "made"})
    return work


def test_norms_come_from_the_state_and_t_from_the_claim(tmp_path):
    source = registry.source_digest("methods", "tadp")
    known = fitted.configurations(folder(tmp_path, source), [CELL, {**CELL, "score": "gone"}])
    one = known["blocks", "tiny", "tadp", "a4"]
    assert one.clip_norm == {"id": 0.5, "expr": 2.0} and one.frames == 8
    rho = 1.666030598**2 / 2  # R of epsilon 8, .3 of it in identity: s = C sqrt(2 T / (rho_b R))
    assert one.s_min == pytest.approx({"id": 0.5 * (16 / (0.3 * rho)) ** 0.5, "expr": 2 * (16 / (0.7 * rho)) ** 0.5})
    assert one.temperature == 0.1  # of the variant a4


def test_a_state_goes_before_the_source_and_a_changed_source_says_nothing(tmp_path):
    told = folder(tmp_path / "a", "0" * 64, temperature=np.float64([0.7]))
    assert fitted.configurations(told, [CELL])["blocks", "tiny", "tadp", "a4"].temperature == 0.7
    silent = folder(tmp_path / "b", "0" * 64)
    assert fitted.configurations(silent, [CELL])["blocks", "tiny", "tadp", "a4"].temperature is None
    assert fitted.configurations(silent, [{**CELL, "score": "gone"}]) == {}


def test_arguments_are_defaults_changed_by_the_variant():
    text = ("@other('m')\nclass X:\n    def __init__(self, *, a=9): ...\n\n"
            "@method('n')\nclass N:\n    variants = {'v': {'b': 3}}\n    def __init__(self, *, a=1, b=2, c=f()): ...\n")
    assert fitted.arguments(text, "n", "v") == {"a": 1, "b": 3}
    assert fitted.arguments(text, "n", None) == {"a": 1, "b": 2}
