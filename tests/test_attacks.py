"""Hostile updates touch their members' rows only, and need nobody else's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import attacks
from equipoise.attacks import both, claim_flat, claim_huge, claim_median, inflate
from equipoise.checks import BadInput
from equipoise.rounds import take
from equipoise.types import Broadcast, Reports


def reports(clients, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.array(sorted(clients), np.int64)
    return Reports(
        ids, rng.standard_normal((len(ids), 4)).astype(np.float32), rng.random(len(ids)), {"loss": rng.random(len(ids))}
    )


SHRINK_AND_TURN = "shrink and turn"
OMNISCIENT = {name for name in attacks.__all__ if getattr(getattr(attacks, name), "omniscient", False)}


def made(name, members):
    if name == SHRINK_AND_TURN:
        return both(inflate(members, 0.5), inflate(members, -1))
    return getattr(attacks, name)(members, 10)


@pytest.mark.parametrize("name", [*attacks.__all__, SHRINK_AND_TURN])
@given(st.sets(st.integers(0, 30), min_size=1, max_size=9), st.sets(st.integers(0, 30)))
def test_members_rows_only_and_the_same_alone(name, clients, members):
    """All but an omniscient attack also give the same where a member sees nobody else."""
    sent, tamper = reports(clients), made(name, members)
    before = sent.updates.copy(), sent.figures["loss"].copy()
    told = Broadcast(1, sent.clients, np.zeros(4, np.float32), {})
    got, mine = tamper(sent, told), np.isin(sent.clients, list(members))
    assert np.array_equal(sent.updates, before[0]) and np.array_equal(sent.figures["loss"], before[1])
    assert got.updates.dtype == sent.updates.dtype and got.figures.keys() == sent.figures.keys()
    assert got.sizes is sent.sizes and got.counts is sent.counts
    for now, then in ((got.updates, sent.updates), (got.figures["loss"], sent.figures["loss"])):
        assert np.array_equal(now[~mine], then[~mine])
    lied = not np.array_equal(got.updates, sent.updates) or not np.array_equal(got.figures["loss"], before[1])
    assert lied == mine.any() or (name in OMNISCIENT and mine.all())  # nobody honest to look at
    if name not in OMNISCIENT:
        alone = tamper(take(sent, mine), told)
        assert np.array_equal(alone.updates, got.updates[mine])
        assert np.array_equal(alone.figures["loss"], got.figures["loss"][mine])


def test_inflation_multiplies_and_is_finite():
    sent = reports([1, 2])
    assert np.array_equal(inflate([2], 10)(sent, None).updates[1], 10 * sent.updates[1])
    with pytest.raises(BadInput, match="inflation has 1 of 1 values that are not finite"):
        inflate([1], np.inf)


def test_what_liars_claim():
    sent = replace(reports([1, 2, 5, 9]), figures={"trace": np.array([4.0, np.nan, -2.0, 7.0]), "top": np.zeros(4)})
    assert {"claim_median"} == OMNISCIENT
    lies = {
        claim_median: [4, 5.5, 5.5, 7],
        claim_huge: [4, np.nan, 2000, 7],
        claim_flat: [4, 0, 0, 7],
    }
    for attack, claimed in lies.items():
        got = attack([2, 5], 1000)(sent, None)
        np.testing.assert_array_equal(got.figures["trace"], claimed)
        np.testing.assert_array_equal(got.figures["top"], 0)
        assert got.updates is sent.updates
    nobody = claim_median([1, 2, 5, 9])(sent, None)
    np.testing.assert_array_equal(nobody.figures["trace"], sent.figures["trace"])
    with pytest.raises(BadInput, match="strength has 1 of 1 values that are not finite"):
        claim_huge([1], np.nan)
    assert claim_huge([9], 1e308)(sent, None).figures["trace"][3] == np.inf
