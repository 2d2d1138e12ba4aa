"""Stages in processes of their own: failures, siblings, interruption, killing, and running again."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest
from conftest import MENDABLE, SUITE, alive_after, descendants, start

from bench import registry, sources, store
from bench.run.cache import WorkFolder
from bench.run.executors import LocalExecutor
from bench.run.stages import Stage


@pytest.fixture
def work(tmp_path, plugins):
    folder = WorkFolder(tmp_path / "work")
    with folder.open_for_writing():
        yield folder


@pytest.fixture
def troubled(tmp_path):
    """A stage that prepares the dataset `troubled`; its fault stands in a file that the digest does not cover."""
    def make(fault: str, name: str = "") -> Stage:
        root = tmp_path / (name or re.sub(r"\W", "", fault))
        root.mkdir(exist_ok=True)
        (root / "fault").write_text(fault)
        return Stage("clips", f"prepare {root.name}", {"dataset": "troubled", "root": str(root), "seed": 1,
                                                       "canvas_px": 16}, {}, (("datasets", "troubled"),))
    return make


def run(work, stages, jobs=2):
    events = []
    outcome = LocalExecutor(work, jobs, events.append).run(stages)
    return outcome, [(e.what, e.stage.title) for e in events if e.what != "progress"]


def after(stage: Stage, title: str = "after") -> Stage:
    return Stage("score", title, {"columns": []}, {"trials:1": stage})


def test_a_finished_stage_is_whole_and_never_run_again(work, troubled):
    stage = troubled("none")
    outcome, events = run(work, [stage])
    assert outcome.done == {stage.digest} and events == [("started", stage.title), ("done", stage.title)]
    record = work.read_stage("clips", stage.digest)
    assert record["digest"] == stage.digest and record["title"] == "prepare none" and record["seconds"] > 0
    again, events = run(work, [stage])
    assert again.cached == {stage.digest} and events == [("cached", stage.title)] and not again.done
    assert work.read_stage("clips", stage.digest) == record and not list((work.root / "tmp").iterdir())


REASONS = {
    "disk": "the disk is full; nothing was kept of this stage. Free space", "bug": "RuntimeError: a bug",
    "diverged": "diverged: the loss became nan", "undefined": "one label only", "memory": "MemoryError",
    "exit": "ended with exit code 5", "kill": "killed (out of memory, or by hand)"}


@pytest.mark.parametrize("fault", REASONS)
def test_a_failed_stage_is_kept_with_reason_and_log_and_stops_no_sibling(work, troubled, fault):
    bad, good = troubled(fault), troubled("none", f"sibling{fault}")
    outcome, events = run(work, [bad, after(bad), good], jobs=1)
    assert REASONS[fault] in outcome.failed[bad.digest] and outcome.done == {good.digest}
    # what a dataset's fault says may name people and files: dependants, and so cells and pages, do not repeat it
    hidden = "the dataset could not be prepared; `veilbench status` says why"
    assert outcome.skipped == {after(bad).digest: hidden} and ("skipped", "after") in events
    record = json.loads(work.failure("clips", bad.digest).read_text())
    assert record["reason"] == outcome.failed[bad.digest] and record["undefined"] == (fault == "undefined")
    assert f"the fault is {fault}" in "\n".join(record["log_tail"]) or fault in ("exit", "kill")  # not flushed
    assert not work.is_done("clips", bad.digest) and not work.stage("clips", bad.digest).exists()
    skipped = json.loads(work.failure("score", after(bad).digest).read_text())
    assert skipped["skipped"] and skipped["undefined"] == (fault == "undefined") and skipped["log_tail"] == []


def test_a_user_error_is_told_as_it_is(work, troubled):
    stage = troubled("data")
    outcome, _ = run(work, [stage])
    assert "1 of 12 videos cannot be used: c1: These are no videos." in outcome.failed[stage.digest]


def test_a_mended_stage_succeeds_and_its_failure_is_forgotten(work, troubled):
    stage = troubled("disk", "mended")
    run(work, [stage, after(stage)])
    assert work.failure("clips", stage.digest).is_file()
    assert troubled("none", "mended").digest == stage.digest
    outcome, _ = run(work, [stage])
    assert outcome.done == {stage.digest} and not work.failure("clips", stage.digest).is_file()


def test_jobs_is_how_many_run_at_a_time(work, troubled):
    for jobs, expected in ((1, 1), (2, 2)):
        stages = [troubled(f"sleep 0.{jobs + 2}", f"jobs{jobs}{i}") for i in range(3)]
        running = most = 0
        for what, _ in run(work, stages, jobs)[1]:
            running += {"started": 1, "done": -1}[what]
            most = max(most, running)
        assert most == expected


def test_an_interrupt_ends_the_running_stages_and_keeps_the_finished(work, troubled):
    done, slow = troubled("none", "quick"), troubled("sleep 600")
    before = descendants(os.getpid())
    seen = {}

    def interrupt(event):
        if event.stage is slow and event.what == "started":
            time.sleep(1)
            seen["processes"] = descendants(os.getpid()) - before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalExecutor(work, 1, interrupt).run([done, slow])
    assert work.is_done("clips", done.digest) and not work.is_done("clips", slow.digest)
    stage_processes = {p for p in seen["processes"] if os.path.exists(f"/proc/{p[0]}")}
    keep = {p for p in stage_processes if _is_server(p[0])}
    assert not alive_after(stage_processes - keep, 10)


def _is_server(pid: int) -> bool:
    """The fork server and the resource tracker serve the whole test process."""
    parent = open(f"/proc/{pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()[1]
    return int(parent) == os.getpid()


# ---- the command ---------------------------------------------------------------------------------------------------

def release_running(run, work) -> set:
    """Wait until the release of faulty@slow is at work; returns the processes below the run."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and run.poll() is None:
        media = [p for p in (work / "tmp").glob("release-*/release/media/*.mkv")]
        if len(media) >= 2:
            return descendants(run.pid)
        time.sleep(0.1)
    pytest.fail(f"the release never began: {run.communicate(timeout=30)}")


