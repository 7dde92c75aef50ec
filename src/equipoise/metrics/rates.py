"""Rates: what share of a group's rows. Count table (..., G, 4) -> (..., G); NaN where 0/0, never 0 and never 1.

Every rate is one ``Fraction``: the cells counted, out of the cells looked at. All of them on one table, to check by
hand: 3 true positives, 1 false positive, 4 true negatives, 2 false negatives.

>>> table = np.array([[3, 1, 4, 2]])
>>> for rate, fraction in FRACTIONS.items():
...     print(f"{rate.__name__:26}{fraction.formula:26}{rate(table)[0]:.3f}")
selection_rate            (tp + fp) / n             0.400
base_rate                 (tp + fn) / n             0.500
true_positive_rate        tp / (tp + fn)            0.600
false_positive_rate       fp / (fp + tn)            0.200
true_negative_rate        tn / (fp + tn)            0.800
false_negative_rate       fn / (tp + fn)            0.400
positive_predictive_value tp / (tp + fp)            0.750
accuracy                  (tp + tn) / n             0.700
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types import Array
from .counts import COLUMNS, FN, FP, TN, TP, as_table

Rate = Callable[[Any], Array]


@dataclass(frozen=True, slots=True)
class Fraction:
    """Which cells of a table a rate counts, out of which; ``empty`` says what is lacking when there are none."""

    part: tuple[int, ...]
    whole: tuple[int, ...]
    empty: str

    def hits(self, table: Any) -> Array:
        """Return the numerator, (..., G)."""
        return np.asarray(as_table(table)[..., self.part].sum(-1))

    def trials(self, table: Any) -> Array:
        """Return the denominator, (..., G)."""
        return np.asarray(as_table(table)[..., self.whole].sum(-1))

    def __call__(self, table: Any) -> Array:
        """Return hits / trials, NaN where there are no trials."""
        n = self.trials(table)
        return np.asarray(np.divide(self.hits(table), n, out=np.full(n.shape, np.nan), where=n > 0))

    @property
    def formula(self) -> str:
        """Return the fraction in words, such as ``tp / (tp + fn)``."""
        return f"{_sum(self.part)} / {_sum(self.whole)}"


def _sum(cells: tuple[int, ...]) -> str:
    if len(cells) == len(COLUMNS):
        return "n"
    words = " + ".join(COLUMNS[c] for c in cells)
    return words if len(cells) == 1 else f"({words})"


_ALL = (TP, FP, TN, FN)
_SELECTED = Fraction((TP, FP), _ALL, "no rows")
_BASE = Fraction((TP, FN), _ALL, "no rows")
_TPR = Fraction((TP,), (TP, FN), "no positives")
_FPR = Fraction((FP,), (FP, TN), "no negatives")
_TNR = Fraction((TN,), (FP, TN), "no negatives")
_FNR = Fraction((FN,), (TP, FN), "no positives")
_PPV = Fraction((TP,), (TP, FP), "nobody predicted positive")
_ACC = Fraction((TP, TN), _ALL, "no rows")


def selection_rate(counts: Any) -> Array:
    """Share predicted positive, (tp + fp) / n; NaN for a group without rows."""
    return _SELECTED(counts)


def base_rate(counts: Any) -> Array:
    """Share truly positive, (tp + fn) / n; NaN for a group without rows."""
    return _BASE(counts)


def true_positive_rate(counts: Any) -> Array:
    """Share of the positives that were found, tp / (tp + fn); NaN for a group without positives.

    Examples
    --------
    >>> true_positive_rate([[3, 0, 0, 1], [0, 2, 2, 0]])
    array([0.75,  nan])
    """
    return _TPR(counts)


def false_positive_rate(counts: Any) -> Array:
    """Share of the negatives that were predicted positive, fp / (fp + tn); NaN for a group without negatives."""
    return _FPR(counts)


def true_negative_rate(counts: Any) -> Array:
    """Share of the negatives predicted negative, tn / (fp + tn); NaN for a group without negatives."""
    return _TNR(counts)


def false_negative_rate(counts: Any) -> Array:
    """Share of the positives that were missed, fn / (tp + fn); NaN for a group without positives."""
    return _FNR(counts)


def positive_predictive_value(counts: Any) -> Array:
    """Share of those predicted positive who are (precision), tp / (tp + fp); NaN where nobody is predicted positive."""
    return _PPV(counts)


def accuracy(counts: Any) -> Array:
    """Share predicted rightly in each group, (tp + tn) / n; NaN for a group without rows."""
    return _ACC(counts)


FRACTIONS: Mapping[Rate, Fraction] = {
    selection_rate: _SELECTED,
    base_rate: _BASE,
    true_positive_rate: _TPR,
    false_positive_rate: _FPR,
    true_negative_rate: _TNR,
    false_negative_rate: _FNR,
    positive_predictive_value: _PPV,
    accuracy: _ACC,
}
"""Numerator, denominator and the reason for 0/0 of every rate."""

__all__ = [
    "accuracy",
    "base_rate",
    "false_negative_rate",
    "false_positive_rate",
    "positive_predictive_value",
    "selection_rate",
    "true_negative_rate",
    "true_positive_rate",
]
