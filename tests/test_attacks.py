"""Hostile updates touch their members' rows only, and need nobody else's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.attacks import both, inflate
from equipoise.checks import BadInput
from equipoise.rounds import take
from equipoise.types import Broadcast, Reports


def reports(clients, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.array(sorted(clients), np.int64)
    return Reports(
        ids, rng.standard_normal((len(ids), 4)).astype(np.float32), rng.random(len(ids)), {"loss": rng.random(len(ids))}
    )


TAMPERS = {
    "inflate": lambda members: inflate(members, 10),
    "shrink and turn": lambda members: both(inflate(members, 0.5), inflate(members, -1)),
}


@pytest.mark.parametrize("name", TAMPERS)
@given(st.sets(st.integers(0, 30), min_size=1, max_size=9), st.sets(st.integers(0, 30)))
def test_members_rows_only_and_the_same_alone(name, clients, members):
    sent, tamper = reports(clients), TAMPERS[name](members)
    before = sent.updates.copy()
    told = Broadcast(1, sent.clients, np.zeros(4, np.float32), {})
    got, mine = tamper(sent, told), np.isin(sent.clients, list(members))
    assert np.array_equal(sent.updates, before) and got.updates.dtype == sent.updates.dtype
    assert np.array_equal(got.updates[~mine], sent.updates[~mine])
    assert not mine.any() or not np.array_equal(got.updates[mine], sent.updates[mine])
    assert np.array_equal(tamper(take(sent, mine), told).updates, got.updates[mine])
    assert got.figures is sent.figures and got.sizes is sent.sizes


def test_inflation_multiplies_and_is_finite():
    sent = reports([1, 2])
    assert np.array_equal(inflate([2], 10)(sent, None).updates[1], 10 * sent.updates[1])
    with pytest.raises(BadInput, match="inflation has 1 of 1 values that are not finite"):
        inflate([1], np.inf)
