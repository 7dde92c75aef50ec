"""Fairness as counting: tables, rates, reductions over groups or clients, named metrics, intervals.

>>> table = counts([1, 1, 0, 1, 1, 0], [1, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1], groups=2)
>>> float(equal_opportunity_difference(table)), float(accuracy(table))
(0.5, 0.6666666666666666)
"""

from __future__ import annotations

from . import named, rates, reductions
from .counts import COLUMNS, counts, counts_by, hits
from .dispersion import Dispersion, dispersion
from .door import Encoded, encode
from .explain import Figure, definition, explain
from .intervals import Interval, bootstrap, limits, resample, wilson
from .named import (
    accuracy,
    accuracy_difference,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equalized_odds_difference,
    equalized_odds_mean,
    false_positive_rate_difference,
    four_fifths_ratio,
    predictive_parity_difference,
    statistical_parity_difference,
    worst_group_accuracy,
)
from .rates import (
    base_rate,
    false_negative_rate,
    false_positive_rate,
    positive_predictive_value,
    selection_rate,
    true_negative_rate,
    true_positive_rate,
)
from .reductions import (
    coefficient_of_variation,
    gap,
    gini,
    highest,
    jain,
    mean,
    mean_absolute_difference,
    ratio,
    sen_welfare,
    signed_gap,
    worst,
)

__all__ = [
    "COLUMNS",
    "Dispersion",
    "Encoded",
    "Figure",
    "Interval",
    "accuracy",
    "accuracy_difference",
    "base_rate",
    "bootstrap",
    "coefficient_of_variation",
    "counts",
    "counts_by",
    "definition",
    "dispersion",
    "encode",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_mean",
    "explain",
    "false_negative_rate",
    "false_positive_rate",
    "false_positive_rate_difference",
    "four_fifths_ratio",
    "gap",
    "gini",
    "highest",
    "hits",
    "jain",
    "limits",
    "mean",
    "mean_absolute_difference",
    "named",
    "positive_predictive_value",
    "predictive_parity_difference",
    "rates",
    "ratio",
    "reductions",
    "resample",
    "selection_rate",
    "sen_welfare",
    "signed_gap",
    "statistical_parity_difference",
    "true_negative_rate",
    "true_positive_rate",
    "wilson",
    "worst",
    "worst_group_accuracy",
]
