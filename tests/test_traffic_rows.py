"""Rows of the traffic track that publish pictures or answer queries: what they read, whom they protect."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from test_traffic import episodes, fitted, released

from bench import PluginError, registry, seeds
from bench.data.camera.experts import Reading
from bench.privacy.accounting import price
from bench.privacy.contract import CHUNK_STEPS, full_claim
from bench.privacy.windows import clip_chunks
from bench.run.suite import load
from bench.traffic import CHUNK_S, EXPERTS, columns, windows

# ---- privid_style ----


@pytest.mark.parametrize("rho", [0.5, 2.0, 2.5, 6.0])
def test_a_segment_touches_no_more_chunks_than_the_policy_counts(rho):
    """All places at which a segment of rho seconds can begin inside a chunk, a hundredth of a second apart."""
    touched = max(int((start + rho - 1e-9) // CHUNK_S) + 1 for start in np.arange(0, CHUNK_S, 0.01))
    method = registry.get("methods", "privid_style")(rho_s=rho)
    assert method.changed == 1 + ceil(rho / CHUNK_S) == touched
    assert registry.get("methods", "privid_style")(rho_s=rho, segments=3).changed == 3 * touched


def test_each_component_is_a_query_with_its_own_range_and_share():
    """Scale of a query on the sum: C N / (epsilon / d), in steps; only the asked expert is queried."""
    method = fitted("privid_style")
    made, public, _ = released(method)
    for expert in EXPERTS:
        scale = made.scales[expert.name]
        wanted = expert.cap * CHUNK_STEPS * 2 / (4 / expert.dim)
        asked = np.array(public["asked"]) == EXPERTS.index(expert)
        assert (scale[asked] == wanted).all() and np.isnan(scale[~asked]).all()


@pytest.mark.parametrize("name", ["privid_style", "privid_style@rho6", "privid_style@k2"])
def test_no_change_of_that_many_rows_moves_the_sums_further(name):
    """Random and extreme chunks instead of N of them: the L1 distance of the sums stays under the noise's reach."""
    method, rng = registry.build("methods", name), seeds.derive(1, "privid")
    steps = episodes(1)[:, :30]
    for k in range(200):
        other = steps.copy()
        rows = rng.choice(30, method.changed, replace=False)
        other[:, rows] = rng.integers(0, 400, (method.changed, 12)) * (rng.random((method.changed, 12)) < .5)
        if k == 0:
            steps[:, rows], other[:, rows] = 0, 400
        for branch in method.branches:
            both = [clip_chunks(s[..., columns(branch.name)] / CHUNK_STEPS, branch, CHUNK_STEPS)[0].sum(axis=1)
                    for s in (steps, other)]
            moved = np.abs(both[0] - both[1]).sum()
            assert moved <= branch.sensitivity * method.changed
            assert k or moved == branch.sensitivity * method.changed  # and is reached


def test_its_budget_belongs_to_time_or_adds_up():
    cost = {name: price(full_claim(registry.build("methods", name))) for name in ("privid_style", "privid_style@sum")}
    assert cost["privid_style"].epsilon_max == 4 and cost["privid_style"].epsilon_sum == 40
    assert cost["privid_style@sum"].epsilon_sum == 4


# ---- original_images ----

def test_pictures_are_reported_as_read_and_nothing_else_is():
    method = registry.build("methods", "original_images")
    exact = windows(episodes(2)) * (30 * CHUNK_STEPS)  # what passes in clear: whole sums
    transcripts = [{e.name: exact[k][:, columns(e.name)] for e in EXPERTS} for k in range(2)]
    shown = method.render(transcripts, {"from_video": True}, "assembled")
    np.testing.assert_array_equal(shown, windows(episodes(2)))
    assert method.lane == "none" and method.terms.unit == "none"
    for facts in ({}, {"from_video": False}):
        with pytest.raises(PluginError, match="exact fields"):
            method.render(transcripts, facts, "assembled")


def test_its_suite_says_that_it_has_20_episodes():
    suite = load("traffic-video")
    assert "original_images" in suite.methods and "20 test episodes" in suite.title
    assert suite.dataset == "crossing_video"
    from bench.data.crossing_video import CrossingVideo

    assert sum(e >= 400 for e in CrossingVideo.episodes) == 20
    assert not any("original_images" in load(name).methods for name in ("traffic-mini", "br-moe"))


def test_the_rendered_dataset_keeps_readings_and_truth_apart(tmp_path, monkeypatch):
    """What is prepared is what the experts said (here always the same), beside the exact counts."""
    from bench.data import crossing_video, streams

    monkeypatch.setattr(crossing_video.CrossingVideo, "episodes", (0, 400))
    true, said, told = crossing_video.exact, np.arange(12, dtype=np.int16), []
    monkeypatch.setattr(crossing_video, "exact", lambda e: true(e)[100:130])
    monkeypatch.setattr(crossing_video.render, "chunk", lambda e, k: None)
    monkeypatch.setattr(crossing_video, "read_chunk", lambda frames, camera: Reading(said, ("traffic",)))
    streams.write_streams(registry.build("datasets", "crossing_video"), None, 42, tmp_path, told.append)
    found = streams.Streams(tmp_path)
    assert found.from_video and found.steps.shape == (2, 30, 12)
    assert found.public.tolist() == [True, False]
    np.testing.assert_array_equal(found.truth(np.array([1]))[0], windows(true(400)[None, 100:130])[0])
    assert (found.steps == said).all() and told[0] == "episode 0: 30 chunks read"
    assert "failed in 60 chunks" in (tmp_path / "notes.json").read_text()
