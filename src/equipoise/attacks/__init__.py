"""Attacks on a federation: what hostile clients send."""

from .claims import claim_flat, claim_huge, claim_median
from .updates import both as both
from .updates import inflate

__all__ = ["claim_flat", "claim_huge", "claim_median", "inflate"]
