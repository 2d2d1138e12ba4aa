"""What `veilbench release` says of a method with a claim: which state it takes, why a crop, what was padded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_figures import stage

from bench import registry
from bench.errors import ConfigError
from bench.privacy.accounting import price
from bench.privacy.contract import full_claim
from bench.registry import Spec
from bench.releasing import _card_of, _fitted
from bench.run.cache import WorkFolder, write_json
from bench.run.clip_release import ClipReleaseReport

TADP = Spec("tadp")


def fit(work: WorkFolder, digest: str, source: str, finished: float, variant=None) -> Path:
    folder = stage(work, "fit", digest, {"method": "tadp", "variant": variant})
    record = work.read_stage("fit", digest)
    record["identity"]["plugins"] = {"methods/tadp": source}
    write_json(folder / "stage.json", {**record, "finished": finished})
    return folder / "state.safetensors"


def test_the_newest_state_of_the_code_that_is_here_is_taken(tmp_path):
    work, source = WorkFolder(tmp_path), registry.source_digest("methods", "tadp")
    with pytest.raises(ConfigError, match="learns from development people first"):
        _fitted(work, TADP)
    fit(work, "old", "0" * 64, 9.0)
    with pytest.raises(ConfigError, match="another version of its code"):
        _fitted(work, TADP)
    fit(work, "first", source, 1.0)
    newest = fit(work, "second", source, 2.0)
    fit(work, "eps2", source, 3.0, "eps2")
    assert _fitted(work, TADP) == newest
    with pytest.raises(ConfigError, match="tadp@eps16 is not fitted"):
        _fitted(work, Spec("tadp", "eps16"))


def card(variant: str | None, frames: int, clips: int, centre: int = 0) -> str:
    claim = replace(full_claim(registry.build("methods", Spec("tadp", variant))), clips=clips, horizon="")
    done = ClipReleaseReport(frames, clips, centre, claim, price(claim), None, claim.frames)
    return "\n".join(_card_of(done, Spec("tadp", variant), Path("out.mkv"), "noise"))


def test_a_crop_says_why_and_counts_clips_of_its_own_length():
    said = card(None, 40, 3)
    assert "40 frames, 3 clips of 16; the face crop alone, because nothing outside it would be covered" in said
    assert "No face" not in said and "fewer than one clip" not in said and "3 clips of 16 frames" in said
    assert "40 frames, 5 clips of 8" in card("t8", 40, 5)


def test_a_source_shorter_than_a_clip_is_padded_and_says_so():
    said = card(None, 9, 1)
    assert "has 9 frames, fewer than one clip" in said and "up to 16, the claim counts all of them" in said


def test_a_source_without_a_face_says_what_was_released_instead():
    assert "No face was found in 1 of 3 clips: the centre of the picture" in card(None, 40, 3, 1)
    assert "need not show one" in card(None, 40, 3, 3) and "need not show one" not in card(None, 40, 3, 1)
