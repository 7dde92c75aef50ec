"""From rules to aggregators: one weighted sum, one clip, one policy for undefined scores; and FairFed, which has state.

Everything here takes functions (a rule, a score, a metric) and gives ``types.Aggregator``. State is JSON, keyed by
client id; nothing is logged: what happened is in the info of the step. Input arrays are never written to, and the same
reports give the same bits.
"""

from __future__ import annotations

from ._around import misassigned, telling
from ._equidistant import equidistant
from ._fairfed import fairfed, fairfed_gaps, fairfed_step
from ._lift import UNDEFINED, on_simplex, robust, weighted
from ._private import alone, central_dp, noise_sds, sensitivity
from ._sums import clip_factors, mean, norms

__all__ = [
    "UNDEFINED",
    "alone",
    "central_dp",
    "clip_factors",
    "equidistant",
    "fairfed",
    "fairfed_gaps",
    "fairfed_step",
    "mean",
    "misassigned",
    "noise_sds",
    "norms",
    "on_simplex",
    "robust",
    "sensitivity",
    "telling",
    "weighted",
]
