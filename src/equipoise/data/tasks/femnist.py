"""FEMNIST: 28 x 28 images of digits and letters with their writers, in LEAF's JSON or from flwr-datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import numpy as np

from ...checks import BadInput, MissingExtra
from ...types import Array
from ..images import pixels
from ..task import Arrays, File, Get, Task

CLASSES = digits + ascii_uppercase + ascii_lowercase
SIZE = 28 * 28
PARTS = {"both": ("train", "test"), "train": ("train",), "test": ("test",)}
HUB = "flwrlabs/femnist"
"""Where flwr-datasets gets it: all rows in one part, with the columns image, writer_id and character."""


def _read(get: Get, options: Mapping[str, Any]) -> Arrays:
    if options["source"] == "leaf":
        x, y, writers, log = _leaf(get, PARTS[options["part"]])
    elif options["part"] == "both":
        x, y, writers, log = _hub()
    else:
        raise BadInput(f"{HUB} is not divided into train and test; leave part out, or take source = 'leaf'")
    return Arrays(x, y, log, np.char.add("writer ", writers), shape=(1, 28, 28))


def _leaf(get: Get, parts: tuple[str, ...]) -> tuple[Array, Array, Array, list[str]]:
    """Read LEAF's files one after another; a writer may have rows in several of them."""
    x, y, writers, log = [], [], [], []
    for part in parts:
        for name in get.every(f"{part}/*.json") or get(f"{part}/*.json")[:1]:
            for writer, images, labels in leaf(*get(name)):
                x.append(images)
                y.append(labels)
                writers += [writer] * len(labels)
        log.append(f"{part}: {len(writers):,} images of {len(set(writers)):,} writers so far")
    return np.concatenate(x), np.concatenate(y), np.array(writers), log


def leaf(what: str, data: bytes) -> list[tuple[str, Array, Array]]:
    """Read one of LEAF's JSON files: of each writer the name, images (n, 784) float32 in 0..1 and labels (n,)."""
    try:
        known = json.loads(data)
    except ValueError as e:
        raise BadInput(f"{what} is no whole JSON ({e}); make it again") from None
    try:
        users, rows = known["users"], known["user_data"]
        found = [(str(user), rows[user], n) for user, n in zip(users, known["num_samples"], strict=True)]
    except (KeyError, TypeError, ValueError) as e:
        raise BadInput(
            f"{what} is not LEAF's JSON: users, num_samples and user_data do not fit together ({e})"
        ) from None
    if not found:
        raise BadInput(f"{what} names no users; make it again, or remove it")
    return [(user, *_rows(f"{what}: writer {user}", own, n)) for user, own, n in found]


def _rows(what: str, rows: Any, n: Any) -> tuple[Array, Array]:
    try:
        x, y = np.array(rows["x"], np.float32), np.array(rows["y"])
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{what} lacks rows of numbers under x or y; make the file again") from None
    if x.shape != (n, SIZE) or y.shape != (n,):
        raise BadInput(f"{what} should have {n} images of {SIZE} numbers, and has x {x.shape} and y {y.shape}")
    if not ((x >= 0) & (x <= 1)).all():
        raise BadInput(f"{what} has pixels outside 0..1; make the file again")
    if y.dtype.kind != "i" or y.min(initial=0) < 0 or y.max(initial=0) >= len(CLASSES):
        raise BadInput(f"{what} has labels that are not whole numbers in 0..{len(CLASSES) - 1}; make the file again")
    return x, y.astype(np.int64)


def _hub() -> tuple[Array, Array, Array, list[str]]:
    """Read the data set through flwr-datasets, which downloads it or takes it from the cache of Hugging Face."""
    try:
        dataset = import_module("flwr_datasets").FederatedDataset
    except ModuleNotFoundError as e:
        if e.name != "flwr_datasets":
            raise
        raise MissingExtra(
            "flwr_datasets is not installed; install it with: pip install flwr-datasets pillow"
        ) from None
    try:
        rows = dataset(dataset=HUB, partitioners={}, shuffle=False).load_split("train")
    except OSError as e:
        raise BadInput(f"{HUB} cannot be fetched ({e}); run once with a network, or take source = 'leaf'") from None
    images, y, writers = [], [], []
    for start in range(0, len(rows), 1000):  # decoded images take far more room than their pixels
        some = rows[start : start + 1000]
        images += [np.asarray(image.convert("L")) for image in some["image"]]
        y += some["character"]
        writers += some["writer_id"]
    log = [f"{len(y):,} images of {len(set(writers)):,} writers read from {HUB} through flwr-datasets"]
    return pixels(np.stack(images)), np.array(y, np.int64), np.array(writers), log


FEMNIST = Task(
    name="femnist",
    title="FEMNIST: Extended MNIST by writer (LEAF)",
    target="character",
    labels={name: i for i, name in enumerate(CLASSES)},
    meaning="the digit or letter that was written",
    rows=805263,
    faults=(
        "capital and small letters that look alike (C and c, O and o and 0) are classes of their own",
        "LEAF draws a sample of the writers and divides it into train and test by flags of its own: a folder is only "
        "comparable with another one made with the same flags",
        "all of it is 2.5 GB in memory, and LEAF's JSON a multiple of that while it is read: take a sample of writers",
        "flwr-datasets tells its makers that it was called, unless FLWR_TELEMETRY_ENABLED=0 is set",
    ),
    licence="none stated; it is cut from NIST Special Database 19",
    source="https://github.com/TalwalkarLab/leaf/tree/master/data/femnist (preprocess.sh makes the files)",
    citation="Caldas et al. (2018), LEAF: A Benchmark for Federated Settings; Cohen et al. (2017), EMNIST",
    files=(File("train/*.json"), File("test/*.json")),
    read=_read,
    options={"source": ("leaf", "flwr-datasets"), "part": ("both", "train", "test")},
    folders=("femnist/data", "leaf/data/femnist/data"),
)
