"""The named metrics: reduction of a rate over groups, (..., G, 4) -> (...). ``__all__`` is the catalogue.

A metric is any function of that shape; NaN = undefined. Those in ``ANATOMY`` are ``reduction(rate(table))``, from which
explanations and intervals come. All of them on two groups, to check by hand: TPR 3/4 and 1/4, FPR 1/4 and 1/4.

>>> table = np.array([[3, 1, 3, 1], [1, 1, 3, 3]])
>>> for name in __all__:
...     print(f"{name:32}{globals()[name](table):.3f}")
accuracy                        0.625
accuracy_difference             0.250
equal_opportunity_difference    0.500
equal_opportunity_ratio         0.333
equalized_odds_difference       0.500
equalized_odds_mean             0.250
false_positive_rate_difference  0.000
four_fifths_ratio               0.500
predictive_parity_difference    0.250
statistical_parity_difference   0.250
worst_group_accuracy            0.500
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types import Array
from . import rates
from .counts import as_table
from .rates import Rate
from .reductions import gap, ratio, worst

__all__ = [
    "accuracy",
    "accuracy_difference",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_mean",
    "false_positive_rate_difference",
    "four_fifths_ratio",
    "predictive_parity_difference",
    "statistical_parity_difference",
    "worst_group_accuracy",
]

Metric = Callable[[Any], Array]


def accuracy(counts: Any) -> Array:
    """Share of all rows predicted rightly, whatever their group: (tp + tn) / n from summed counts; high is good."""
    return rates.accuracy(as_table(counts).sum(-2))


def worst_group_accuracy(counts: Any) -> Array:
    """Lowest accuracy of a group; high is good; NaN where no group has rows."""
    return worst(rates.accuracy(counts))


def accuracy_difference(counts: Any) -> Array:
    """Gap (max - min over groups) of accuracy; low is good."""
    return gap(rates.accuracy(counts))


def statistical_parity_difference(counts: Any) -> Array:
    """Gap (max - min over groups) of the selection rate; low is good.

    Also called demographic parity difference. Unsigned; ``reductions.signed_gap`` gives a sign against a reference.
    """
    return gap(rates.selection_rate(counts))


def four_fifths_ratio(counts: Any) -> Array:
    """Lowest selection rate over the highest; high is good; NaN where nobody is selected (0/0).

    Source: the four-fifths rule of the US Uniform Guidelines, 29 CFR 1607.4(D), on rates of the favourable decision.
    """
    return ratio(rates.selection_rate(counts))


def equal_opportunity_difference(counts: Any) -> Array:
    """Gap (max - min over groups) of the true positive rate; low is good.

    Returns
    -------
    (...); NaN where fewer than two groups have positives (some libraries say 0 or 1 there)

    References
    ----------
    Hardt, Price and Srebro, Equality of opportunity in supervised learning, 2016. Unsigned, over any number of groups.

    Examples
    --------
    >>> equal_opportunity_difference([[2, 1, 1, 0], [1, 1, 0, 1], [0, 1, 2, 0]]).item()
    0.5
    """
    return gap(rates.true_positive_rate(counts))


def equal_opportunity_ratio(counts: Any) -> Array:
    """Lowest true positive rate over the highest; high is good; NaN where nobody is found (0/0)."""
    return ratio(rates.true_positive_rate(counts))


def false_positive_rate_difference(counts: Any) -> Array:
    """Gap (max - min over groups) of the false positive rate (predictive equality); low is good."""
    return gap(rates.false_positive_rate(counts))


def equalized_odds_difference(counts: Any) -> Array:
    """Larger of the TPR gap and the FPR gap; low is good.

    Undefined if one of the two is, unless the other is already 1.

    Examples
    --------
    >>> equalized_odds_difference([[[1, 0, 1, 0], [0, 1, 1, 0]], [[1, 0, 1, 0], [0, 1, 0, 0]]])
    array([nan,  1.])
    """
    t, f = equal_opportunity_difference(counts), false_positive_rate_difference(counts)
    return np.where((t == 1) | (f == 1), 1.0, np.maximum(t, f))


def equalized_odds_mean(counts: Any) -> Array:
    """Mean of the TPR gap and the FPR gap, both unsigned; low is good; undefined if one of the two is."""
    return (equal_opportunity_difference(counts) + false_positive_rate_difference(counts)) / 2


def predictive_parity_difference(counts: Any) -> Array:
    """Gap (max - min over groups) of the positive predictive value; low is good."""
    return gap(rates.positive_predictive_value(counts))


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What a metric is made of: its rates, the reduction over groups, and how several parts are joined."""

    rates: tuple[Rate, ...]
    reduction: Callable[[Any], Array]
    join: str = ""


ANATOMY: Mapping[Metric, Anatomy] = {
    worst_group_accuracy: Anatomy((rates.accuracy,), worst),
    accuracy_difference: Anatomy((rates.accuracy,), gap),
    statistical_parity_difference: Anatomy((rates.selection_rate,), gap),
    four_fifths_ratio: Anatomy((rates.selection_rate,), ratio),
    equal_opportunity_difference: Anatomy((rates.true_positive_rate,), gap),
    equal_opportunity_ratio: Anatomy((rates.true_positive_rate,), ratio),
    false_positive_rate_difference: Anatomy((rates.false_positive_rate,), gap),
    equalized_odds_difference: Anatomy((rates.true_positive_rate, rates.false_positive_rate), gap, "larger"),
    equalized_odds_mean: Anatomy((rates.true_positive_rate, rates.false_positive_rate), gap, "mean"),
    predictive_parity_difference: Anatomy((rates.positive_predictive_value,), gap),
}
"""The parts of each metric that is a reduction of rates over groups."""

HIGH_IS_GOOD = frozenset({accuracy, worst_group_accuracy, four_fifths_ratio, equal_opportunity_ratio})
"""Metrics that a limit bounds from below; the others are bounded from above."""
