"""The append-only file: strict JSON, torn ends, lines that must agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.records import Journal, plain, read, strict


def line(n: int) -> dict[str, object]:
    return {"run": "r", "round": n, "value": n / 3}


def written(path: Path, n: int = 3) -> bytes:
    with Journal(path) as journal:
        for i in range(n):
            journal.write(line(i))
        journal.end()
    return path.read_bytes()


def test_not_finite_is_null_and_integers_stay_integers() -> None:
    assert (
        strict({"b": np.float32(0.5), "a": [np.nan, np.inf], "c": np.int64(3), "d": np.bool_(True)})
        == '{"a": [null, null], "b": 0.5, "c": 3, "d": true}'
    )


def test_floats_survive_the_way_to_disk_and_back() -> None:
    values = np.random.default_rng(0).normal(size=100)
    assert json.loads(strict(values)) == plain(values) == values.tolist()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_cut_and_written_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rounds.jsonl"
    whole = written(path)
    path.write_bytes(whole[:-cut])
    assert len(list(read(path))) == 2
    assert written(path) == whole


def test_a_line_that_stands_there_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    whole = written(path)
    path.write_bytes(whole.replace(b'"round": 1', b'"round": 7'))
    with pytest.raises(BadInput, match=r"line 2 of .*run r, round 1.* differs from what is computed again"):
        written(path)


def test_a_file_that_goes_on_after_the_study_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    written(path, 4)
    with pytest.raises(BadInput, match="1 lines more than the study has"):
        written(path, 3)


def test_lines_that_a_checkpoint_vouches_for_must_be_those(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    written(path)
    with Journal(path) as first:
        first.write(line(0))
        first.write(line(1))
        digest = first.digest()
    with Journal(path) as fine:
        fine.skip(2, digest)
        assert [x["round"] for x in fine.lines()] == [0, 1]
    with Journal(path) as other, pytest.raises(BadInput, match="not those that the checkpoint was made after"):
        other.skip(1, digest)
    with Journal(path) as short, pytest.raises(BadInput, match="has 3 lines, but the checkpoint was made after 9"):
        short.skip(9, digest)


def test_a_complete_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(BadInput, match="line 2 of"):
        list(read(path))
    with pytest.raises(BadInput, match="does not exist"):
        list(read(tmp_path / "no.jsonl"))
