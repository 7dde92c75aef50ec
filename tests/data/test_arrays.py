"""Signals and images: every format in a tiny file of our own, hostile ones, and the real ones where they lie here."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sys
import types
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.data import TASKS, fit_scaling, groups_of, load, scale, where
from equipoise.data.tasks import cifar10, har, mnist


def present(folder: Path, *parts: str) -> Path:
    """The folder of one data set, or a skipped test."""
    place = folder.joinpath(*parts)
    if not place.exists():
        pytest.skip(f"no {place}")
    return place


# ------------------------------------------------------------------------------------------- what all have in common


def test_a_table_of_images_has_a_shape_and_classes():
    table = load("digits")
    assert (table.x.shape, table.x.dtype, table.shape) == ((1797, 64), np.float32, (1, 8, 8))
    assert table.classes == tuple("0123456789") and set(table.y) == set(range(10)) and table.y.dtype == np.int64
    assert table.x.min() == 0 and table.x.max() == 1 and table.features == () and table.client is None
    tabular = load("german")
    assert tabular.shape is None and tabular.classes == ("2", "1") and load("german", flip=True).classes == ("1", "2")


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    want = load_digits()
    table = load("digits")
    assert (table.x.reshape(want.images.shape) * 16 == want.images).all() and (table.y == want.target).all()
    assert where(TASKS["digits"]) == "sklearn"


def test_who_has_no_groups_is_one_group():
    table = load("digits")
    groups = groups_of(table)
    assert groups.names == ("everyone",) and not groups.codes.any() and len(groups.codes) == 1797
    assert "no sensitive attribute" in groups.log[0]
    with pytest.raises(BadInput, match="digits has no sensitive attribute at all, so not 'sex' either"):
        groups_of(table, "sex")


@pytest.mark.parametrize("kwargs", [{"add": ["a"]}, {"leave_out": ["a"]}, {"client": "a"}])
def test_arrays_have_no_columns(kwargs):
    with pytest.raises(BadInput, match="digits has no column 'a': it is read as arrays"):
        load("digits", **kwargs)


def test_many_classes_cannot_be_flipped():
    with pytest.raises(BadInput, match="flip swaps two classes, and digits has 10"):
        load("digits", flip=True)


def test_images_are_left_as_they_are_by_scaling():
    table = load("digits")
    scaled = scale(table.x, fit_scaling(table.x, table.numeric, np.arange(10)))
    assert scaled.dtype == np.float32 and (scaled == table.x).all() and scaled is not table.x


# ------------------------------------------------------------------------------------------- HAR


def ucihar(folder: Path, parts=(("train", [5, 1], [7, 11]), ("test", [6], [2]))) -> dict[str, np.ndarray]:
    """Write a folder in UCI's layout and number format; return the signals and features of each part."""
    rng = np.random.default_rng(0)
    written = {}

    def lines(path, values):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join("".join(f"{v:16.7e}"[:-2].rjust(13) + "0" + f"{v:.7e}"[-2:] for v in row) + "\n" for row in values)
        )

    for part, activities, subjects in parts:
        place = folder / part
        signals, features = rng.normal(size=(len(activities), 9, 128)), rng.uniform(-1, 1, (len(activities), 561))
        for i, name in enumerate(har.SIGNALS):
            lines(place / "Inertial Signals" / f"{name}_{part}.txt", signals[:, i])
        lines(place / f"X_{part}.txt", features)
        (place / f"y_{part}.txt").write_text("".join(f"{a}\n" for a in activities))
        (place / f"subject_{part}.txt").write_text("".join(f"{s}\n" for s in subjects))
        written[part] = signals, features
    (folder / "features.txt").write_text("".join(f"{i} f{i % 500}\n" for i in range(1, 562)))
    return written


