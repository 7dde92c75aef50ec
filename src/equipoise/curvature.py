"""How sharply a client's loss curves at its model: top Hessian eigenvalue, trace, and the spectral norms of layers."""
