"""Attacks on privacy: whose a record is (source inference), and whether it was trained on (membership inference).

The laboratory runs them on what a server sees. They change nothing in a round, so they are not in the catalogue of the
attacks that hostile clients run.

>>> source_inference([[0.1, 0.5], [0.9, 0.2]], owner=[0, 1])
array([1., 1.])
>>> auc(loss_scores([0.1, 0.2, 0.9]), member=[1, 1, 0])
1.0
"""

from .cosine import cosine_attack, cosine_features
from .lira import lira_offline, lira_online, logit_confidence, shadow_rows
from .membership import (
    Decisions,
    Leakage,
    Membership,
    advantage,
    auc,
    decisions,
    loss_scores,
    membership,
    roc,
    tpr_at,
)
from .source import (
    Exposure,
    Losses,
    credits,
    exposure,
    loss_dispersion,
    loss_matrix,
    source_inference,
    targets,
)
from .split import nearest_feature_losses, probe_head_losses

__all__ = [
    "Decisions",
    "Exposure",
    "Leakage",
    "Losses",
    "Membership",
    "advantage",
    "auc",
    "cosine_attack",
    "cosine_features",
    "credits",
    "decisions",
    "exposure",
    "lira_offline",
    "lira_online",
    "logit_confidence",
    "loss_dispersion",
    "loss_matrix",
    "loss_scores",
    "membership",
    "nearest_feature_losses",
    "probe_head_losses",
    "roc",
    "shadow_rows",
    "source_inference",
    "targets",
    "tpr_at",
]