def test_har_signals_and_features(tmp_path):
    written = ucihar(tmp_path / "har" / "UCI HAR Dataset")
    table = load("har", tmp_path)
    want = np.concatenate([written["train"][0], written["test"][0]])
    assert table.shape == (9, 128) and np.allclose(table.x.reshape(3, 9, 128), want, atol=1e-6)
    assert [table.classes[y] for y in table.y] == ["STANDING", "WALKING", "LAYING"]
    assert table.client.tolist() == ["subject 07", "subject 11", "subject 02"] and not table.numeric.any()
    assert "train: 2 windows of 2 subjects" in table.log and len(table.hashes) == 22
    test = load("har", tmp_path, part="test")
    assert len(test.y) == 1 and (test.x == table.x[2:]).all()
    features = load("har", tmp_path, features="561", part="train")
    assert np.allclose(features.x, written["train"][1], atol=1e-6) and features.x.dtype == np.float32
    assert features.shape is None and features.numeric.all() and len(set(features.features)) == 561


def test_har_from_a_zip_in_a_zip(tmp_path):
    ucihar(tmp_path / "UCI HAR Dataset")
    plain = load("har", tmp_path)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as z:
        for path in sorted((tmp_path / "UCI HAR Dataset").rglob("*.txt")):
            z.write(path, path.relative_to(tmp_path))
    (tmp_path / "har").mkdir()
    with zipfile.ZipFile(tmp_path / "har" / TASKS["har"].files[0].archives[0], "w") as z:
        z.writestr("UCI HAR Dataset.zip", inner.getvalue())
        z.writestr("UCI HAR Dataset.names", "about")
    packed = load("har", tmp_path)
    assert "read from " + str(tmp_path / "har") in packed.log[0] and (packed.x == plain.x).all()


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("train/y_train.txt", "5", "7", "y_train.txt: line 1 holds 7; activities are 1 to 6"),
        ("train/y_train.txt", "1", "1.5", "line 2 holds 1.5; activities"),
        ("train/y_train.txt", "5\n", "", "subject_train.txt has 2 rows and y_train.txt 1"),
        ("train/subject_train.txt", "11", "31", "line 2 holds 31; subjects are 1 to 30"),
        ("test/subject_test.txt", "2", "two", "subject_test.txt: line 1 holds 'two', which is no finite number"),
        ("train/Inertial Signals/body_gyro_y_train.txt", "e+000", "e+00O", "line 1 holds .* no finite number"),
        ("train/Inertial Signals/body_acc_x_train.txt", "e+000", "e+039", "body_acc_x_train.txt: line 1 holds "),
        ("train/Inertial Signals/total_acc_z_train.txt", "\n", " 1\n", "line 1 has 129 numbers instead of 128"),
        ("features.txt", "7 f7\n", "", "features.txt names 560 features instead of 561"),
        ("train/X_train.txt", "\n", " nan\n", "X_train.txt: line 1 holds 'nan'"),
        ("train/X_train.txt", None, "", "X_train.txt is empty"),
        ("train/X_train.txt", None, "\xff", "X_train.txt: "),
    ],
)
def test_hostile_har(file, old, new, says, tmp_path):
    ucihar(tmp_path)
    path = tmp_path / file
    path.write_text(new if old is None else path.read_text().replace(old, new, 1))
    with pytest.raises(BadInput, match=says):
        load("har", tmp_path, features="561" if file.startswith(("features", "train/X")) else "inertial")


def test_har_names_the_file_that_is_missing(tmp_path):
    ucihar(tmp_path)
    (tmp_path / "train" / "Inertial Signals" / "body_acc_z_train.txt").unlink()
    with pytest.raises(BadInput, match=r"har lacks train/Inertial Signals/body_acc_z_train.txt beside its other files"):
        load("har", tmp_path)


def test_har_sample(data_folder):
    place = present(data_folder, "har", "sample_layout")
    table = load("har", place)
    assert (table.x.shape, np.bincount(table.y).tolist()) == ((120, 1152), [20] * 6)
    assert np.unique(table.client).tolist() == ["subject 01", "subject 02", "subject 03", "subject 04"]
    name = "UCI HAR Dataset/test/Inertial Signals/body_gyro_x_test.txt"
    last = [float(cell) for cell in (place / name).read_text().splitlines()[-1].split()]
    assert (table.x.reshape(120, 9, 128)[-1, 3] == np.float32(last)).all()


