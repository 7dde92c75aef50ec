"""Noise that hides a client: bounds against brute force over neighbouring federations, the noise itself, refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import kstest, norm

from equipoise import scores, weights
from equipoise.accounting import NOT_COVERED_CENTRALLY, central, epsilon
from equipoise.aggregate import _private, alone, central_dp, clip_factors, noise_sds, norms, sensitivity, weighted
from equipoise.checks import BadInput
from equipoise.metrics import equal_opportunity_difference
from equipoise.records import strict
from equipoise.rounds import stream, take
from equipoise.types import Aggregator, Array, Reports

from .claims import reports

CLAIMED = "s"


def claimed(*names: str) -> scores.Score:
    """A score that a client simply states."""
    judge = scores.several(*((lambda r, n=n: r.figures[n]) for n in names)) if len(names) > 1 else None
    return judge or (lambda r: r.figures[names[0]])


# Bounds against brute force


class Family(NamedTuple):
    """One member of the family, as a rule of ``weights`` and as ``central_dp`` calls it, and its largest weight M."""

    rule: Any
    params: dict[str, Any]
    calls: dict[str, Any]
    scores: tuple[str, ...]
    most: float


FAMILIES = {
    "uniform": Family(weights.uniform, {}, {}, (), 1),
    "fedavg": Family(weights.fedavg, {}, {"power": 1, "most_rows": 500}, (), 500),
    "fairis": Family(weights.fairis, {"eta": 1.01}, {"eta": 1.01}, ("s",), 1.01),
    "fairis far": Family(weights.fairis, {"eta": 3.0}, {"eta": 3.0}, ("s",), 3.0),
    "fairis_n": Family(weights.fairis_n, {"eta": 1.3}, {"eta": 1.3, "power": 1, "most_rows": 500}, ("s",), 650),
    "ala": Family(weights.ala, {}, {"eta": 1}, ("s",), 1),
    "joint": Family(
        weights.joint,
        {"eta": [1.2, 2.0], "power": 0.5},
        {"eta": [1.2, 2.0], "power": 0.5, "most_rows": 400},
        ("s", "p"),
        48,
    ),
}
CLIP, D = 0.7, 5


def server(family: Family, **more: Any) -> Aggregator:
    judge = claimed(*family.scores) if family.scores else None
    settings = {"clip": CLIP, "noise": 0.0, "seed": 0, "asks": family.scores} | family.calls | more
    return central_dp(judge, **settings)


def federation(random: np.random.Generator, k: int, family: Family) -> Reports:
    figures = {n: random.choice([0.0, 1.0, random.random()], k) for n in family.scores}
    lengths = CLIP * 10.0 ** random.uniform(-2, 2, (k, 1))
    directions = random.standard_normal((k, D))
    updates = directions / norms(directions)[:, None] * lengths
    return Reports(np.arange(k), updates, random.integers(0, 1500, k).astype(float), figures)


def one(direction: Array, size: float, score: float, family: Family) -> Reports:
    """A client that goes as far as it can: an update far beyond the clip, and extreme claims."""
    figures = {n: np.array([score]) for n in family.scores}
    return Reports(np.array([0]), 1e3 * CLIP * direction[None], np.array([size]), figures)


def joined(a: Reports, b: Reports) -> Reports:
    k = len(a.clients) + len(b.clients)
    figures = {n: np.concatenate([a.figures[n], b.figures[n]]) for n in a.figures}
    return Reports(np.arange(k), np.concatenate([a.updates, b.updates]), np.concatenate([a.sizes, b.sizes]), figures)


def neighbours(
    random: np.random.Generator, family: Family, adjacency: str, n: int
) -> Iterator[tuple[Reports, Reports]]:
    """Random federations, each beside one in which a client is there or not, or another: random ones, and the worst."""
    for _ in range(n):
        rest = federation(random, int(random.integers(1, 6)), family)
        some = federation(random, 2, family)
        direction = random.standard_normal(D)
        direction /= np.linalg.norm(direction)
        worst = [one(sign * direction, size, s, family) for sign in (1, -1) for size in (0, 1e6) for s in (0, 1)]
        if adjacency == "add":
            for client in (take(some, [0]), *worst):
                yield joined(rest, client), rest
        else:
            silence = take(some, [])
            there = [take(some, [0]), take(some, [1]), *worst, silence]
            yield from ((joined(rest, a), joined(rest, b)) for i, a in enumerate(there) for b in there[:i])


def sums(aggregator: Aggregator, r: Reports) -> tuple[Array, float]:
    """The two sums that noise goes on, as the aggregator itself makes them: caught where it adds the noise."""
    caught: list[tuple[Array, float]] = []
    plain = _private.release

    def release(*args: Any) -> tuple[Array, float]:
        caught.append(plain(*args[:3], (0.0, 0.0), args[4]))
        return caught[-1]

    with pytest.MonkeyPatch.context() as m:
        m.setattr(_private, "release", release)
        aggregator.step(r, aggregator.init())
    return caught[0]


def moves(family: Family, adjacency: str, n: int = 6) -> Array:
    """How far both sums move between neighbours, (pairs, 2)."""
    random, dp = np.random.default_rng(7), server(family, adjacency=adjacency)
    found = []
    for a, b in neighbours(random, family, adjacency, n):
        (top, bottom), (top_, bottom_) = sums(dp, a), sums(dp, b)
        found.append((np.linalg.norm(top - top_), abs(bottom - bottom_)))
    return np.array(found)


@pytest.mark.parametrize("adjacency", ["add", "replace"])
@pytest.mark.parametrize("name", FAMILIES)
def test_one_client_moves_the_sums_by_the_stated_bound_and_no_further(name: str, adjacency: str) -> None:
    family = FAMILIES[name]
    moved, stated = moves(family, adjacency).max(0), sensitivity(family.most, CLIP, adjacency)
    assert (moved <= np.array(stated) * (1 + 1e-9)).all()
    assert (moved >= 0.99 * np.array(stated)).all()


@pytest.mark.parametrize("share", [None, 0.05, 0.3, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("adjacency", ["add", "replace"])
@pytest.mark.parametrize("name", ["fairis", "fairis_n", "joint"])
def test_the_pair_in_units_of_its_noise_moves_by_one_over_the_multiplier(
    name: str, adjacency: str, share: float | None
) -> None:
    """One Gaussian mechanism: whatever the split, its noise multiplier is the one that is accounted for."""
    family, z = FAMILIES[name], 1.7
    sds = noise_sds(family.most, CLIP, z, D, adjacency=adjacency, share=share)
    furthest = norms(moves(family, adjacency, 3) / np.array(sds)).max()
    assert 0.99 / z <= furthest <= (1 + 1e-9) / z


def test_the_split_uses_the_noise_that_is_free() -> None:
    """To replace, the numerator has at 3/4 no more noise than alone, 2 z M C, and every other share has more of one."""
    sds = noise_sds(2.0, 3.0, 0.5, adjacency="replace")
    assert sds[0] == pytest.approx(2 * 0.5 * 2 * 3)
    for share in (0.1, 0.5, 0.74, 0.76, 0.9):
        other = noise_sds(2.0, 3.0, 0.5, adjacency="replace", share=share)
        assert other[0] > sds[0] * 1.001 or (other[0] == pytest.approx(sds[0]) and other[1] > sds[1] * 1.001)
    for d in (1, 100, 10_000):

        def error(h: float | None, d: int = d) -> float:
            top, bottom = noise_sds(2.0, 3.0, 0.5, d, share=h)
            return d * top**2 + 9 * bottom**2

        assert all(error(None) < error(h) for h in (0.001, 0.02, 0.2, 0.6) if abs(h - 1 / (1 + math.sqrt(d))) > 1e-6)


def test_the_largest_weight_times_the_clip_is_no_bound() -> None:
    """A client's score moves everybody's weight: by twice the larger max w C of two neighbours, or far more of one."""
    others, c = 40, 1.0
    updates = np.vstack([[-c], np.full((others, 1), c)])
    found = []
    for mine in np.linspace(0, 1, 11):
        sizes = np.ones(others + 1)
        before = weights.fairis([mine, *[1.0] * others], sizes)
        gone = weights.fairis([1.0] * others, sizes[1:])
        other = weights.fairis([1.0, *[1.0] * others], sizes)
        left_alone, replaced = updates[1:].T @ gone, (np.abs(updates).T @ other)
        start = updates.T @ before
        for end, after in ((left_alone, gone), (replaced, other)):
            moved = float(np.abs(start - end)[0])
            found.append((moved / (c * max(before.max(), after.max())), moved / (c * after.max())))
    both, at_hand = np.array(found).max(0)
    assert both == pytest.approx(2.0) and at_hand > 5


# The noise


def spread(family: Family, seed: int | None, n: int, **more: Any) -> tuple[Array, Array]:
    """Noise of n rounds in units of what is stated: on the weighted sum (n, D), and on the sum of weights (n,)."""
    dp = server(family, noise=0.8, seed=seed, **more)
    r, exact = federation(np.random.default_rng(1), 6, family), []
    plain, noised = _private.release, []

    def release(*args: Any) -> Any:
        exact.append(plain(*args[:3], (0.0, 0.0), args[4]))
        noised.append(plain(*args))
        return noised[-1]

    state, sds = dp.init(), None
    with pytest.MonkeyPatch.context() as m:
        m.setattr(_private, "release", release)
        for _ in range(n):
            _, info, state = dp.step(r, state)
            sds = info["noise_sd"]
    assert sds is not None
    tops = np.array([a[0] - b[0] for a, b in zip(noised, exact, strict=True)]) / sds[0]
    bottoms = np.array([a[1] - b[1] for a, b in zip(noised, exact, strict=True)]) / sds[1]
    assert sds == [*noise_sds(family.most, CLIP, 0.8, D, **more)]
    return tops, bottoms


@pytest.mark.parametrize("seed", [11, None], ids=["seed", "system"])
@pytest.mark.parametrize("adjacency", ["add", "replace"])
def test_noise_is_gaussian_of_the_stated_width(seed: int | None, adjacency: str) -> None:
    n = 2_000
    tops, bottoms = spread(FAMILIES["fairis_n"], seed, n, adjacency=adjacency)
    for noise in (tops.ravel(), bottoms):
        assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
        assert abs(noise.std() - 1) < 5 / math.sqrt(2 * noise.size)
        assert kstest(noise, norm.cdf).pvalue > 1e-4
    together = np.column_stack([tops, bottoms])
    assert (np.abs(np.corrcoef(together.T) - np.eye(D + 1)) < 5 / math.sqrt(n)).all()
    assert (np.abs((together[1:] * together[:-1]).mean(0)) < 5 / math.sqrt(n)).all()  # each round has its own


def test_noise_of_a_seed_comes_again_and_noise_of_the_system_never() -> None:
    family = FAMILIES["fairis"]
    r = federation(np.random.default_rng(1), 60, family)
    first, again, other = (
        server(family, noise=0.1, seed=seed).step(r, {"round": 1, "scores": {}}) for seed in (5, 5, 6)
    )
    assert strict([first[0], first[1], first[2]]) == strict([again[0], again[1], again[2]])
    assert not np.allclose(first[0], other[0])
    later = server(family, noise=0.1, seed=5).step(r, first[2])
    assert first[2]["round"] == 2 and not np.allclose(first[0], later[0])
    drawn = stream(5, "central noise", 1).standard_normal(D + 1)
    np.testing.assert_array_equal(_private.normal(5, 1, D + 1), drawn)
    secret = [server(family, noise=0.1, seed=None).step(r, {"round": 1, "scores": {}})[0] for _ in range(2)]
    assert not np.allclose(*secret)
    assert _private.normal(None, 1, 7).shape == (7,) and np.isfinite(_private.normal(None, 1, 100_001)).all()


def test_half_the_noise_is_found_out_and_the_stated_noise_is_not() -> None:
    """An audit of one round: nobody tells neighbours apart better than epsilon allows, and the best guess comes close.

    The worst neighbours of the pair lie 1 / z apart in units of the noise, along one line: that line is looked at.
    """
    z, delta, n = 1.0, 0.1, 40_000
    bound = central(z, 1, delta, adjacency="replace").epsilon
    top = CLIP * 1.01 * np.array([1.0, -1.0])
    for factor, broken in ((1.0, False), (0.5, True)):
        sd = factor * noise_sds(1.01, CLIP, z, 1, adjacency="replace")[0]
        seen = [x + sd * np.random.default_rng(i).standard_normal(n) for i, x in enumerate(top)]
        cuts = np.linspace(-6, 6, 101)
        lost = max((seen[0] > c).mean() - math.exp(bound) * (seen[1] > c).mean() for c in cuts)
        assert (lost > delta + 0.02) == broken and lost > delta - 0.02


# The step


@pytest.mark.parametrize("name", FAMILIES)
def test_without_noise_it_is_the_rule_itself(name: str) -> None:
    family = FAMILIES[name]
    r = federation(np.random.default_rng(3), 9, family)
    r = replace(r, sizes=np.minimum(r.sizes, 399) + 1, updates=r.updates.astype(np.float32))
    r.updates.setflags(write=False)
    judge = claimed(*family.scores) if family.scores else None
    expected, theirs, _ = weighted(family.rule, judge, clip=CLIP, **family.params).step(r, {"scores": {}})
    delta, info, state = server(family).step(r, server(family).init())
    np.testing.assert_allclose(delta, expected, rtol=1e-5, atol=1e-7)
    assert delta.dtype == np.float32 and state == {"round": 2, "scores": {}}
    for key in set(theirs) - {"note"}:
        assert strict(theirs[key])[:6] == strict(info[key])[:6] or key in ("weights", "bounds")
    np.testing.assert_allclose(info["weights"], theirs["weights"])
    np.testing.assert_allclose(info["bounds"], theirs["bounds"])
    assert info["noise_sd"] == [0, 0] and "kept" not in info


def test_no_step_is_longer_than_the_clip_and_too_little_weight_keeps_the_model() -> None:
    """Both are made from what is released: the mean of clipped updates lies in the ball, so the ball never hurts."""
    family, r = FAMILIES["ala"], reports([0.0] * 3, updates=np.eye(3))
    few = replace(r, figures={"s": np.array([0.9, 1.0, 1.0])})
    dp = server(family, noise=0.5, seed=2)
    kept, state = 0, dp.init()
    for _ in range(300):
        delta, info, state = dp.step(few, state)
        assert norms(delta[None])[0] <= CLIP * (1 + 1e-9)
        kept += "kept" in info
        assert ("kept" in info) == (not delta.any())
    assert 200 < kept < 290  # P(0.1 + N > 1) with N standard normal is 0.18
    assert "does not stand out from its own noise" in dp.step(few, {"round": 1, "scores": {}})[1].get(
        "kept", "stand out"
    )
    none = replace(r, figures={"s": np.ones(3)})
    delta, info, _ = server(family).step(none, {"round": 1, "scores": {}})
    assert not delta.any() and "kept" in info and "weights" not in info and "0/0" in info["note"]


def test_the_more_clients_the_nearer_to_the_exact_mean() -> None:
    family, error = FAMILIES["fairis"], []
    for k in (100, 1_000, 10_000):
        r = federation(np.random.default_rng(4), k, family)
        r = replace(r, updates=np.abs(r.updates))
        exact = server(family).step(r, {"round": 1, "scores": {}})[0]
        with pytest.MonkeyPatch.context() as m:
            m.setattr(_private, "_each", lambda score, given: score(given))
            steps = [server(family, noise=1.0, seed=i).step(r, {"round": 1, "scores": {}})[0] for i in range(8)]
        error.append(np.mean([np.linalg.norm(x - exact) for x in steps]))
    assert error[0] > 5 * error[1] > 25 * error[2]


def test_the_sum_is_not_rounded_before_the_noise_is_on_it() -> None:
    r = Reports(np.arange(3), np.array([[1.0], [2.0**-20], [-1.0]], np.float32) * np.float32(1e4), np.ones(3))
    top, bottom = sums(central_dp(clip=1e9, noise=0.0, seed=0), r)
    assert top.dtype == np.float64 and top[0] == 1e4 * 2.0**-20 and bottom == 3


def test_undefined_scores_count_as_a_constant_or_as_the_clients_own_last() -> None:
    judge = scores.gap(equal_opportunity_difference, "received")
    for policy, value in (("neutral", 0.5), ("worst", 1.0), ("previous", 0.5)):
        dp = central_dp(judge, clip=1.0, noise=0.0, seed=0, eta=1.5, undefined=policy, asks=["received"])
        _, info, state = dp.step(reports([None, 0.2]), dp.init())
        np.testing.assert_allclose(info["scores"], [value, 0.2])
        assert list(info["fallbacks"]) == [0]
    _, info, _ = dp.step(reports([0.9, None]), state)
    np.testing.assert_allclose(info["scores"], [0.9, 0.2])
    assert strict(state)


# What is refused


def relative(r: Reports) -> Array:
    v = r.figures["trace"]
    return np.asarray(np.abs(v - np.median(v)) / (1 + np.abs(v - np.median(v)).max()))


def by_share_of_rows(r: Reports) -> Array:
    return np.asarray(r.sizes / r.sizes.sum())


def by_distance_from_the_mean(r: Reports) -> Array:
    return np.asarray(np.tanh(norms(r.updates - r.updates.mean(0))))


def to_f_global(r: Reports) -> Array:
    gaps = equal_opportunity_difference(r.counts["received"])
    return np.asarray(np.abs(gaps - equal_opportunity_difference(r.counts["received"].sum(0))))


OTHERS = [scores.rank("trace"), scores.deviation("trace"), relative, by_share_of_rows, by_distance_from_the_mean,
          to_f_global, scores.several(scores.absolute("trace"), scores.rank("trace"))]  # fmt: skip
OWN = [scores.absolute("trace"), scores.gap(equal_opportunity_difference, "received"),
       scores.several(scores.absolute("trace"), scores.gap(equal_opportunity_difference, "received")),
       lambda r: np.tanh(norms(r.updates))]  # fmt: skip


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("judge", OTHERS)
def test_a_score_that_depends_on_others_is_refused_whoever_reports(judge: scores.Score, k: int) -> None:
    """Also where the clients are alike, or one is alone: it is tried on reports that are made up."""
    r = replace(reports([0.5] * k, updates=np.ones((k, 3))), figures={"trace": np.ones(k)})
    dp = central_dp(judge, clip=1.0, noise=1.0, seed=0)
    with pytest.raises(BadInput, match="judges a client by what others report"):
        dp.step(r, dp.init())


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("judge", OWN)
def test_a_score_of_ones_own_is_taken_and_no_other_client_moves_it(judge: scores.Score, k: int) -> None:
    random = np.random.default_rng(k)
    r = replace(
        reports([random.uniform(-1, 1) for _ in range(k)], updates=random.standard_normal((k, 3))),
        figures={"trace": np.exp(random.standard_normal(k))},
    )
    np.testing.assert_allclose(alone(judge)(r), judge(r))
    central_dp(judge, clip=1.0, noise=1.0, seed=0).step(r, {"round": 1, "scores": {}})


def test_whatever_the_score_no_other_client_can_move_a_weight() -> None:
    """By construction: even a score that hides how it compares is given one report at a time."""

    def sly(r: Reports) -> Array:
        return np.where(r.sizes.max() > 1e6, 1.0, 0.2) * np.ones(len(r.clients))  # no made-up client has so many rows

    dp = central_dp(sly, clip=1.0, noise=0.0, seed=0)
    r = reports([0.5] * 3, sizes=[10, 20, 2e6])
    assert dp.step(r, dp.init())[1]["scores"].tolist() == [0.2, 0.2, 1.0]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"clip": None}, "clip is None, and no noise hides an update of any length; give clip a number"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"clip": math.inf}, "clip must be above 0, got inf"),
        ({"noise": -1.0}, "noise must be a number of 0 or more, got -1"),
        ({"noise": math.nan}, "noise must be a number of 0 or more, got nan"),
        ({"noise": math.inf}, "noise must be a number of 0 or more, got inf"),
        ({"eta": 0.9}, r"eta must be 1 or more, got 0.9 \(a score of 1 would get a negative weight\)"),
        ({"eta": [1.2, math.nan]}, "eta must be 1 or more, got nan"),
        ({"power": 2.0, "most_rows": 5}, "power must lie in 0..1, got 2"),
        ({"power": 1.0}, "give most_rows, the most that count"),
        ({"power": 1.0, "most_rows": math.nan}, "give most_rows"),
        ({"most_rows": 50}, "most_rows = 50 belongs to weights by rows"),
        ({"share": 0.0}, "share must lie between 0 and 1, got 0"),
        ({"share": 1.0}, "share must lie between 0 and 1, got 1"),
        ({"adjacency": "replce"}, "adjacency 'replce' is unknown; did you mean 'replace'"),
        ({"undefined": "error"}, "lets one client end the run"),
        ({"undefined": "nuetral"}, "did you mean 'neutral'"),
    ],
)
def test_settings_that_promise_nothing_are_refused_at_set_up(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        central_dp(claimed("s"), **({"clip": 1.0, "noise": 1.0, "seed": 0} | settings))


def test_as_many_etas_as_scores() -> None:
    r = replace(reports([0.1, 0.2]), figures={"s": np.zeros(2), "p": np.zeros(2)})
    with pytest.raises(BadInput, match="eta has 3 values for 2 scores"):
        dp = central_dp(claimed("s", "p"), clip=1.0, noise=1.0, seed=0, eta=[1.1, 1.1, 1.1])
        dp.step(r, dp.init())


def test_the_default_eta_is_the_rules() -> None:
    import inspect

    assert inspect.signature(central_dp).parameters["eta"].default == weights.ETA


# What is spent


def test_all_rounds_are_one_gaussian_mechanism_with_noise_smaller_by_their_root() -> None:
    spent = central(4.0, 16, 1e-5)
    assert spent.epsilon == epsilon(4.0, 1, 16, 1e-5).epsilon == pytest.approx(epsilon(1.0, 1, 1, 1e-5).epsilon, 1e-5)
    assert central(4.0, 16, 1e-5, adjacency="replace").epsilon == spent.epsilon  # the noise is what differs
    assert (spent.steps, spent.rate, spent.delta) == (16, 1, 1e-5)


def test_only_a_poisson_sample_spends_less() -> None:
    assert central(2.0, 16, 1e-5, rate=0.1).epsilon < central(2.0, 16, 1e-5).epsilon / 4
    assert "no" in central(2.0, 16, 1e-5).sampling and central(2.0, 16, 1e-5, rate=0.1).sampling == "Poisson"
    with pytest.raises(BadInput, match='lowers the figure for adjacency "add" only'):
        central(2.0, 16, 1e-5, adjacency="replace", rate=0.1)
    with pytest.raises(BadInput, match="did you mean 'add'"):
        central(2.0, 16, 1e-5, adjacency="ad")


def test_the_statement_says_whom_it_protects_from_whom() -> None:
    says = central(2.0, 16, 1e-5, adjacency="replace").statement
    for words in ("for every client", "replace all that one client contributes", "16 rounds", "noise multiplier 2",
                  "its scores", "whoever sees the models", "not protect from the server", "the seed"):  # fmt: skip
        assert words in says
    assert says.endswith(NOT_COVERED_CENTRALLY)
    nothing = central(0.0, 16, 1e-5)
    assert nothing.epsilon == math.inf and "for no client" in nothing.statement


def test_clipping_is_the_houses() -> None:
    r = federation(np.random.default_rng(0), 4, FAMILIES["uniform"])
    top, _ = sums(server(FAMILIES["uniform"]), r)
    np.testing.assert_allclose(top, (r.updates * clip_factors(norms(r.updates), CLIP)[:, None]).sum(0))
