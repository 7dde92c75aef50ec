"""Tests of data see only what they ask for: no folder from the environment, no cache of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from equipoise.data import fetch as _fetch  # noqa: F401  (the module must be loaded before it is patched)
from equipoise.data import files


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.delenv("EQUIPOISE_DATA", raising=False)
    monkeypatch.setattr(files, "cache_folder", lambda: folder)
    return folder
