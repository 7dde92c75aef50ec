"""Which class is coded 1 is a choice; what is good for the person is not."""

from __future__ import annotations

import numpy as np
import pytest

from equipoise.data import TASKS, groups_of, load


@pytest.mark.parametrize("name", ["german", "adult"])
def test_flipping_turns_labels_and_leaves_the_favourable_outcome(name: str) -> None:
    as_declared, flipped = load(name), load(name, flip=True)
    assert (flipped.y == 1 - as_declared.y).all()
    assert np.array_equal(flipped.x, as_declared.x)
    assert flipped.task.favourable == as_declared.task.favourable
    favourable = [t.y == (t.task.favourable_is == "positive") for t in (as_declared, flipped)]
    assert (favourable[0] == favourable[1]).all()
    assert groups_of(flipped).log == groups_of(as_declared).log
    assert TASKS[name].labels == as_declared.task.labels
