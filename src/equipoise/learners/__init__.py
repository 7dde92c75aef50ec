"""Local training: every client of every run is a slot of one stacked program, or one after another in a plain loop."""

from .figures import figures_of
from .looking import cosines, features, losses
from .parts import layouts
from .private import Private, gradient_norms
from .stacked import stacked

__all__ = ["Private", "cosines", "features", "figures_of", "gradient_norms", "layouts", "losses", "stacked"]
