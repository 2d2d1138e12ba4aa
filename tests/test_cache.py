"""The work folder: one writer, whole stages or none, and digests that follow everything that makes a number."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import SUITE, environment

from bench import registry
from bench.errors import WorkFolderError
from bench.run import plan as planning
from bench.run import stages, suite
from bench.run.cache import LOG_TAIL_LINES, WorkFolder, canonical, digest_json, write_json
from bench.run.plan import Request, make_plan
from bench.run.stages import Stage


@pytest.fixture
def work(tmp_path):
    return WorkFolder(tmp_path / "work")


def committed(work, kind, digest, **record):
    made = work.root / "tmp" / digest
    made.mkdir(parents=True)
    (made / "out.txt").write_text(digest)
    return work.commit(kind, digest, made, {"digest": digest, **record})


def test_the_digest_is_of_sorted_canonical_json():
    assert canonical({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    assert digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1}) != digest_json({"a": 2, "b": 1})


def test_a_stage_appears_whole(work):
    with work.open_for_writing():
        assert not work.is_done("clips", "d" * 64)
        target = committed(work, "clips", "d" * 64, title="t")
    assert target == work.stage("clips", "d" * 64) and (target / "out.txt").read_text() == "d" * 64
    assert work.is_done("clips", "d" * 64) and work.read_stage("clips", "d" * 64)["title"] == "t"
    (target / "stage.json").unlink()
    assert not work.is_done("clips", "d" * 64)


def test_a_commit_that_cannot_rename_leaves_the_stage_undone(work, monkeypatch):
    def full(*paths):
        raise OSError(28, "No space left on device")

    with work.open_for_writing():
        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(OSError, match="No space"):
            committed(work, "clips", "e" * 64)
        assert not work.is_done("clips", "e" * 64) and not list((work.root / "stages").rglob("stage.json"))


def test_what_a_killed_run_left_is_cleared_and_finished_stages_stay(work):
    with work.open_for_writing():
        committed(work, "clips", "f" * 64)
        (work.root / "tmp" / "half").mkdir()
        (work.root / "tmp" / "half" / "stage.json.part").write_text("{")
    with work.open_for_writing():
        assert list((work.root / "tmp").iterdir()) == [] and work.is_done("clips", "f" * 64)


def test_there_is_one_writer(work):
    with work.open_for_writing():
        with pytest.raises(WorkFolderError, match=f"in use by process {os.getpid()}"):
            with work.open_for_writing():
                pass
    with work.open_for_writing():
        pass


def test_the_lock_of_a_dead_process_does_not_hold(work):
    code = ("import os, sys; from pathlib import Path; from bench.run.cache import WorkFolder\n"
            "with WorkFolder(Path(sys.argv[1])).open_for_writing(): os._exit(9)")
    assert subprocess.run([sys.executable, "-c", code, str(work.root)], env=environment()).returncode == 9
    with work.open_for_writing():
        assert (work.root / "lock").read_text() == str(os.getpid())


def test_a_folder_that_cannot_be_written_is_a_clear_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkFolderError, match="cannot be written"):
        with WorkFolder(tmp_path / "file" / "work").open_for_writing():
            pass


def test_json_is_written_aside(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "x.json"
    write_json(path, {"a": 1})

    def broken(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}


def test_the_log_tail_is_the_end(work):
    path = work.log("fit", "a" * 64)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n".join(b"line %d" % i for i in range(100)) + b"\n\xff")
    tail = work.log_tail("fit", "a" * 64)
    assert len(tail) == LOG_TAIL_LINES and tail[-2] == "line 99" and work.log_tail("fit", "b" * 64) == []


# ---- digests -------------------------------------------------------------------------------------------------------

FACTS = {"lane": "none", "needs": [], "assets": [], "fits": False, "control": None, "doc": "",
         "variants": [], "memory_between_clips": False,
         "claim": {"unit": "none", "adjacency": "none", "horizon": "none", "delta": 0.0, "epsilon": "inf"}}


@pytest.fixture
def digests(monkeypatch, work):
    """Digest of every stage of a plan by its title; facts are given, so that no worker starts."""
    monkeypatch.setattr(planning, "known_facts", lambda spec, work: FACTS)

    def plan(changes=None, **request) -> dict[str, str]:
        chosen = suite.load(str(SUITE)).model_copy(update=changes or {})
        found = {}
        for stage in make_plan(Request(chosen, **request), work).stages:
            assert stage.title not in found, "two stages of one title"
            found[stage.title] = stage.digest
        return found

    return plan


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {title for title in before if before[title] != after.get(title)}


def test_no_two_stages_share_an_entry(digests):
    found = digests()
    assert len(set(found.values())) == len(found) == 35
    assert digests() == found


def test_a_method_shares_nothing_with_its_variants_or_others(digests):
    found = digests({"methods": ["blur", "blur@2", "blur@8", "pixelate"]})
    for kind in ("release", "train plr on", "attack plr_static on", "metric psnr_released on"):
        mine = [d for t, d in found.items() if t.startswith(kind)]
        assert len(mine) == len(set(mine)) == 4


def test_the_seed_changes_all_that_draws_with_it(digests):
    before, after = digests(), digests({"seeds": [43]})
    kept = {t for t in before if before[t] == after[t]}  # seeds are the attackers': data, assets and releases stay
    assert kept == {"prepare blocks", "prepare blocks_public", "asset identity_eval", "asset expression_eval"} | {
        t for t in before if t.startswith("release ")}
    assert changed(before, digests({"data_seed": 43})) == set(before)


def test_a_budget_changes_the_stages_behind_it(digests):
    base = suite.load(str(SUITE)).budget
    before = digests()
    plr = changed(before, digests({"budget": {**base, "plr": {"epochs": 4}}}))
    assert plr == {t for t in before if "plr on" in t}
    asset = changed(before, digests({"budget": {**base, "expression_eval": {"epochs": 9}}}))
    assert asset == {t for t in before if "fer@x3d on" in t} | {"asset expression_eval"}


@pytest.mark.parametrize("changes, kept", [
    ({"canvas_px": 32}, set()), ({"title": "other", "seconds": {"clips": 3.0}}, None),
    ({"draws": 2}, None)])  # without noise one release is all there is
def test_what_is_released_changes_what_is_measured(digests, changes, kept):
    before = digests()
    after = digests(changes)
    assert changed(before, after) == (set() if kept is None else set(before) - kept)


def test_the_source_of_a_plugin_changes_its_stages_only(digests, monkeypatch):
    before, real = digests(), registry.source_digest
    for kind, name, expected in (("methods", "blur", "on blur@2"), ("attacks", "plr", "plr on"),
                                 ("metrics", "psnr_released", "psnr_released on")):
        monkeypatch.setattr(registry, "source_digest", lambda k, n, w=(kind, name): "x" if (k, n) == w else real(k, n))
        expected_titles = {t for t in before if expected in t} | ({"release blur@2"} if name == "blur" else set())
        assert changed(before, digests()) == expected_titles
    monkeypatch.setattr(registry, "source_digest", lambda k, n: "x" if n == "blocks" else real(k, n))
    assert {t for t in before if t not in changed(before, digests())} == {
        "prepare blocks_public", "asset identity_eval", "asset expression_eval"}


def test_the_code_of_a_stage_changes_it_and_what_follows(digests, monkeypatch):
    before, real = digests(), stages.code_digest
    monkeypatch.setattr(stages, "code_digest", lambda kind: "x" if kind == "score" else real(kind))
    assert changed(before, digests()) == {t for t in before if t.startswith("score ")}


def test_the_files_of_a_root_are_part_of_the_digest(digests, tmp_path):
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "1.mkv").write_bytes(b"1")
    os.utime(root / "a" / "1.mkv", (1, 1))
    changes = {"dataset": "videofolder", "metrics": [], "attacks": ["plr"], "methods": ["blur"]}
    before = digests(changes, root=root)["prepare videofolder"]
    assert digests(changes, root=root)["prepare videofolder"] == before
    os.utime(root / "a" / "1.mkv", (2, 2))
    touched = digests(changes, root=root)["prepare videofolder"]
    (root / "a" / "2.mkv").write_bytes(b"2")
    assert len({before, touched, digests(changes, root=root)["prepare videofolder"]}) == 3


def test_stages_with_the_same_identity_are_one_stage():
    def make(title):
        return Stage("clips", title, {"dataset": "blocks"}, {}, (("datasets", "blocks"),), seconds=len(title))

    first, second = make("a"), make("bb")
    assert first.digest == second.digest
    both = Stage("asset", "x", {}, {"clips": first, "more": second})
    assert [s.kind for s in both.all()] == ["clips", "asset"]


def test_a_folder_in_use_says_so(tmp_path):
    work = WorkFolder(tmp_path / "w")
    assert not work.in_use()
    with work.open_for_writing():
        assert work.in_use()
    assert not work.in_use()
