"""CIFAR-10: 32 x 32 colour images of ten kinds of things, as Python batches, as binary batches or as a zip of JPEGs."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...checks import BadInput, extra
from ...types import Array
from ..files import members
from ..images import pixels
from ..task import Arrays, File, Get, Task

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
SIZE = 3 * 32 * 32
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
PARTS = {"train": ("train",), "test": ("test",), "both": ("train", "test")}
ZIPS = ("cifar10_jpeg_subset.zip", "CIFAR-10-images-master.zip", "CIFAR-10-images.zip")

Images = tuple[Array, Array]
"""Images (n, 3072) uint8, channels first, and their labels (n,)."""


def _read(get: Get, options: Mapping[str, Any]) -> Arrays:
    parts = PARTS[options["part"]]
    first, *others = [batch for part in parts for batch in BATCHES[part]]
    name, data = get(first, f"{first}.bin", *ZIPS)
    if name in ZIPS:
        x, y = jpegs(name, data, parts)
        how = "JPEG copies, which lose a little,"
    else:
        read, ending = (binary, ".bin") if name.endswith(".bin") else (batch, "")
        batches = [read(name, data), *(read(*get(other + ending)) for other in others)]
        x, y = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        how = "images"
    if y.max(initial=0) >= len(CLASSES) or y.min(initial=0) < 0:
        row = int(np.argmax((y >= len(CLASSES)) | (y < 0)))
        raise BadInput(f"{name}: image {row + 1} has the label {y[row]}; classes are 0 to 9, get the files again")
    log = [f"{' and '.join(parts)}: {len(y):,} {how} of 32 x 32 in colour, 0..255 divided by 255"]
    return Arrays(pixels(x), y.astype(np.int64), log, shape=SHAPE)


def binary(what: str, data: bytes) -> Images:
    """Read a binary batch: for each image one byte of label, then 3072 of pixels."""
    if len(data) % (SIZE + 1):
        raise BadInput(f"{what} is no multiple of {SIZE + 1} bytes long; it is cut off, get it again")
    rows = np.frombuffer(data, np.uint8).reshape(-1, SIZE + 1)
    return rows[:, 1:], rows[:, 0]


_PLAIN = (
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING",
    "SHORT_BINBYTES", "BINBYTES", "BINUNICODE", "NONE", "NEWTRUE", "NEWFALSE", "BINPUT", "LONG_BINPUT", "BINGET",
    "LONG_BINGET", "GLOBAL", "REDUCE", "BUILD",
)  # fmt: skip
_NUMPY = (
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
    "numpy ndarray",
    "numpy dtype",
)


def batch(what: str, data: bytes) -> Images:
    """Read a Python batch without unpickling it: its codes are walked through, and nothing is called.

    A batch is a pickled dict. The bytes of ``data`` and the numbers of ``labels`` are taken as they stand; whatever
    else a pickle can hold, such as the name of a function outside NumPy's arrays, is refused.
    """
    key, before, pixels_, labels = "", "", b"", []
    try:
        for code, value, _ in pickletools.genops(data):
            if code.name not in _PLAIN or (code.name == "GLOBAL" and value not in _NUMPY):
                shown = value if code.name == "GLOBAL" else code.name
                raise BadInput(f"{what} holds {shown!r}, which no CIFAR-10 batch has; it is not loaded, get it again")
            if isinstance(value, bytes | str) and code.name != "GLOBAL":
                found = value if isinstance(value, bytes) else value.encode("latin-1", "replace")
                if found in (b"data", b"labels", b"filenames", b"batch_label"):
                    key = found.decode()
                elif key == "data" and len(found) >= SIZE and before == "NEWFALSE":  # not in Fortran's order
                    pixels_ = found
            elif key == "labels" and code.name in ("BININT", "BININT1", "BININT2"):
                labels.append(value)
            before = code.name
    except (ValueError, IndexError, UnicodeDecodeError) as e:
        if isinstance(e, BadInput):
            raise
        raise BadInput(
            f"{what} is no whole Python batch ({e}); it is cut off or something else, get it again"
        ) from None
    if not labels or len(pixels_) != len(labels) * SIZE:
        raise BadInput(
            f"{what} has {len(labels)} labels and {len(pixels_):,} bytes of images, not {SIZE} for each; get it again"
        )
    return np.frombuffer(pixels_, np.uint8).reshape(-1, SIZE), np.array(labels)


def jpegs(what: str, data: bytes, parts: Sequence[str]) -> Images:
    """Read a zip of images at ``train/CLASS/NAME.jpg`` and ``test/CLASS/NAME.jpg``, in the order of their paths."""
    found = sorted(_of_parts(what, data, parts), key=lambda image: image[0])
    if not found:
        raise BadInput(f"{what} holds no image at {parts[0]}/{CLASSES[0]}/NAME.jpg or of another class; get it again")
    return np.stack([image for _, _, image in found]), np.array([label for _, label, _ in found])


def _of_parts(what: str, data: bytes, parts: Sequence[str]) -> Iterator[tuple[tuple[str, ...], int, Array]]:
    pillow = extra("PIL.Image", "images")
    for path, content in members(data):
        where = tuple(path.split("/")[-3:])
        if len(where) < 3 or where[0] not in parts or where[1] not in CLASSES or not path.endswith(".jpg"):
            continue
        try:
            with pillow.open(io.BytesIO(content())) as image:
                if image.size != (32, 32):
                    raise BadInput(f"{what}: {path} is {image.width} x {image.height}, not 32 x 32; get it again")
                values = np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError) as e:
            raise BadInput(f"{what}: {path} is no readable image ({e}); get the zip again") from None
        yield where, CLASSES.index(where[1]), values.transpose(2, 0, 1).reshape(-1)


_SITE = "https://www.cs.toronto.edu/~kriz"
_NAMES = tuple(name for names in BATCHES.values() for name in names)

CIFAR10 = Task(
    name="cifar10",
    title="CIFAR-10",
    target="class",
    labels={name: i for i, name in enumerate(CLASSES)},
    meaning="what the image shows",
    rows=60000,
    faults=(
        "some test images have near duplicates among the train images (Barz and Denzler 2020, ciFAIR)",
        "a zip of JPEG copies is lossy: its standard deviations are about 1 % below the published ones",
        "the Python batches are pickles: they are read code by code, and never loaded",
    ),
    licence="none stated by its authors",
    source=f"{_SITE}/cifar.html",
    citation="Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, University of Toronto",
    files=(
        *(File(n, url=f"{_SITE}/cifar-10-python.tar.gz", archives=("cifar-10-python.tar.gz",)) for n in _NAMES),
        *(
            File(f"{n}.bin", url=f"{_SITE}/cifar-10-binary.tar.gz", archives=("cifar-10-binary.tar.gz",))
            for n in _NAMES
        ),
        File(ZIPS[0], "73de9071177b19dc09955a6ec56ed0dcf36735b85e995f700c2d97ba8c193598"),
        *(File(name) for name in ZIPS[1:]),
    ),
    read=_read,
    options={"part": ("train", "test", "both")},
    folders=(
        "cifar10/cifar-10-batches-py",
        "cifar-10-batches-py",
        "cifar10/cifar-10-batches-bin",
        "cifar-10-batches-bin",
    ),
)
