"""Equipoise: fair weights for federated learning."""

__version__ = "0.1.0"
