"""A method cannot carry raw data around the noise: every known cheat leaks without rules and is caught under them.

`cheat_driver` runs the plug-in `cheats` over secret bits, as this user and as nobody, at level 0 (no rules) and at
every isolation level of this machine. A channel that hides a bit must give no answer at all at a green level, so that
chance plays no part. A cheat that guesses from released rows leaks when it is right on 22 of 24 bits or more, or on 2
or fewer, which chance does with probability 2 * 301 / 2^24 = 3.6e-5; bits and noise are seeded besides. Residues that
no test can close: how long encoding takes in all, caches of the processor and of pages.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from functools import cache
from math import comb

import pytest
from conftest import PLUGINS, ROOT
from plugins.cheats import CHANNELS, NAMES, NO_ANSWER

from bench.run.sandbox import _trial_environment
from bench.seeds import derive

NOBODY, LEVELS, COUNT, LEAK = 65534, (0, 1, 2, 3, 4, 5), 24, 22
BITS = derive(11, "cheats").permutation([0, 1] * (COUNT // 2)).tolist()  # as many of each
BETWEEN_UNITS = {"pipe", "file offset"}  # hand a bit to the next unit only
# Some kernels and containers close these for everybody, and one who is not root may not look into another process.
HOST_MAY_CLOSE = {"keyring", "shared memory", "harness memory", "/dev/shm", "abstract socket", "tcp"}
BOOT = "import sys; sys.path[:0] = sys.argv[1:3]; import cheat_driver; cheat_driver.main()"
USERS = pytest.mark.parametrize("uid", [0, NOBODY], ids=["me", "nobody"])
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no levels here")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """outcome(uid): {level: what the driver found there}, for the levels that this machine has."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @cache
    def run(uid: int) -> dict[int, dict] | str:
        if uid and (why := unusable(uid)):
            return why
        path = base / f"cheats-{uid}.json"
        with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:  # once for all test processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                path.write_text(drive(uid), encoding="utf-8")
        return {int(k): v for k, v in json.loads(path.read_text("utf-8")).items() if isinstance(v, dict)}

    def found(uid: int) -> dict[int, dict]:
        answer = run(uid)
        if isinstance(answer, str):
            pytest.skip(answer)
        return answer
    return found


def drive(uid: int) -> str:
    """What the driver prints for this user."""
    order = {"levels": LEVELS, "bits": BITS, "source": str(PLUGINS / "cheats.py"), "seed": 5}
    argv = [sys.executable, "-I", "-c", BOOT, str(ROOT), str(ROOT / "tests"), json.dumps(order)]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=240, env=_trial_environment(),
                          **as_user(uid))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def as_user(uid: int) -> dict:
    return {"user": uid, "group": uid, "extra_groups": []} if uid else {}


def unusable(uid: int) -> str:
    """Why another user cannot run the driver here, ""."""
    if os.getuid():
        return "only root can become another user"
    try:
        done = subprocess.run([sys.executable, "-I", "-c", BOOT.rpartition(";")[0], str(ROOT), str(ROOT / "tests")],
                              cwd="/", capture_output=True, text=True, **as_user(uid))
    except OSError as error:
        return f"uid {uid} cannot start {sys.executable}: {error}"
    return done.stderr[-300:]


def answers(found: dict, cheat: str) -> tuple[int, int, int]:
    """(answered, right, asked) for one cheat at one level."""
    frames = found["crashes" if cheat == "crash" else "guesses"]
    guesses = [f[NAMES.index(cheat)] for f in frames]
    pairs = [(g, 255 * b) for g, b in zip(guesses, BITS) if g != NO_ANSWER]
    return len(pairs), sum(g == b for g, b in pairs), len(frames)


def leaks(found: dict, cheat: str) -> bool:
    answered, right, _ = answers(found, cheat)
    return answered > 0 if cheat in CHANNELS else right >= LEAK or answered - right >= LEAK


# ---- without rules -------------------------------------------------------------------------------------------------

@USERS
@pytest.mark.parametrize("cheat", [n for n in NAMES if n not in BETWEEN_UNITS and n != "honest"])
def test_a_cheat_carries_every_bit_without_rules(outcome, cheat, uid):
    answered, right, asked = answers(outcome(uid)[0], cheat)
    if not answered and cheat in HOST_MAY_CLOSE:
        pytest.skip("this machine closes it for everybody")
    assert (answered, right, asked) == (COUNT, COUNT, COUNT)


