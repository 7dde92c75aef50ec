"""Laws here are fast, the machine may not be: no deadline per example."""

from hypothesis import settings

settings.register_profile("metrics", deadline=None)
settings.load_profile("metrics")
