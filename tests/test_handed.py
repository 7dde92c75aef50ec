"""No handed case is forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Cases = dict[str, dict[str, Any]]


def test_every_handed_case_has_a_test(handed: Cases) -> None:
    text = "\n".join(p.read_text() for p in Path(__file__).parent.rglob("test_*.py"))
    assert {h for h in handed if not re.search(rf"\b{h}\b|_{h}\b|_{h}_|\b{h}_", text)} == set()
