"""Handed cases of capabilities that are still to come: expected to fail, and to be replaced once they exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Cases = dict[str, dict[str, Any]]


@pytest.mark.xfail(raises=ImportError, strict=True, reason="to come: spectral norms and Jacobian regularisation (FinP)")
def test_h15_jacobian(handed: Cases) -> None:
    from equipoise.curvature import spectral_norm  # type: ignore[import-not-found]

    case, expected = handed["h15"]["input"]["cases"][0], handed["h15"]["expected"]["cases"][0]
    assert spectral_norm(np.array(case["W"], float)) == pytest.approx(expected["spectral_norm"])


@pytest.mark.xfail(raises=ImportError, strict=True, reason="to come: Hessian eigenvalues and trace (FinP's curvature)")
def test_h21_hessian(handed: Cases) -> None:
    from equipoise.curvature import top_eigenvalue  # type: ignore[import-not-found]

    quadratic = np.diag([3.0, -5.0, 1.0])
    expected = handed["h21"]["expected"]["cases"][0]
    assert top_eigenvalue(quadratic, by="magnitude") == pytest.approx(expected["top_by_magnitude"], abs=1e-3)


def test_every_handed_case_has_a_test(handed: Cases) -> None:
    text = "\n".join(p.read_text() for p in Path(__file__).parent.rglob("test_*.py"))
    assert {h for h in handed if not re.search(rf"\b{h}\b|_{h}\b|_{h}_|\b{h}_", text)} == set()
