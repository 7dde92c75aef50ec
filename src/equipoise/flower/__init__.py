"""Studies on Flower: the same runs, folders and bits, with clients on other machines. Needs ``equipoise[flower]``."""

from ..checks import extra

extra("flwr", "flower")

from .client import client_app, curvature_record, fairness_record  # noqa: E402
from .local import LocalGrid, run_locally  # noqa: E402
from .server import server_app  # noqa: E402
from .strategy import AggregatorStrategy  # noqa: E402

__all__ = [
    "AggregatorStrategy",
    "LocalGrid",
    "client_app",
    "curvature_record",
    "fairness_record",
    "run_locally",
    "server_app",
]
