"""Attacks on a federation: what hostile clients send."""

from .updates import *  # noqa: F403 (the catalogue of that file is the one of this room)
from .updates import __all__ as __all__
from .updates import both as both
