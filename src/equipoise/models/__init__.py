"""Models as functions that build a torch module; the catalogue is ``__all__``.

Rows arrive flat, (B, f); a model of images or signals gives them their shape again. Two classes have one logit a row,
C > 2 have C. One file per family; what travels of a model is in ``sharing``, a user's own in ``own``.
"""

from __future__ import annotations

from .convolutional import cnn, femnist_cnn, tcn
from .dense import logistic, mlp
from .own import checked as checked
from .own import load_factory as load_factory
from .residual import resnet
from .sharing import shared_names as shared_names
from .slimmable import Slimmable as Slimmable

__all__ = ["cnn", "femnist_cnn", "logistic", "mlp", "resnet", "tcn"]
