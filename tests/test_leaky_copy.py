"""A copy of TADP whose identity branch leaves in clear, under the claim of the true one: what catches it.

The harness prices a branch without noise to infinity, so no registered method can make such a claim. The rows are
written by hand as an import of another machine would bring them, and the board must say that they exceed the claim.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from bench import exchange, registry, seeds, store
from bench.board import SiteData, build_site
from bench.privacy.accounting import price
from bench.privacy.bits import SeededBits
from bench.privacy.claim_table import claim_to
from bench.privacy.contract import full_claim
from bench.privacy.mechanism import clip_rows, run_streams
from bench.publish import site_data
from bench.ranking import unranked_reason
from bench.run.cache import WorkFolder, write_json
from bench.run.cells import measured_cells
from bench.run.enforced import loss_of, short_claim
from bench.run.trials import Trial, public_numbers, read_trials, write_trials
from bench.views import boards
from methods.tadp import TADP

PEOPLE, VIDEOS, FRAMES = 9, 6, 16  # half of the videos are enrolled
NOBODY = {"unit": "none", "adjacency": "none", "horizon": "none", "epsilon": "inf", "delta": 0.0}


class Leaky(TADP):
    """TADP, its identity branch in clear."""

    def __init__(self):
        super().__init__(adaptive=False)
        self.branches = tuple(replace(b, noise=None, floor=None) if b.name == "id" else b for b in self.branches)


def features(dim: int) -> dict[str, np.ndarray]:
    """Rows as long as the clip norm, {branch: (people videos, frames, dim)}: who it is, and an expression of chance."""
    rng = seeds.derive(1, "faces")
    person = rng.normal(size=(PEOPLE, 1, 1, dim)) + 0.1 * rng.normal(size=(PEOPLE, VIDEOS, FRAMES, dim))
    rows = {"id": person, "expr": rng.normal(size=(PEOPLE, VIDEOS, 1, dim)) * np.ones((FRAMES, 1))}
    return {b: (v / np.linalg.norm(v, axis=-1, keepdims=True)).reshape(-1, FRAMES, dim) for b, v in rows.items()}


def released(method: TADP) -> np.ndarray:
    """What the trusted loop publishes of identity, mean over the frames of each video, (people, videos, dim)."""
    rows = features(method.branches[0].dim)
    values = {b.name: np.stack([clip_rows(r, b, FRAMES)[0] for r in rows[b.name]]) for b in method.branches}
    out = run_streams(values, method.branches, lambda t, past, memory: method.plan(t, past, memory, {}),
                      SeededBits(seeds.derive(2, "noise"))).released
    return out["id"].mean(axis=1).reshape(PEOPLE, VIDEOS, -1)


def named(seen: np.ndarray) -> list[Trial]:
    """Trials of an attacker who knows the mean of each person's enrolled releases and takes the nearest."""
    known, number = seen[:, ::2].mean(axis=1), public_numbers([str(p) for p in range(PEOPLE)], 42, "people")
    rows = []
    for person in range(PEOPLE):
        for k, probe in enumerate(seen[person, 1::2]):
            guess = int(np.linalg.norm(known - probe, axis=1).argmin())
            rows.append(Trial("top1", number[str(person)], 1 + VIDEOS * person + k, 0, 0, 42, float(guess == person),
                              person, guess))
    return rows