@USERS
@pytest.mark.parametrize("cheat", CHANNELS)
def test_a_unit_reads_the_one_before_it_without_rules(outcome, cheat, uid):
    if all(row is None for row in saw(outcome(uid)[0], cheat)) and cheat in HOST_MAY_CLOSE:
        pytest.skip("this machine closes it for everybody")
    assert saw(outcome(uid)[0], cheat) == BITS[:-1]


def test_noise_hides_a_clipped_row_even_without_rules(outcome):
    """The control: what is noised and not cheated with cannot be read."""
    assert not leaks(outcome(0)[0], "honest")


# ---- under the rules -----------------------------------------------------------------------------------------------

@USERS
def test_which_levels_are_green(outcome, uid):
    levels = outcome(uid)
    assert all(found["green"] == (level <= 3) for level, found in levels.items() if level)
    assert 2 * sum(comb(COUNT, k) for k in range(LEAK, COUNT + 1)) / 2**COUNT < 4e-5, "the chance of a false alarm"
    if not any(levels[k]["green"] for k in levels if k):
        pytest.skip("this machine has no green level: nothing that it releases is called private")


@USERS
@pytest.mark.parametrize("cheat", NAMES)
def test_a_cheat_is_caught_or_the_level_is_not_green(outcome, cheat, uid):
    for level, found in outcome(uid).items():
        if level and found["green"]:
            assert not leaks(found, cheat), f"level {level}: {answers(found, cheat)}"
            assert cheat in CHANNELS or answers(found, cheat)[0] == COUNT, "a guess for every unit"


@USERS
@pytest.mark.parametrize("cheat", ["temporary file", "file next to it", "dataset", "plan reads self"])
def test_the_process_split_alone_stops_no_file(outcome, cheat, uid):
    """So the tests above can fail with the real harness, too, and level 5 may never be green."""
    answered, right, asked = answers(outcome(uid)[5], cheat)
    assert answered == right == asked > 0


@USERS
@pytest.mark.parametrize("cheat", ["self", "class attribute", "module global", "fitted state", "environment",
                                   "shared mapping", "pipe", "file offset"])
def test_memory_ends_with_its_process_at_every_level(outcome, cheat, uid):
    for level, found in outcome(uid).items():
        if level:
            assert not leaks(found, cheat), f"level {level}"
            assert set(saw(found, cheat)) == {None}, f"level {level}"


def saw(found: dict, cheat: str) -> list[int | None]:
    """What each unit but the first found of the unit before it."""
    column = [None if row is None else row[list(CHANNELS).index(cheat)] for row in found["saw"][1:]]
    return [None if v in (None, -1.0) else int(v) for v in column]


@USERS
@pytest.mark.parametrize("cheat", CHANNELS)
def test_a_unit_sees_nothing_of_the_one_before_it(outcome, cheat, uid):
    for level, found in outcome(uid).items():
        if level and found["green"]:
            assert None not in found["saw"], "every unit was encoded"
            assert set(saw(found, cheat)) == {None}, f"level {level}"


@USERS
def test_bad_rows_are_replaced_where_they_are_bad(outcome, uid):
    """Extra rows, NaN and crashes give fixed rows; large values are numbers and are clipped."""
    for level, found in outcome(uid).items():
        if level and found["green"]:
            crash, none = [b == 1 for b in BITS], [False] * COUNT
            wanted = dict.fromkeys(("honest", "scaled", "huge", "low"), none) | dict.fromkeys(("extra", "nan"), crash)
            assert found["bad"] == {name: bad + crash for name, bad in wanted.items()}, f"level {level}"


@USERS
def test_an_answer_in_the_name_of_the_next_unit_reaches_nobody(outcome, uid):
    for level, found in outcome(uid).items():
        if level:
            own, following, peeking = found["forged"]
            assert own is None or set(own["honest"]) == {7.0}, "its own rows may be as it likes"
            for rows in (following, peeking):
                assert set(rows["honest"]) == {1e6} and len(rows["found"]) == len(CHANNELS), f"level {level}"
            assert peeking["seen"] == [0.0], "nothing can be read from any descriptor"
