"""Clipping is total, ends in whole steps inside the ball, and leaves no low bits; sums of cells."""

from fractions import Fraction as F

import numpy as np
import pytest

from bench.privacy.bits import SeededBits
from bench.privacy.contract import Branch
from bench.privacy.mechanism import cell_sums, clip_rows, run_streams, unit_of
from bench.seeds import derive

BALL = Branch("id", dim=4, clip=2.5, floor=1.5)
DIAMOND = Branch("count", dim=4, norm="l1", clip=20, noise="discrete_laplace", epsilon=F(2, 5))
BOX = Branch("sum", dim=4, norm="box", clip=255, noise="discrete_laplace", epsilon=F(1, 2))
LABEL = Branch("label", dim=1, norm="label", clip=6, noise="randomized_response", epsilon=F(3, 2))
CLEAR = Branch("pose", dim=4, clip=3.0, noise=None)
KINDS = (BALL, DIAMOND, BOX, LABEL, CLEAR, Branch("b", dim=4, norm="box", clip=0.3, floor=1.0),
         Branch("d", dim=4, norm="l1", clip=0.3, noise=None))


class Stubborn:
    def __float__(self):
        raise ZeroDivisionError


def seeded(*names):
    return SeededBits(derive(42, "mechanism", *names))


def rng(*names):
    return derive(42, "mechanism rows", *names)


def real(rows, branch):
    """Clipped values, and whether rows were replaced."""
    steps, replaced = clip_rows(rows, branch, len(rows))
    assert steps.dtype == np.int64 and steps.shape == np.shape(rows)
    return steps * unit_of(branch), replaced


def fits(steps, branch):
    """Whether whole steps lie in the ball of the branch: whole numbers only, no rounding."""
    most = round(branch.clip / unit_of(branch))
    if np.abs(steps).max(initial=0) > most:  # before any square
        return False
    if branch.norm == "l2":
        return int((steps**2).sum(axis=1).max(initial=0)) <= most**2
    if branch.norm == "l1":
        return int(np.abs(steps).sum(axis=1).max(initial=0)) <= most
    return int(steps.min(initial=0)) >= 0 and (branch.norm == "box" or int(steps.max(initial=0)) < most)


# ---- clip ----

@pytest.mark.parametrize("branch", KINDS, ids=lambda k: f"{k.norm} {k.noise}")
def test_whatever_is_no_array_of_numbers_gives_fixed_rows(branch):
    shape = (3, branch.dim)
    ragged = [[1.0] * branch.dim, [1.0], []]
    for rows in (None, "text", 3.0, {}, [], object(), ragged, [[10**400] * branch.dim] * 3, np.zeros((2, branch.dim)),
                 np.zeros((3, branch.dim + 1)), np.zeros((*shape, 1)), np.full(shape, None), np.full(shape, "a"),
                 np.full(shape, 1j), np.full(shape, Stubborn()), np.zeros(shape, dtype=[("a", "f8"), ("b", "f8")])):
        steps, replaced = clip_rows(rows, branch, 3)
        assert replaced and steps.dtype == np.int64 and steps.shape == shape and not steps.any()


@pytest.mark.parametrize("branch", KINDS, ids=lambda k: f"{k.norm} {k.noise}")
def test_a_row_that_is_not_finite_is_replaced_alone(branch):
    good = np.full((5, branch.dim), 1.0)
    bad = good.copy()
    bad[[0, 2, 3], 0] = np.nan, np.inf, -np.inf
    clean, _ = clip_rows(good, branch, 5)
    steps, replaced = clip_rows(bad, branch, 5)
    assert replaced and not steps[[0, 2, 3]].any() and np.array_equal(steps[[1, 4]], clean[[1, 4]])
    assert not clip_rows(np.full((1, branch.dim), np.longdouble("1e4000")), branch, 1)[0].any()  # infinite in float64


@pytest.mark.parametrize("dim", [1, 3, 1024])
@pytest.mark.parametrize("clip", [1e-9, 0.3, 1.0, 2.5, 1e9])
def test_no_row_of_any_size_leaves_the_ball(dim, clip):
    draws = rng("sizes", dim, str(clip))
    rows = draws.standard_normal((600, dim)) * 10.0 ** draws.uniform(-320, 307, (600, 1))
    mixed = draws.standard_normal((200, dim)) * 10.0 ** draws.uniform(-320, 307, (200, dim))
    ends = np.outer([1e308, 1.7e308, -1e300, 5e-324, 1e-310, 0.0, clip, -clip], np.ones(dim))
    near = draws.standard_normal((400, dim))
    near *= clip * (1 + draws.uniform(-1e-12, 1e-12, (400, 1))) / np.linalg.norm(near, axis=1, keepdims=True)
    every = np.concatenate([rows, mixed, ends, near])
    whole = round(max(clip, 1))
    for branch in (Branch("id", dim=dim, clip=clip, floor=1.0), Branch("d", dim=dim, norm="l1", clip=clip, noise=None),
                   Branch("b", dim=dim, norm="box", clip=clip, floor=1.0),
                   Branch("c", dim=dim, norm="l1", clip=whole, noise="discrete_laplace", epsilon=1)):
        steps, replaced = clip_rows(np.asfortranarray(every), branch, len(every))
        assert not replaced and fits(steps, branch)
        if branch.norm == "l2":
            far = np.abs(rows).max(axis=1) > clip
            lengths = np.linalg.norm(steps[:600][far] * 2.0**-20, axis=1)
            assert far.sum() > 200 and (lengths > 1 - np.sqrt(dim) * 2.0**-19).all()  # on the sphere, not anywhere