def row(work: WorkFolder, name: str, trials: list[Trial], claim: dict, **more) -> None:
    """A score and its trials, as a run leaves them in the work folder."""
    config = {"method": name, "variant": None, "dataset": "synthfaces_demo", "profile": "tiny", "lane": "none",
              "claim": claim, "control": None, "attack": "plr", "evaluator": None, "via": "direct", "draws": 1,
              "seeds": [42], "loss": None, "suite": "demo", "plugins": {}, "decoding": "assembled", "digest": "ab" * 32,
              "columns": [asdict(c) for c in registry.get("attacks", "plr").columns], **more}
    result = {"chance": 1 / PEOPLE, "classes": PEOPLE, "people": PEOPLE, "clips_read": {"1": len(trials)}}
    for kind, digest, inputs in (("attack", f"attack-{name}", {}), ("score", name, {"trials:42": f"attack-{name}"})):
        folder = work.stage(kind, digest)
        folder.mkdir(parents=True)
        write_json(folder / "stage.json", {
            "kind": kind, "digest": digest, "title": kind, "seconds": 1.0, "peak_mb": 1.0, "finished": 1.0,
            "environment": {"packages": {}}, "identity": {"config": config, "inputs": inputs, "plugins": {}}})
    path = work.stage("attack", f"attack-{name}") / "trials.parquet"
    write_trials(path, trials)
    made = measured_cells(config, read_trials(path), result, "0123456789")
    write_json(work.stage("score", name) / "cells.json", made)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> WorkFolder:
    """A work folder with its database: controls, TADP, and the copy with the claim of TADP."""
    honest = TADP(adaptive=False)
    facts = {"full_claim": claim_to(full_claim(honest))}
    claim = {"claim": short_claim(facts), "loss": loss_of(facts), "lane": "enforced"}
    work, seen = WorkFolder(tmp_path_factory.mktemp("leaky")), released(honest)
    row(work, "original", [replace(t, value=1.0) for t in named(seen)], NOBODY, control="positive")
    row(work, "blackout", [replace(t, value=1 / PEOPLE) for t in named(seen)], NOBODY, control="negative")
    row(work, "honest", named(seen), **claim)
    row(work, "leaky", named(released(Leaky())), **claim)
    store.rebuild(work, work.root / "veilbench.duckdb")
    assert store.check(work, work.root / "veilbench.duckdb") == []
    return work


@pytest.fixture(scope="module")
def cells(work) -> dict:
    """{method: its cell}, read back from the database."""
    return {c["method"]: c for c in store.read_cells(work.root / "veilbench.duckdb")}


def test_the_contract_prices_the_copy_to_infinity():
    assert price(full_claim(Leaky())).epsilon == math.inf and loss_of(
        {"full_claim": claim_to(full_claim(Leaky()))}) is None
    assert price(full_claim(TADP(adaptive=False))).epsilon == pytest.approx(8, rel=1e-6)


def test_the_copy_exceeds_the_ceiling_and_the_true_one_does_not(cells):
    ceiling = cells["leaky"]["ceiling"]  # Theorem 8: Phi(Phi^-1(1 / 9) + 1.666 / 2)
    assert ceiling == pytest.approx(0.3491, abs=1e-3) and ceiling == cells["honest"]["ceiling"]
    assert cells["leaky"]["value"] == 1.0 and cells["leaky"]["lo"] > ceiling
    assert cells["honest"]["lo"] <= ceiling and "exceeds" not in unranked_reason(cells["honest"])
    assert "exceeds its own claim" in unranked_reason(cells["leaky"])


def test_a_column_that_never_ranks_is_flagged_all_the_same(cells):
    assert "exceeds its own claim" in unranked_reason({**cells["leaky"], "role": "descriptive", "better": "none"})
    assert unranked_reason({**cells["honest"], "role": "descriptive"}) == "descriptive: never ranked"


def test_an_import_of_another_machine_is_flagged_too(work, tmp_path):
    exchange.export(work.root / "veilbench.duckdb", tmp_path / "export")
    other = WorkFolder(tmp_path / "other")
    (other.root / "stages").mkdir(parents=True)
    exchange.import_folder(other, tmp_path / "export")
    store.rebuild(other, other.root / "veilbench.duckdb")
    found = {c["method"]: unranked_reason(c) for c in store.read_cells(other.root / "veilbench.duckdb")}
    assert "exceeds its own claim" in found["leaky"] and found["honest"] == ""
    build_site(site_data(other, other.root / "veilbench.duckdb", tmp_path / "pictures"), tmp_path / "site")
    page = (tmp_path / "site" / "methods" / "honest.html").read_text(encoding="utf-8")
    assert "these numbers were imported" in page and "licence of this dataset" not in page


def test_the_board_and_the_site_flag_it(cells, tmp_path):
    section = next(s for b in boards(cells.values()) for s in b["sections"] if s["lane"] == "enforced")
    view = {line["name"]: line["cells"][0] for line in section["rows"]}
    assert view["leaky"]["exceeds"] and view["leaky"]["rank"] == "" and "exceeds" in view["leaky"]["reason"]
    assert not view["honest"]["exceeds"] and view["honest"]["rank"] == "1" and not view["honest"]["reason"]
    build_site(SiteData(list(cells.values())), tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert text.count("exceeds its own claim: the interval lies beyond") == 1 and "note alarm" in text