def done_stages(work) -> set[str]:
    return {str(p.relative_to(work)) for p in work.glob("stages/*/*/stage.json")}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_loses_only_the_running_stage(copied, cli, how):
    before = done_stages(copied)
    run = start("run", SUITE, "--method", "faulty@slow", "--metric", "psnr_released", "--workdir", copied,
                cwd=copied.parent)
    try:
        processes = release_running(run, copied)
        assert len(processes) >= 3  # the fork server, the stage, its worker
        if how == signal.SIGKILL:
            second = cli("run", SUITE, "--workdir", copied)
            assert second.code == 2 and f"in use by process {run.pid}" in second.err
            assert "Traceback" not in second.err
        run.send_signal(how)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert not alive_after(processes, 15)
    assert run.returncode == (-9 if how == signal.SIGKILL else 130)
    assert "Traceback" not in err and (how == signal.SIGKILL or "Finished stages are kept" in err)
    assert before <= done_stages(copied) and not any("release-" in s for s in done_stages(copied) - before)
    again = cli("run", SUITE, "--metric", "psnr_released", "--workdir", copied, "--display", "plain")
    assert again.code == 0 and "0 stages run" in again.out and not list((copied / "tmp").iterdir())


def test_a_second_run_does_nothing_again(copied, cli):
    before = {p: p.stat().st_mtime_ns for p in copied.glob("stages/*/*/*") if p.is_file()}
    answer = cli("run", SUITE, "--workdir", copied, "--display", "plain")
    assert answer.code == 0 and re.search(r"0 stages run, 35 were there already, 0 failed", answer.out)
    assert {p: p.stat().st_mtime_ns for p in copied.glob("stages/*/*/*") if p.is_file()} == before


def test_a_failed_method_is_invalid_and_named_and_its_siblings_run(copied, cli):
    words = ("run", SUITE, "--method", "faulty@raises", "--method", "faulty@prints", "--method", "learner@diverges",
             "--metric", "psnr_released", "--workdir", copied)
    answer = cli(*words, "--display", "plain")
    assert answer.code == 1
    assert re.search(r"failed: release faulty@raises: .*ZeroDivisionError: the sum of nothing", answer.out)
    cells = {c["variant"]: c for c in store.read_cells(copied / "veilbench.duckdb") if c["method"] == "faulty"}
    assert cells["prints"]["status"] == "ok" and cells["prints"]["value"] > 0
    assert cells["raises"]["status"].startswith("invalid: ") and "sum of nothing" in cells["raises"]["status"]
    assert cells["raises"]["value"] is None and cells["raises"]["source"] == "measured"
    (cell,) = [c for c in store.read_cells(copied / "veilbench.duckdb") if c["method"] == "learner"]
    assert cell["status"].startswith("invalid: ") and "the loss became nan in epoch 1" in cell["status"]
    assert cell["value"] is None and "failed: fit learner@diverges" in answer.out
    status = cli("status", "--workdir", copied)
    assert "failed: release faulty@raises" in status.out and "faulty.py" in status.out
    assert "  | ZeroDivisionError: the sum of nothing" in status.out  # the end of its log is the method's own
    log = next(p for p in (copied / "logs").glob("release-*.log") if "spoken by the method" in p.read_text())
    assert "written past Python" in log.read_text()
    assert "invalid" in cli("table", "summary", "--workdir", copied).out


def forget() -> None:
    for cached in (registry.source_digest, sources._project_imports):
        cached.cache_clear()


def test_mending_the_plugin_makes_the_same_command_succeed_and_old_numbers_go_stale(copied, cli, plugins):
    words = ("run", SUITE, "--method", "mendable", "--metric", "psnr_released", "--workdir", copied)
    whole = plugins.read_text(encoding="utf-8")
    try:
        plugins.write_text(MENDABLE.format(body="return Video(video.frame, video.fps)"), encoding="utf-8")
        forget()
        broken = cli(*words)
        assert broken.code == 1 and "AttributeError" in broken.out
        plugins.write_text(whole, encoding="utf-8")
        forget()
        assert cli(*words).code == 0
        (cell,) = [c for c in store.read_cells(copied / "veilbench.duckdb") if c["method"] == "mendable"]
        assert cell["status"] == "ok" and cli("db", "check", "--workdir", copied).code == 0
        plugins.write_text(whole + "\n# another version\n", encoding="utf-8")
        forget()
        (cell,) = [c for c in store.read_cells(copied / "veilbench.duckdb") if c["method"] == "mendable"]
        assert cell["status"] == "stale" and "methods/mendable changed" in cell["text"]
    finally:
        plugins.write_text(whole, encoding="utf-8")
        forget()