# ------------------------------------------------------------------------------------------- CIFAR-10


def python2(pixels: bytes, labels: list[int]) -> bytes:
    """A batch as its authors' Python 2 wrote it, code by code."""

    def text(b: bytes) -> bytes:
        return b"U" + bytes([len(b)]) + b

    n = len(labels)
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\x09U\x01bq\x0a\x87q\x0bRq\x0c"
    array += b"(K\x01M" + n.to_bytes(2, "little") + b"M\x00\x0c\x86q\x0dcnumpy\ndtype\nq\x0e" + text(b"u1")
    array += (
        b"q\x0fK\x00K\x01\x87q\x10Rq\x11(K\x03" + text(b"|") + b"q\x12NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x13b"
    )
    array += b"\x89T" + len(pixels).to_bytes(4, "little") + pixels + b"q\x14tq\x15b"
    out = b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5") + b"q\x03"
    out += text(b"labels") + b"q\x04]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    out += text(b"data") + b"q\x06" + array + text(b"filenames") + b"q\x16]q\x17(" + text(b"labels.png") * n + b"eu."
    return out


@pytest.fixture
def images() -> tuple[np.ndarray, list[int]]:
    return np.random.default_rng(1).integers(256, size=(300, 3072), dtype=np.uint8), [i % 10 for i in range(300)]


def test_python_batches_are_read_as_pickle_would(images):
    pixels, labels = images
    data = python2(pixels.tobytes(), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy has renamed the module that the batches name
        loaded = pickle.loads(data, encoding="bytes")
    x, y = cifar10.batch("b", data)
    assert (x == loaded[b"data"]).all() and y.tolist() == loaded[b"labels"]
    for protocol in (2, 3):
        if protocol == 3:
            again = pickle.dumps({b"labels": labels, b"data": pixels}, protocol)
            assert (cifar10.batch("b", again)[0] == pixels).all()


def test_cifar_batches_in_both_forms(images, tmp_path):
    pixels, labels = images
    cut = np.split(np.arange(300), 6)
    for form in ("python", "binary"):
        (tmp_path / form / "cifar10").mkdir(parents=True)
    for name, rows in zip((*cifar10.BATCHES["train"], "test_batch"), cut, strict=True):
        own = [labels[i] for i in rows]
        (tmp_path / "python" / "cifar10" / name).write_bytes(python2(pixels[rows].tobytes(), own))
        binary = b"".join(bytes([label]) + image.tobytes() for label, image in zip(own, pixels[rows], strict=True))
        (tmp_path / "binary" / "cifar10" / f"{name}.bin").write_bytes(binary)
    for form in ("python", "binary"):
        table = load("cifar10", tmp_path / form, part="both")
        assert (np.round(table.x * 255).astype(np.uint8) == pixels).all() and table.y.tolist() == labels
        assert table.shape == (3, 32, 32) and table.x.dtype == np.float32 and table.x.max() == 1
        assert len(load("cifar10", tmp_path / form).y) == 250
        assert len(load("cifar10", tmp_path / form, part="test").y) == 50


class Evil:
    """What a pickle can do when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return Path.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_no_pickle_is_ever_loaded(protocol, images, tmp_path):
    pixels, labels = images
    target = tmp_path / "made"
    data = pickle.dumps({b"labels": labels, b"data": pixels, b"x": Evil(target)}, protocol)
    with pytest.raises(BadInput, match=r"which no CIFAR-10 batch has; it is not loaded"):
        cifar10.batch("b", data)
    assert not target.exists()
    pickle.loads(data)  # it would have been
    assert target.exists()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda d, p: d[:200], "is no whole Python batch"),
        (lambda d, p: b"PK\x03\x04", "is no whole Python batch|which no CIFAR-10 batch has"),
        (lambda d, p: pickle.dumps({b"labels": [1, 2], b"data": p}, 3), "has 2 labels and 921,600 bytes of images"),
        (lambda d, p: pickle.dumps({b"labels": [0] * 300, b"data": p / 255}, 3), "has 300 labels and 7,372,800 bytes"),
        (lambda d, p: pickle.dumps({b"labels": [0] * 300, b"data": np.asfortranarray(p)}, 3), "and 0 bytes of images"),
        (lambda d, p: pickle.dumps({b"labels": [10] * 300, b"data": p}, 3), "image 1 has the label 10; classes are 0"),
        (lambda d, p: pickle.dumps([1, 2], 3), "has 0 labels and 0 bytes"),
    ],
)
def test_hostile_batches(spoil, says, images, tmp_path):
    pixels, labels = images
    (tmp_path / "test_batch").write_bytes(spoil(python2(pixels.tobytes(), labels), pixels))
    with pytest.raises(BadInput, match=says):
        load("cifar10", tmp_path, part="test")


def test_hostile_binary_batches(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(bytes(3072))
    with pytest.raises(BadInput, match="is no multiple of 3073 bytes long"):
        load("cifar10", tmp_path, part="test")


def picture(values: np.ndarray) -> bytes:
    """A picture without loss; Pillow goes by what is in a file, not by its name."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG")
    return out.getvalue()


def zipped(folder: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / "cifar10_jpeg_subset.zip", "w") as z:
        for path, data in files.items():
            z.writestr(path, data)


def test_cifar_from_a_zip_of_images(tmp_path):
    values = np.random.default_rng(2).integers(256, size=(3, 32, 32, 3), dtype=np.uint8)
    names = ("top/train/truck/0001.jpg", "top/train/cat/0002.jpg", "top/test/dog/0001.jpg")
    extra = {"top/README.md": b"x", "top/train/cat/notes.txt": b"x", "top/train/cow/1.jpg": b"x"}
    zipped(tmp_path, dict(zip(names, map(picture, values), strict=True)) | extra)
    train, both = load("cifar10", tmp_path), load("cifar10", tmp_path, part="both")
    assert [train.classes[y] for y in train.y] == ["cat", "truck"]  # in the order of the paths
    assert [both.classes[y] for y in both.y] == ["dog", "cat", "truck"]
    assert np.allclose(train.x[0].reshape(3, 32, 32) * 255, values[1].transpose(2, 0, 1), atol=1e-4)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"readme": b"x"}, "holds no image at train/airplane/NAME.jpg"),
        ({"train/cat/1.jpg": b"no image"}, "train/cat/1.jpg is no readable image"),
        ({"train/cat/1.jpg": picture(np.zeros((32, 32, 3), np.uint8))[:60]}, "train/cat/1.jpg is no readable image"),
        ({"train/cat/1.jpg": picture(np.zeros((8, 32, 3), np.uint8))}, "train/cat/1.jpg is 32 x 8, not 32 x 32"),
    ],
)
def test_hostile_zips_of_images(files, says, tmp_path):
    zipped(tmp_path, files)
    with pytest.raises(BadInput, match=says):
        load("cifar10", tmp_path)


