"""What every test may use: real data and the handed cases, where they lie on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

# Small programs on busy cores: a second thread makes them slower by far. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder with german/, adult/, compas/ ... in their original form; the test is skipped where it is absent."""
    folder = Path(os.environ.get("EQUIPOISE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder {folder}; set EQUIPOISE_DATA")
    return folder


@pytest.fixture(scope="session")
def handed() -> dict[str, dict[str, Any]]:
    """Small inputs with right answers, worked out by hand: id -> case; skipped where the file is absent."""
    path = Path(os.environ.get("EQUIPOISE_CASES", ROOT.parent / "shared" / "cases" / "handed.json"))
    if not path.is_file():
        pytest.skip(f"no cases file {path}; set EQUIPOISE_CASES")
    return {case["id"]: case for case in json.loads(path.read_text())}
