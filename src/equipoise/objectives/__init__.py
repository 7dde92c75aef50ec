"""Terms of the local loss: a client minimises the sum of its coefficients times these.

A term maps a ``Local`` to one number per slot, (S,). It is finite on every slot, also on those whose coefficient is
0: where something does not exist (one group only in the batch), the term is 0 and so is its gradient. A name whose
first parameter is ``module`` makes the term for that model. One file per family; an adversary's are in ``bias``.
"""

from __future__ import annotations

from .align import align
from .bias import disparity, gaming
from .closeness import proximal
from .lipschitz import lipschitz_code, lipschitz_paper
from .task import cross_entropy
from .task import cross_entropy_slope as cross_entropy_slope
from .task import with_slope as with_slope

__all__ = ["align", "cross_entropy", "disparity", "gaming", "lipschitz_code", "lipschitz_paper", "proximal"]