def test_cifar_subset(data_folder):
    present(data_folder, "cifar10")
    table = load("cifar10", data_folder, part="test")
    assert np.bincount(table.y).tolist() == [200] * 10
    means = table.x.reshape(-1, 3, 1024).mean((0, 2), dtype=np.float64)
    assert np.allclose(means, (0.4914, 0.4822, 0.4465), atol=0.01)  # of the whole set, red first


# ------------------------------------------------------------------------------------------- MNIST


def write_idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    path.write_bytes(head + values.tobytes())


def test_mnist_parts_and_names(tmp_path):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(256, size=(n, 28, 28), dtype=np.uint8) for n in (5, 3))
    write_idx(tmp_path / "train-images.idx3-ubyte", train)
    write_idx(tmp_path / "train-labels.idx1-ubyte", np.arange(5, dtype=np.uint8))
    for name, values in (("images-idx3", test), ("labels-idx1", np.array([9, 0, 9], np.uint8))):
        write_idx(tmp_path / "plain", values)
        (tmp_path / f"t10k-{name}-ubyte.gz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    both = load("mnist", tmp_path, part="both")
    assert (np.round(both.x * 255).reshape(8, 28, 28) == np.concatenate([train, test])).all()
    assert both.y.tolist() == [0, 1, 2, 3, 4, 9, 0, 9] and both.shape == (1, 28, 28)
    assert len(load("mnist", tmp_path).y) == 5 and load("mnist", tmp_path, part="test").y.tolist() == [9, 0, 9]


def test_mnist_says_which_file_is_missing(tmp_path):
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.zeros(1, np.uint8))
    with pytest.raises(BadInput, match=r"mnist lacks train-images-idx3-ubyte beside its other files in .*: get train"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (bytes([0, 0, 9, 1, 0, 0, 0, 1, 5]), "is no IDX file of bytes"),
        (bytes([0, 0, 8, 2, 0, 0, 0, 1, 5]), "is no IDX file of bytes"),
        (bytes([0, 0, 8]), "is no IDX file of bytes"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 5]), "says 3 values and holds 1"),
        (bytes([0, 0, 8, 1, 255, 255, 255, 255, 5]), "says 4294967295 values and holds 1"),
    ],
)
def test_hostile_idx(data, says):
    with pytest.raises(BadInput, match=says):
        mnist.idx("labels", data, 1)


