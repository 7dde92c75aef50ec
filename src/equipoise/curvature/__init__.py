"""How sharply a client's loss curves at its model: top Hessian eigenvalue, trace, and the spectral norms of layers."""

from __future__ import annotations

from .jacobian import jacobian_norm as jacobian_norm
from .lanczos import random_start as random_start
from .lanczos import top_eigenpair as top_eigenpair
from .lanczos import top_eigenvalue as top_eigenvalue
from .layers import layer_norms as layer_norms
from .layers import linear_maps as linear_maps
from .layers import lipschitz as lipschitz
from .layers import lipschitz_of as lipschitz_of
from .layers import spectral_norm as spectral_norm
from .layers import spectral_norms as spectral_norms
from .measures import exact as exact
from .measures import fast as fast
from .products import hessian_product as hessian_product
from .traces import hutchinson as hutchinson
