"""Attacks on a federation: what hostile clients send."""

from .updates import both, inflate

__all__ = ["both", "inflate"]