@pytest.mark.parametrize(
    ("shape", "labels", "says"),
    [
        ((2, 28, 28), [1], "has 2 images and .* 1 labels"),
        ((2, 28, 28), [1, 10], "holds the label 10 in row 2"),
        ((2, 8, 8), [1, 1], r"images of \(8, 8\), not 28 x 28"),
        ((0, 28, 28), [], "no rows left"),
    ],
)
def test_hostile_mnist(shape, labels, says, tmp_path):
    write_idx(tmp_path / "t10k-images-idx3-ubyte", np.ones(shape, np.uint8))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.array(labels, np.uint8))
    with pytest.raises(BadInput, match=says):
        load("mnist", tmp_path, part="test")


def test_mnist_as_published(data_folder):
    present(data_folder, "mnist_test")
    table = load("mnist", data_folder, part="test")
    assert np.bincount(table.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert round(float(table.x.mean(dtype=np.float64)), 4) == 0.1325
    assert "as published" in table.log[0] and "as published" in table.log[1]


# ------------------------------------------------------------------------------------------- FEMNIST


def leaf(**changes) -> dict:
    x = {"f01": [[0.0] * 784, [0.5] * 784], "f02": [[1.0] * 784]}
    y = {"f01": [61, 0], "f02": [10]}
    known = {"users": ["f01", "f02"], "num_samples": [2, 1], "user_data": {u: {"x": x[u], "y": y[u]} for u in x}}
    return known | changes


def femnist(folder: Path, part: str, name: str, known: dict) -> None:
    (folder / "femnist" / "data" / part).mkdir(parents=True, exist_ok=True)
    (folder / "femnist" / "data" / part / name).write_text(json.dumps(known))


def test_leaf_writers_are_clients_across_files_and_parts(tmp_path):
    femnist(tmp_path, "train", "all_data_0.json", leaf())
    femnist(tmp_path, "train", "all_data_1.json", leaf(users=["f02"], num_samples=[1]))
    femnist(tmp_path, "test", "all_data_0.json", leaf(users=["f01"], num_samples=[2]))
    table = load("femnist", tmp_path)
    assert table.client.tolist() == ["writer f01"] * 2 + ["writer f02"] * 2 + ["writer f01"] * 2
    assert [table.classes[y] for y in table.y] == ["z", "0", "A", "A", "z", "0"] and len(table.classes) == 62
    assert table.x[:, 0].tolist() == [0, 0.5, 1, 1, 0, 0.5] and table.shape == (1, 28, 28)
    assert "train/all_data_1.json read from" in table.log[1] and len(load("femnist", tmp_path, part="train").y) == 4
    assert where(TASKS["femnist"], tmp_path) == f"{tmp_path}/femnist/data"


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"users": ["f01", "f03"]}, "is not LEAF's JSON"),
        ({"user_data": None}, "is not LEAF's JSON"),
        ({"num_samples": [2]}, "is not LEAF's JSON"),
        ({"num_samples": [2, 2]}, "writer f02 should have 2 images"),
        ({"user_data": {"f01": {"x": [[0.0] * 784, [2.0] * 784], "y": [1, 1]}, "f02": {}}}, "f01 has pixels outside"),
        ({"user_data": {"f01": {"x": [[0.0] * 784, [0.0] * 783], "y": [1, 1]}, "f02": {}}}, "writer f01 lacks rows"),
        ({"user_data": {"f01": {"x": [[float("nan")] * 784] * 2, "y": [1, 1]}, "f02": {}}}, "f01 has pixels outside"),
        ({"user_data": {"f01": {"x": [[0.0] * 784] * 2, "y": [1, 62]}, "f02": {}}}, "f01 has labels that are not"),
        ({"user_data": {"f01": {"x": [[0.0] * 784] * 2, "y": [1, 0.5]}, "f02": {}}}, "f01 has labels that are not"),
        ({"user_data": {"f01": {"y": [1, 1]}, "f02": {}}}, "train/a.json: writer f01 lacks rows of numbers"),
        ({"users": [], "num_samples": []}, "train/a.json names no users"),
    ],
)
def test_hostile_leaf(known, says, tmp_path):
    femnist(tmp_path, "train", "a.json", leaf(**known))
    with pytest.raises(BadInput, match=says):
        load("femnist", tmp_path, part="train")


