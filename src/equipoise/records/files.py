"""Files that are whole at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes | str) -> None:
    """Put a file in the place of another in one step: a process killed in the middle leaves the old one whole.

    Text is written in UTF-8. The data are on the disk before the name is.
    """
    part = path.with_name(path.name + ".part")
    with part.open("wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)
        f.flush()
        os.fsync(f.fileno())
    part.replace(path)
