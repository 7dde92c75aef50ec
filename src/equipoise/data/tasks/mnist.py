"""MNIST: 28 x 28 images of handwritten digits, in the IDX files of its authors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...checks import BadInput
from ...types import Array
from ..images import pixels
from ..task import Arrays, File, Get, Task

PARTS = {"train": ("train",), "test": ("t10k",), "both": ("train", "t10k")}


def idx(what: str, data: bytes, dimensions: int) -> Array:
    """Read an IDX file of bytes: two zeros, the type 8, the number of dimensions, their sizes (big endian), the values.

    Examples
    --------
    >>> idx("labels", bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]), 1)
    array([7, 2, 1], dtype=uint8)
    """
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes([0, 0, 8, dimensions]):
        raise BadInput(f"{what} is no IDX file of bytes with {dimensions} dimensions; get it again")
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
    if len(data) - start != math.prod(shape):
        size = " x ".join(map(str, shape))
        raise BadInput(f"{what} says {size} values and holds {len(data) - start:,}; it is cut off, get it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read(get: Get, options: Mapping[str, Any]) -> Arrays:
    images: list[Array] = []
    labels: list[Array] = []
    log = []
    for part in PARTS[options["part"]]:
        names = []
        for kind, dimensions, into in (("images", 3, images), ("labels", 1, labels)):
            name, data = get(f"{part}-{kind}-idx{dimensions}-ubyte", f"{part}-{kind}.idx{dimensions}-ubyte")
            into.append(idx(name, data, dimensions))
            names.append(name)
        if images[-1].shape[1:] != (28, 28):
            raise BadInput(f"{names[0]} holds images of {images[-1].shape[1:]}, not 28 x 28; get it again")
        if len(images[-1]) != len(labels[-1]):
            raise BadInput(
                f"{names[0]} has {len(images[-1])} images and {names[1]} {len(labels[-1])} labels; "
                "take both from one source"
            )
        if labels[-1].max(initial=0) > 9:
            row = int(np.argmax(labels[-1] > 9))
            raise BadInput(f"{names[1]} holds the label {labels[-1][row]} in row {row + 1}; digits are 0 to 9")
        log.append(f"{len(labels[-1]):,} images of 28 x 28 read, 0..255 divided by 255")
    return Arrays(pixels(np.concatenate(images)), np.concatenate(labels).astype(np.int64), log, shape=(1, 28, 28))


_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
_HASHES = {
    "train-images-idx3-ubyte": "",
    "train-labels-idx1-ubyte": "",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

MNIST = Task(
    name="mnist",
    title="MNIST database of handwritten digits",
    target="digit",
    labels={str(i): i for i in range(10)},
    meaning="the digit that was written",
    rows=70000,
    faults=(
        "about 250 people wrote the train images and 250 others the test images, but the files do not say who wrote "
        "which: there are no natural clients",
    ),
    licence="usually given as CC BY-SA 3.0",
    source="http://yann.lecun.com/exdb/mnist/",
    citation="LeCun, Bottou, Bengio and Haffner (1998), Gradient-Based Learning Applied to Document Recognition, "
    "Proceedings of the IEEE 86",
    files=tuple(File(name, digest, f"{_MIRROR}/{name}.gz") for name, digest in _HASHES.items()),
    read=_read,
    options={"part": ("train", "test", "both")},
    folders=("mnist_test", "MNIST/raw"),
)
