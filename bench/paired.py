"""Two numbers over the same people (episodes in traffic): what each of them adds, and the difference with its interval.

A mean is made of one value a person. A number of all together (a utility with an F1 in it) is not; its jackknife
pseudo-values stand in for them. They are the person's own value where the number is a mean, their standard error is
that of the delete-one jackknife, and the difference of two rows' pseudo-values is the pseudo-value of the difference,
so that whatever two rows share cancels. Source: Tukey 1958; Efron and Tibshirani 1993, chapter 11. They serve smooth
numbers of many people; the bias of a Fréchet distance they would blow up.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np

from bench.stats import Interval, paired_interval


def pseudo_values(whole: float, without: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """G whole - (G - 1) without_g of each of G people; none at all where one of these is not finite.

    whole: the number of everybody.  without: {person: the number without them}.

    >>> pseudo_values(2.0, {"a": 2.5, "b": 2.0, "c": 1.5})  # of the mean of 1, 2, 3
    {'a': 1.0, 'b': 2.0, 'c': 3.0}
    """
    if not math.isfinite(whole) or not all(map(math.isfinite, without.values())):
        return {}
    count = len(without)
    return {person: count * whole - (count - 1) * value for person, value in without.items()}


def difference(a: float, b: float, of_a: Mapping[Hashable, float], of_b: Mapping[Hashable, float]) -> Interval:
    """a - b with the paired t interval of what each person adds to either, at 95 %.

    a, b: the two numbers.  of_a, of_b: values or pseudo-values of each person; only common people count. Where all are
    common the difference is that of the numbers as they are printed, else that of the common people's means.
    """
    found = paired_interval(of_a, of_b)
    if found.dropped or not math.isfinite(found.value):
        return found
    shift = a - b - found.value  # of pseudo-values: the bias that they correct and the printed numbers keep
    return replace(found, value=a - b, lo=found.lo + shift, hi=found.hi + shift)


def auc_values(without: np.ndarray, with_it: np.ndarray) -> np.ndarray:
    """What each of N pairs adds to the AUC of scores (N,) without and (N,) with an event, ties one half.

    Their mean is the AUC over all N x N pairs, their spread over independent clusters is that of the AUC: placement
    values of both sides, less the AUC. Source: DeLong et al. 1988, Obuchowski 1997 for clusters.

    >>> auc_values(np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    array([0.75, 0.75])
    """
    count = len(without)

    def below(sorted_: np.ndarray, values: np.ndarray) -> np.ndarray:
        return (np.searchsorted(sorted_, values, "left") + np.searchsorted(sorted_, values, "right")) / (2 * count)

    above = below(np.sort(without), with_it)
    return above + 1 - below(np.sort(with_it), without) - above.mean()
