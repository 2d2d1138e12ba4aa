"""Wrong answers of an enforced method: `encode` becomes a fixed vector, `plan` and `render` stop the release.

The plug-in is `careless`; the isolation is the best of this machine, or the weakest green one where that matters.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import PLUGINS, alive_after, descendants
from plugins.careless import ENCODE, GOOD, MAGNITUDES

from bench import registry
from bench.errors import EnvironmentFault, PluginError
from bench.privacy.bits import SeededBits
from bench.privacy.contract import Branch
from bench.privacy.mechanism import clip_rows, run_streams
from bench.privacy.noise import GRID
from bench.registry import Spec
from bench.run import stage_enforced
from bench.run.enforced import EncodeWorker, PublicWorker
from bench.run.sandbox import available
from bench.seeds import derive

SPEC, BRANCH = Spec("careless"), Branch("rows", dim=4, norm="l2", clip=1.0, floor=2.0)
NONE = [n for n in ENCODE if n not in ("good", "late", "magnitudes", "hangs", "unknown branch", "no branch", "wider",
                                       "fewer rows", "more rows", "flat", "empty", "scalar", "all nan")]


@pytest.fixture(scope="module", autouse=True)
def plugin(plugins):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.EXTRA, str(PLUGINS / "careless.py"))
        registry._locations.cache_clear()
        yield
    registry._locations.cache_clear()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> dict[str, np.ndarray]:
    """State that tells the method where raw data lies."""
    path = tmp_path_factory.mktemp("dataset") / "video"
    path.write_bytes(b"raw")
    return {"dataset": np.frombuffer(str(path).encode(), np.uint8)}


def weakest_green() -> int:
    """The weakest level of this machine at which a release may be called private."""
    for level in (3, 2, 1):
        try:
            return available(level).level
        except EnvironmentFault:
            continue
    pytest.skip("this machine has no green level")


def atom(what: str) -> np.ndarray:
    return np.full((16, 8, 8, 3), list(ENCODE).index(what), np.uint8)


# ---- encode --------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def encoder(dataset):
    with EncodeWorker(SPEC, dataset, available(weakest_green()), call_s=20) as worker:
        yield worker


def good(worker) -> bool:
    rows = worker.encode(atom("good"))
    return rows is not None and np.array_equal(rows["rows"], GOOD)


@pytest.mark.parametrize("what", [n for n in ENCODE if n not in ("good", "late", "magnitudes", "hangs")])
def test_a_wrong_answer_of_encode_becomes_a_fixed_vector_and_is_released(encoder, what):
    given = encoder.encode(atom(what))
    assert (given is None) == (what in NONE)
    steps, bad = clip_rows((given or {}).get("rows"), BRANCH, 16)
    assert bad and steps.shape == (16, 4) and not steps.any()
    released = run_streams({"rows": steps[None]}, (BRANCH,), None, SeededBits(derive(3, what))).released["rows"]
    assert np.isfinite(released).all() and released.std() > 1
    assert good(encoder), "the next atom is encoded as if nothing had been"


def test_every_magnitude_ends_inside_the_ball(encoder):
    given = encoder.encode(atom("magnitudes"))["rows"]
    np.testing.assert_array_equal(given, MAGNITUDES.reshape(16, 4))
    finite = np.isfinite(given).all(axis=1)
    for clip in (1e-9, 1.0, 1e9):
        branch = Branch("rows", dim=4, norm="l2", clip=clip, floor=2.0)
        with np.errstate(all="raise", under="ignore"):
            steps, bad = clip_rows(given, branch, 16)
        norms = np.linalg.norm(steps * GRID, axis=1)
        assert bad and norms.max() <= 1 and not steps[~finite].any()
        large = finite & (np.nan_to_num(np.abs(given)).max(axis=1) > 1e3 * clip)
        assert large.any() and (norms[large] > 1 - 4 * GRID).all(), "as long as the ball allows"
        assert (np.sign(steps) * np.sign(given) >= 0)[finite].all()


def test_a_late_import_works_unless_the_late_filter_is_in_force(encoder):
    given = encoder.encode(atom("late"))
    assert given is None if encoder.isolation.level == 3 else np.array_equal(given["rows"], GOOD)


def test_an_encode_that_hangs_is_ended_and_the_next_atom_works(dataset):
    with EncodeWorker(SPEC, dataset, available(), call_s=2) as worker:
        began = time.monotonic()
        assert worker.encode(atom("hangs")) is None
        assert 1.5 < time.monotonic() - began < 20
        assert good(worker)


def test_no_child_outlives_the_encode_process(dataset):
    before = descendants(os.getpid())
    with EncodeWorker(SPEC, dataset, available(), call_s=60) as worker:
        worker._send({"nonce": "1"}, {"atom": atom("hangs")})
        deadline = time.monotonic() + 20
        while len(below := descendants(os.getpid()) - before) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(below) >= 2, "parent and child"
        time.sleep(0.5)
    assert not alive_after(below, 10)


def test_an_encode_process_that_is_gone_is_an_error(dataset):
    with EncodeWorker(SPEC, dataset, available(), call_s=60) as worker:
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(PluginError, match="encode process of careless ended"):
            worker.encode(atom("good"))


# ---- plan and render -----------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def pair(dataset):
    """A public worker and the one that replays, at the weakest green level."""
    isolation = available(weakest_green())
    with PublicWorker(SPEC, "tiny", isolation) as first, PublicWorker(SPEC, "tiny", isolation) as second:
        for worker in (first, second):
            worker.load_state(dataset)
        yield first, second


def replayed(pair, what: str) -> None:
    """The pieces of the stage: release three streams of one clip each, then replay them in the other worker."""
    facts = {"plans": True, "memory_between_clips": False}
    job = SimpleNamespace(config={"facts": facts, "profile": what, "decoding": "isolated"})
    pair[0].profile = pair[1].profile = what
    clips = SimpleNamespace(info={"canvas_px": 8})
    row = SimpleNamespace(frames=16, fps=25.0)
    streams = stage_enforced.Streams([SimpleNamespace(row=row, clip=0)] * 3, [0, 1, 2], np.arange(3))
    values, bits = {"rows": np.zeros((3, 16, 4), np.int64)}, SeededBits(derive(4, what))
    transcript = stage_enforced._transcript(job, pair[0], values, (BRANCH,), bits, {}, clips)
    videos = [stage_enforced._rendered(pair[0], job, streams, transcript, k, clips).frames for k in range(3)]
    digests = [stage_enforced.hashlib.sha256(v.tobytes()).hexdigest() for v in videos]
    stage_enforced._replay(job, pair[1], streams, transcript, (BRANCH,), clips, digests)


def test_an_honest_method_is_replayed(pair):
    replayed(pair, "honest")


@pytest.mark.parametrize("what, said", [
    ("chance", "scales of careless in branch 'rows' differ on replay"), ("clock", "scales .* differ on replay"),
    ("urandom", "video 2 of careless differs on replay"), ("address", "video 2 of careless differs on replay"),
    ("remembers", "video 2 of careless differs on replay")])
def test_replay_catches_what_does_not_follow_from_the_release(pair, what, said):
    random = Path("/proc/sys/kernel/randomize_va_space")
    if what == "address" and random.exists() and random.read_text().strip() == "0":
        pytest.skip("addresses are the same in all processes of this machine")
    with pytest.raises(PluginError, match=said):
        replayed(pair, what)


def planned(worker, what: str):
    planner = lambda t, past, memory: worker.plan(t, past, memory, {"profile": what, "streams": 3})  # noqa: E731
    return run_streams({"rows": np.zeros((3, 16, 4), np.int64)}, (BRANCH,), planner, SeededBits(derive(5, what)))


def test_a_scale_under_the_floor_is_raised_and_counted(pair):
    transcript = planned(pair[0], "under")  # 0.5 for the first stream, 3 for the others; the floor is 2
    assert transcript.raised == 16
    np.testing.assert_array_equal(transcript.scales["rows"], np.repeat([[2.0], [3.0], [3.0]], 16, axis=1))


@pytest.mark.parametrize("what", ["nan", "infinite", "shape"])
def test_a_scale_that_is_none_stops_the_release(pair, what):
    with pytest.raises(PluginError, match="plan gave scales .* for branch 'rows'.*Mend `plan`"):
        planned(pair[0], what)


@pytest.mark.parametrize("what", ["reads", "lists"])
def test_no_method_reads_the_dataset_at_the_weakest_green_level(pair, what):
    for call in (lambda: planned(pair[0], what), lambda: rendered(pair[0], what)):
        with pytest.raises(PluginError, match="(PermissionError|FileNotFoundError)"):
            call()


def rendered(worker, what: str) -> np.ndarray:
    return worker.render([{"rows": GOOD}], {"profile": what, "canvas_px": 8, "frames": 16}, "isolated")


def test_without_isolation_the_same_method_reads_the_dataset(dataset):
    with PublicWorker(SPEC, "tiny", available(5)) as worker:
        worker.load_state(dataset)
        for what in ("reads", "lists"):
            assert planned(worker, what).raised == 0 and rendered(worker, what).shape == (16, 8, 8, 3)


def test_imports_after_the_lock(pair):
    """Modules of Python and of packages can still be read (not at level 3); files beside the plug-in cannot."""
    if pair[0].isolation.level != 3:
        assert planned(pair[0], "late").raised == 0 and rendered(pair[0], "late").shape == (16, 8, 8, 3)
    with pytest.raises(PluginError, match="failed in 'render': .*beside_the_plugin.*careless.py, line"):
        rendered(pair[0], "beside")


def test_a_plan_that_hangs_ends_the_release(dataset):
    with PublicWorker(SPEC, "tiny", available(), call_s=2) as worker:
        worker.load_state(dataset)
        began = time.monotonic()
        with pytest.raises(PluginError, match="careless did not answer 'plan' within 2 s"):
            planned(worker, "hangs")
        assert time.monotonic() - began < 20
        assert worker.process.wait(10) < 0, "it was killed"