def test_the_norm_never_exceeds_the_clip_in_whole_numbers():
    rows = rng("norm").standard_normal((40_000, 16)) * rng("spread").uniform(0.1, 3, (40_000, 1))
    assert fits(clip_rows(rows, Branch("id", dim=16, clip=1.7, floor=1.0), 40_000)[0], BALL)
    exact = np.array([[3.0, 4, 0, 0], [0, 0, -5, 0], [2.5, 2.5, 2.5, 2.5]]) / 2  # on the sphere of radius 2.5
    assert fits(clip_rows(exact, BALL, 3)[0], BALL)
    assert not fits(np.array([[2**20, 1, 0, 0]]), BALL)  # the check can fail
    half = rng("half").standard_normal((2000, 4)).astype(np.float16) * np.float16(4)
    steps = clip_rows(half, BALL, 2000)[0]
    assert fits(steps, BALL) and np.array_equal(steps, clip_rows(half.astype(np.float64), BALL, 2000)[0])


def test_values_inside_are_cut_toward_zero():
    rows = rng("inside").uniform(-1, 1, (2000, 4))
    for branch in (BALL, CLEAR, Branch("d", dim=4, norm="l1", clip=8.0, noise=None)):
        kept, _ = real(rows, branch)
        assert (np.abs(kept) <= np.abs(rows)).all() and (kept * rows >= 0).all()
        assert np.abs(rows - kept).max() < unit_of(branch) * (1 + 1e-6)


def test_whole_numbers_in_the_diamond():
    inside = [[20, 0, 0, 0], [-5, 5, -5, 5], [0, 0, 0, -1]]
    assert real(np.array(inside), DIAMOND)[0].tolist() == inside
    assert real([[0.9, -0.9, 1.9, -1.9], [40, -40, 0, 0], [30, 10, 0, 0]], DIAMOND)[0].tolist() == [
        [0, 0, 1, -1], [10, -10, 0, 0], [15, 5, 0, 0]]
    large = np.zeros((3000, 4))
    large[:, 1] = np.arange(20, 3020)
    assert (real(large, DIAMOND)[0] == [0, 20, 0, 0]).all()  # scaled exactly, not to 19.999...


def test_box_and_labels():
    kept, _ = real([[-5, 3.7, 255, 1e300], [0, 254.99, -0.0, 256]], BOX)
    assert kept.tolist() == [[0, 3, 255, 255], [0, 254, 0, 255]]
    given = [[-3.0], [0.4], [2.6], [5], [1e300]]
    assert real(given, LABEL)[0].ravel().tolist() == [0, 0, 3, 5, 5]
    clear = Branch("label", dim=1, norm="label", clip=6, noise=None)
    assert real(given, clear)[0].ravel().tolist() == [0, 0, 3, 5, 5]  # a label stays a label when nothing hides it


@pytest.mark.parametrize("shift", [2.0**-60, 2.0**-45])
@pytest.mark.parametrize("clip", [1.0, 0.003])
def test_low_bits_do_not_survive(shift, clip):
    rows = rng("bits").uniform(2.0**-9, 2.0**-8, (16, 16))
    marked = rows + shift * rng("secret").integers(0, 2, rows.shape)
    assert (marked != rows).mean() > 0.3
    branch = Branch("id", dim=16, clip=clip, floor=clip)

    def released(values):
        steps, _ = clip_rows(values, branch, 16)
        return run_streams({"id": steps[None]}, (branch,), None, seeded("bits")).released["id"].tobytes()

    assert released(marked) == released(rows)
    assert released(rows + 2.0**-12 * (marked > rows)) != released(rows)  # the test can fail


@pytest.mark.parametrize("shape, block", [
    ((2, 16, 16, 3), 8), ((3, 7, 10, 3), 3), ((1, 5, 4, 3), 8), ((2, 9, 9, 1), 1)])
def test_cell_sums(shape, block):
    frames = rng("cells").integers(0, 256, shape, dtype=np.uint8)
    naive = [[int(f[y:y + block, x:x + block, c].astype(int).sum()) for y in range(0, shape[1], block)
              for x in range(0, shape[2], block) for c in range(shape[3])] for f in frames]
    assert cell_sums(frames, block).tolist() == naive
    assert cell_sums(np.full(shape, 255, np.uint8), block).max() <= 255 * block**2
