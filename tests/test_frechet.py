"""Fréchet distance and MMD: closed forms, peer libraries, invariants; the jackknife over people."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import linalg
from scipy import stats as scipy_stats
from scipy.spatial.distance import cdist
from scipy.stats import special_ortho_group

from bench import frechet, stats
from bench.errors import Undefined
from bench.frechet import frechet_distance, frechet_of, mmd2_biased, mmd2_unbiased
from bench.seeds import derive


def rng(*names) -> np.random.Generator:
    return derive(17, "frechet", *names)


def clouds(n=300, m=None, d=20, name="clouds") -> tuple[np.ndarray, np.ndarray]:
    """Two correlated, well-conditioned clouds with different means."""
    draw = rng(name)
    mixes = np.eye(d) + 0.1 * draw.normal(size=(2, d, d))
    return draw.normal(size=(n, d)) @ mixes[0], draw.normal(0.3, 1.3, (m or n, d)) @ mixes[1]


def moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return rows.mean(axis=0), np.cov(rows.T)


def with_moments(mu, s, n=9) -> np.ndarray:
    """Rows (n, d) whose mean and covariance (N - 1) are exactly these."""
    rows = rng("exact").normal(size=(n, len(mu)))
    rows = (rows - rows.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T))).T
    return rows @ np.linalg.cholesky(s).T + mu


GOLDEN = [
    ((np.zeros(4), np.eye(4)), (np.eye(4)[0], 4 * np.eye(4)), 5.0),
    ((np.zeros(2), np.array([[2.0, 1], [1, 2]])), (np.zeros(2), np.diag([1.0, 3])), 8 - 2 * math.sqrt(14)),
]


# ---- Fréchet -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("first, second, expected", GOLDEN, ids=["shift and scale", "not commuting"])
def test_golden_values(first, second, expected):
    assert frechet_distance(*first, *second) == pytest.approx(expected, abs=1e-12)
    assert frechet_distance(*second, *first) == pytest.approx(expected, abs=1e-12)
    assert frechet_of(with_moments(*first), with_moments(*second, n=30)) == pytest.approx(expected, abs=1e-10)


def test_agrees_with_scipys_matrix_root_and_with_torchmetrics():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.image.fid")
    (mu1, s1), (mu2, s2) = (moments(rows) for rows in clouds())
    by_root = np.square(mu1 - mu2).sum() + np.trace(s1 + s2 - 2 * linalg.sqrtm(s1 @ s2).real)
    by_peer = float(peer._compute_fid(*(torch.from_numpy(a) for a in (mu1, s1, mu2, s2))))
    for ours in (frechet_distance(mu1, s1, mu2, s2), frechet_of(*clouds())):
        assert ours == pytest.approx(by_root, abs=1e-6) and ours == pytest.approx(by_peer, abs=1e-6)


@pytest.mark.parametrize("n, m", [(300, 200), (20, 21), (300, 9), (9, 300), (5, 7)])
def test_features_and_their_moments_give_one_distance(n, m):
    """More rows than dimensions, as many, fewer in one set, fewer in both: three ways through the code."""
    first, second = clouds(n, m)
    assert frechet_of(first, second) == pytest.approx(frechet_distance(*moments(first), *moments(second)), abs=1e-5)


def test_fewer_rows_than_dimensions_is_exact():
    """Six rows of three coordinates, turned into 40 dimensions: rotations and added zeros move nothing."""
    first, second = clouds(6, 6, d=3)
    turn = special_ortho_group.rvs(40, random_state=rng("turn"))
    wide = [np.hstack([rows, np.zeros((6, 37))]) @ turn for rows in (first, second)]
    assert frechet_of(*wide) == pytest.approx(frechet_of(first, second), abs=1e-10)
    assert frechet_distance(*moments(wide[0]), *moments(wide[1])) == pytest.approx(frechet_of(*wide), abs=1e-5)


@pytest.mark.parametrize("n", [8, 300])
def test_what_a_distance_must_do(n):
    first, second = clouds(n)
    shift = rng("shift").normal(size=20)
    there = frechet_of(first, second)
    assert frechet_of(first, first) == pytest.approx(0, abs=1e-10)
    assert frechet_of(first, first[::-1] + shift) == pytest.approx(shift @ shift)
    assert frechet_of(second, first) == pytest.approx(there)
    assert frechet_of(first[rng("order").permutation(n)] + 100, second + 100) == pytest.approx(there)
    assert frechet_of(3 * first, 3 * second) == pytest.approx(9 * there)
    steps = [frechet_of(first, first + k * shift) for k in range(4)]
    assert steps == sorted(steps) and steps[0] < steps[3]


def test_singular_covariances_stay_real():
    flat = np.diag([1.0, 0, 0])
    assert frechet_distance(np.zeros(3), flat, np.zeros(3), flat) == pytest.approx(0, abs=1e-12)
    assert frechet_distance(np.zeros(3), np.zeros((3, 3)), np.ones(3), np.zeros((3, 3))) == pytest.approx(3)
    assert frechet_distance(np.zeros(3), flat, np.zeros(3), np.diag([0, 4.0, 0])) == pytest.approx(5)
    assert frechet_of(np.ones((4, 3)), np.zeros((4, 3))) == pytest.approx(3)


@pytest.mark.parametrize("d, n, expected", [(400, 500, 162.6), (512, 500, 265)])
def test_two_samples_of_one_law_are_as_far_apart_as_published(d, n, expected):
    first, second = rng("bias", d).normal(size=(2, n, d))
    assert frechet_of(first, second) == pytest.approx(expected, rel=0.03)


def test_fewer_rows_are_further_apart():
    first, second = rng("fewer").normal(size=(2, 400, 30))
    found = [frechet_of(first[:n], second[:n]) for n in (20, 50, 100, 400)]
    assert found == sorted(found, reverse=True)


def test_unit_vectors_are_at_most_four_apart():
    one = np.eye(5)[[0, 0]]
    assert frechet_of(one, -one) == pytest.approx(4)
    opposite = np.stack([np.eye(5)[0], -np.eye(5)[0]])
    assert frechet_of(opposite, np.stack([np.eye(5)[1], -np.eye(5)[1]])) == pytest.approx(4)


def test_what_cannot_be_measured_is_said():
    first, second = clouds(5)
    with pytest.raises(Undefined, match=r"here are \[1, 5\]"):
        frechet_of(first[:1], second)
    with pytest.raises(Undefined, match="not finite"):
        frechet_of(np.full((5, 20), np.nan), second)
    with pytest.raises(ValueError, match="one d"):
        frechet_of(first, second[:, :3])
    with pytest.raises(ValueError, match="one d"):
        frechet_distance(np.zeros(3), np.eye(3), np.zeros(3), np.eye(4))
    with pytest.raises(ValueError, match="5 and 4"):
        frechet.check_equal_size(first, second[:4])


# ---- MMD -----------------------------------------------------------------------------------------------------------

def brute_mmd2(x, y, kernel) -> float:
    """The definition, pair by pair."""
    def mean(a, b, skip):
        return np.mean([kernel(p[None], q[None])[0, 0] for i, p in enumerate(a) for j, q in enumerate(b)
                        if not (skip and i == j)])
    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


def test_mmd_golden_values():
    points = np.array([[0.0], [1.0]])
    assert mmd2_unbiased(points, points, frechet.gaussian(1)) == pytest.approx(-0.3934693403, abs=1e-10)
    assert mmd2_biased(points, points, frechet.gaussian(1)) == pytest.approx(0, abs=1e-12)
    x, y = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 1], [0, 0]])
    assert mmd2_unbiased(x, y, frechet.cubic) == pytest.approx(-2.375)
    assert mmd2_biased(x, y, frechet.cubic) == pytest.approx(0.5625)


def test_mmd_finds_the_population_value():
    """N(0, I) against N(mu, I) in three dimensions, |mu| = 1, sigma 1.5; one draw of 200 has a deviation of .018."""
    draw, kernel = rng("population"), frechet.gaussian(1.5)
    found = [mmd2_unbiased(draw.normal(size=(200, 3)), draw.normal(size=(200, 3)) + [1, 0, 0], kernel)
             for _ in range(60)]
    expected = 2 * (1.5**2 / (1.5**2 + 2)) ** 1.5 * (1 - math.exp(-1 / (2 * (1.5**2 + 2))))
    assert expected == pytest.approx(0.0855077, abs=1e-7)
    assert np.mean(found) == pytest.approx(expected, abs=3 * 0.018 / math.sqrt(60))


@pytest.mark.parametrize("n, m", [(12, 12), (7, 15)])
@pytest.mark.parametrize("kernel", [frechet.gaussian(2.0), frechet.cubic], ids=["gaussian", "cubic"])
def test_mmd_is_its_definition_for_any_two_sizes(n, m, kernel, monkeypatch):
    x, y = clouds(n, m, d=4)
    expected = brute_mmd2(x, y, kernel)
    assert mmd2_unbiased(x, y, kernel) == pytest.approx(expected)
    monkeypatch.setattr(frechet, "ROWS_AT_ONCE", 5)  # in several blocks
    assert mmd2_unbiased(x, y, kernel) == pytest.approx(expected)
    assert mmd2_unbiased(y, x, kernel) == pytest.approx(expected)


def test_mmd_agrees_with_torchmetrics_where_that_is_unbiased():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.image.kid")
    same, unequal = clouds(50), clouds(50, 150)
    assert mmd2_unbiased(*same, frechet.cubic) == pytest.approx(
        float(peer.poly_mmd(*map(torch.from_numpy, same))), abs=1e-6)
    assert abs(mmd2_unbiased(*unequal, frechet.cubic)
               - float(peer.poly_mmd(*map(torch.from_numpy, unequal)))) > 1  # it divides by one m throughout


def test_unbiased_mmd_of_one_law_is_zero_on_average_and_biased_is_not():
    draw, kernel = rng("null"), frechet.gaussian(3.0)
    pairs = [(draw.normal(size=(15, 6)), draw.normal(size=(25, 6))) for _ in range(300)]
    unbiased, biased = (np.array([f(x, y, kernel) for x, y in pairs]) for f in (mmd2_unbiased, mmd2_biased))
    assert abs(unbiased.mean()) < 4 * unbiased.std() / math.sqrt(300)
    assert unbiased.min() < 0 and biased.min() >= 0 and biased.mean() > 0.02


def test_mmd_does_not_see_where_the_clouds_lie():
    x, y = clouds(30)
    kernel = frechet.gaussian(5.0)
    assert kernel(x + 1e4, y + 1e4) == pytest.approx(np.exp(-cdist(x, y, "sqeuclidean") / 50), abs=1e-7)


def test_the_bandwidth_is_the_median_of_different_rows():
    assert frechet.median_bandwidth(np.array([[0.0], [1.0], [3.0]])) == 2.0  # 1, 2, 3; zeros of the diagonal left out
    rows = rng("sphere").normal(size=(200, 512))
    assert frechet.median_bandwidth(rows / np.linalg.norm(rows, axis=1)[:, None]) == pytest.approx(1.414, abs=0.005)
    with pytest.raises(Undefined, match="bandwidth is 0"):
        frechet.gaussian(frechet.median_bandwidth(np.ones((4, 2))))
    with pytest.raises(Undefined):
        frechet.median_bandwidth(np.ones((1, 2)))


# ---- people --------------------------------------------------------------------------------------------------------

def test_the_jackknife_of_a_mean_is_the_t_interval():
    """Equally many rows a person: closed form."""
    values, people = rng("t").normal(size=(40, 1)), np.repeat(list("hgfedcba"), 5)
    full, without = frechet.delete_one_people([values], [people], lambda rows: float(rows.mean()))
    found, expected = frechet.jackknife_interval(full, without, 40), stats.mean_interval(values[:, 0], people)
    assert (found.lo, found.hi) == pytest.approx((expected.lo, expected.hi))
    assert (found.value, found.kind, found.n, found.people) == (pytest.approx(expected.value), "t", 40, 8)
    cut = frechet.jackknife_interval(full, without, 40, low=full - 1e-9, high=full)
    assert (cut.lo, cut.hi) == (full - 1e-9, full)


def test_a_person_leaves_every_set():
    first, second = np.arange(6.0)[:, None], 10 * np.arange(3.0)[:, None]
    full, without = frechet.delete_one_people((first, second), ([1, 1, 2, 2, 3, 3], [1, 2, 3]),
                                              lambda a, b: float(a.sum() + b.sum()))
    assert (full, without) == (45, {1: 44, 2: 30, 3: 16})
    with pytest.raises(ValueError, match="people"):
        frechet.delete_one_people((first, second), ([1] * 6, [1]), lambda a, b: 0.0)


def test_no_interval_for_few_people_or_undefined_values():
    without = {p: 1.0 + p for p in range(4)}
    assert frechet.jackknife_interval(1.0, without, 8).kind == "none"
    assert frechet.jackknife_interval(1.0, without | {4: 2.0}, 8).kind == "t"
    assert frechet.jackknife_interval(1.0, without | {4: math.nan}, 8).kind == "none"
    rows = rng("one").normal(size=(4, 2))
    full, left = frechet.delete_one_people((rows, rows + 1), (["a", "a", "a", "b"],) * 2, frechet_of)
    assert full == pytest.approx(2) and math.isnan(left["a"]) and left["b"] == pytest.approx(2)
    with pytest.raises(Undefined):
        frechet.delete_one_people((rows[:1], rows), (["a"], ["a"] * 4), frechet_of)


@pytest.mark.parametrize("people", [6, 11, 22])
def test_jackknife_intervals_of_a_distance_cover(people):
    """People differ in how far a method moves them; the truth is the mean distance over samples of this size."""
    draw, sims, clips = rng("cover", people), 200, 8
    owners, found = np.repeat(np.arange(people), clips), []
    for _ in range(sims):
        home, move = draw.normal(size=(people, 1, 3)), draw.normal(1.0, 0.5, (people, 1, 3))
        first = (home + 0.5 * draw.normal(size=(people, clips, 3))).reshape(-1, 3)
        second = first + np.repeat(move[:, 0], clips, axis=0)
        found.append(frechet.jackknife_interval(
            *frechet.delete_one_people((first, second), (owners, owners), frechet_of), len(owners)))
    truth = np.mean([f.value for f in found])
    assert 0.92 <= np.mean([f.lo <= truth <= f.hi for f in found]) <= 0.99


def test_the_floor_is_that_of_halves_of_people():
    draw = rng("floor")
    homes = draw.normal(size=(8, 1, 3))
    rows, owners = (homes + 0.1 * draw.normal(size=(8, 10, 3))).reshape(-1, 3), np.repeat(np.arange(8), 10)
    floor = frechet.same_data_floor(rows, owners, frechet_of, rng("a"))
    halves = draw.permutation(80)
    assert floor == frechet.same_data_floor(rows, owners, frechet_of, rng("a"))
    assert floor > 2 * frechet_of(rows[halves[:40]], rows[halves[40:]])  # clips of one person are alike
    sizes: list[tuple[int, int]] = []
    frechet.same_data_floor(rows[:75], owners[:75], lambda a, b: sizes.append((len(a), len(b))) or 0.0, rng("a"))
    assert len(sizes) == 10 and all(a == b for a, b in sizes)
    with pytest.raises(Undefined, match="one person"):
        frechet.same_data_floor(rows[:10], owners[:10], frechet_of, rng("a"))


def test_t_quantiles_are_scipys():
    found = frechet.jackknife_interval(0.0, dict(enumerate((-1.0, 1.0, -1.0, 1.0, 0.0))), 5, level=0.9)
    assert found.hi == pytest.approx(scipy_stats.t.ppf(0.95, 4) * math.sqrt(0.8 * 4))