def test_leaf_that_is_cut_off(tmp_path):
    femnist(tmp_path, "train", "a.json", leaf())
    path = tmp_path / "femnist" / "data" / "train" / "a.json"
    path.write_text(path.read_text()[:500])
    with pytest.raises(BadInput, match=r"train/a.json is no whole JSON"):
        load("femnist", tmp_path, part="train")
    with pytest.raises(BadInput, match=r"femnist lacks test/\*\.json beside its other files"):
        load("femnist", tmp_path, part="test")


class Rows(list):
    """Rows as Hugging Face's ``Dataset`` gives them: a slice is a dict of columns."""

    def __getitem__(self, at):
        some = super().__getitem__(at)
        return {name: [row[name] for row in some] for name in ("image", "writer_id", "character")}


@pytest.fixture
def flwr_datasets(monkeypatch):
    """A small stand-in for flwr-datasets, with the part of its interface that is documented and used."""
    from PIL import Image

    pixels = np.random.default_rng(4).integers(256, size=(1100, 28, 28), dtype=np.uint8)
    rows = [
        {"image": Image.fromarray(image), "writer_id": f"f{i % 7:04d}", "hsf_id": 0, "character": i % 62}
        for i, image in enumerate(pixels)
    ]
    calls = []

    class FederatedDataset:
        def __init__(self, *, dataset, partitioners, shuffle=True, seed=42):
            calls.append((dataset, shuffle))

        def load_split(self, split):
            if not rows:
                raise ConnectionError("no network")
            return Rows(rows)

    module = types.ModuleType("flwr_datasets")
    module.FederatedDataset = FederatedDataset
    monkeypatch.setitem(sys.modules, "flwr_datasets", module)
    return pixels, rows, calls


def test_femnist_through_flwr_datasets(flwr_datasets):
    pixels, rows, calls = flwr_datasets
    table = load("femnist", source="flwr-datasets")
    assert calls == [("flwrlabs/femnist", False)]
    assert (np.round(table.x * 255).reshape(pixels.shape) == pixels).all() and table.x.dtype == np.float32
    assert table.y.tolist() == [i % 62 for i in range(1100)] and len(np.unique(table.client)) == 7
    with pytest.raises(BadInput, match="is not divided into train and test"):
        load("femnist", source="flwr-datasets", part="train")
    rows.clear()
    with pytest.raises(BadInput, match=r"cannot be fetched \(no network\)"):
        load("femnist", source="flwr-datasets")


def test_femnist_without_flwr_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(BadInput, match="install it with: pip install flwr-datasets"):
        load("femnist", source="flwr-datasets")
