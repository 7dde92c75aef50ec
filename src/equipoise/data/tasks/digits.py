"""Digits: 8 x 8 images of handwritten digits, which come with scikit-learn, so that no download is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...checks import extra
from ..images import pixels
from ..task import Arrays, Get, Task


def _read(get: Get, options: Mapping[str, Any]) -> Arrays:
    sklearn = extra("sklearn", "privacy")
    x, y = extra("sklearn.datasets", "privacy").load_digits(return_X_y=True)
    log = [f"{len(y):,} images of 8 x 8 read from scikit-learn {sklearn.__version__}, 0..16 divided by 16"]
    return Arrays(pixels(x, 16), np.asarray(y, np.int64), log, shape=(1, 8, 8))


DIGITS = Task(
    name="digits",
    title="Optical recognition of handwritten digits (the test part, as scikit-learn has it)",
    target="digit",
    labels={str(i): i for i in range(10)},
    meaning="the digit that was written",
    rows=1797,
    faults=(
        "13 people wrote these images, but the file does not say who wrote which: there are no natural clients",
        "it is the test part of the published set; the 3,823 images of 30 other people are not in scikit-learn",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    citation="Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI",
    library=("sklearn", "privacy"),
    read=_read,
)
