"""The planted faults: mistakes that somebody made elsewhere, or that we nearly made."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """``right`` stands once in ``file`` of the package; with ``wrong`` in its place one of ``tests`` must fail."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


FAULTS = [
    Fault(
        "weights favour the biased",
        "weights.py",
        "mass = mass * (eta - row)",
        "mass = mass * (eta - 1 + row)",
        ("tests/rules/test_weights.py",),
    ),
    Fault(
        "masses divided by the number of clients, not by their sum",
        "weights.py",
        "return mass / total if total > 0 else np.full(len(mass), np.nan)",
        "return mass / len(mass) if total > 0 else np.full(len(mass), np.nan)",
        ("tests/rules/test_weights.py",),
    ),
    Fault(
        "a rate of 0/0 is 0",
        "metrics/rates.py",
        "np.full(n.shape, np.nan)",
        "np.zeros(n.shape)",
        ("tests/metrics/test_named.py",),
    ),
    Fault(
        "groups that are present are numbered anew",
        "metrics/counts.py",
        "_index('group', group, groups)",
        "np.unique(group, return_inverse=True)[1]",
        ("tests/metrics/test_counts.py",),
    ),
    Fault(
        "an interval of 95 % takes the z of 90 %",
        "metrics/intervals.py",
        "NormalDist().inv_cdf((1 + level) / 2)",
        "NormalDist().inv_cdf(level)",
        ("tests/metrics/test_intervals.py::test_wilson_is_scipys",),
    ),
    Fault(
        "the guard lets NaN in",
        "rounds.py",
        "not np.isfinite(sums[i]) and not np.isfinite(reports.updates[i]).all()",
        "False",
        ("tests/test_rounds.py",),
    ),
    Fault(
        "replies are summed in the order of arrival",
        "rounds.py",
        "np.argsort(reports.clients, kind='stable')",
        "np.arange(len(reports.clients))",
        ("tests/test_rounds.py",),
    ),
    Fault(
        "every client draws from the same stream",
        "rounds.py",
        "(zlib.crc32(purpose.encode()), t, client)",
        "(zlib.crc32(purpose.encode()), t)",
        ("tests/test_rounds.py",),
    ),
    Fault(
        "private layers are not kept between rounds",
        "rounds.py",
        "values[at] = new[name]",
        "values[at] = values[at]",
        ("tests/test_simulate.py", "tests/test_rounds.py"),
    ),
    Fault(
        "clipping is said and not done",
        "aggregate/_sums.py",
        "mean(weights * factors, reports.updates)",
        "mean(weights, reports.updates)",
        ("tests/rules/test_aggregate.py",),
    ),
    Fault(
        "an undefined score counts as perfectly fair",
        "aggregate/_lift.py",
        "UNDEFINED = {'neutral': 0.5, 'worst': 1.0, 'zero': 0.0, 'previous': 0.5, 'error': np.nan}",
        "UNDEFINED = {'neutral': 0.0, 'worst': 1.0, 'zero': 0.0, 'previous': 0.0, 'error': np.nan}",
        ("tests/rules/test_aggregate.py",),
    ),
    Fault(
        "FairFed compares with a figure of old",
        "aggregate/_fairfed.py",
        "everyone = float(metric(table.sum(0)))",
        "everyone = memory.get('told', 0.3)",
        ("tests/rules/test_fairfed.py",),
    ),
    Fault(
        "batches are drawn without the seed",
        "learners/batches.py",
        "random = stream(seed, 'batch', t, client)",
        "random = np.random.default_rng()",
        ("tests/learners/test_engines.py",),
    ),
    Fault(
        "the rarer class weighs less",
        "learners/batches.py",
        "n / (parts * sizes[cell])",
        "parts * sizes[cell] / n",
        ("tests/learners/test_parts.py::test_row_weights_make_the_parts_equal",),
    ),
    Fault(
        "a resumed run does not look at the lines that stand there",
        "records/journal.py",
        "self._lines[self.done] != raw",
        "False",
        ("tests/records/test_journal.py",),
    ),
    Fault(
        "an undefined number is written as 0",
        "records/journal.py",
        "return None if isinstance(value, float) and (not np.isfinite(value)) else value",
        "return 0.0 if isinstance(value, float) and (not np.isfinite(value)) else value",
        ("tests/records/test_journal.py",),
    ),
    Fault(
        "the page draws an undefined score as a point",
        "report/charts.py",
        "[None if x.undefined_score(k) else v for x, v in zip(trained, used, strict=True)]",
        "[v for x, v in zip(trained, used, strict=True)]",
        ("tests/report/test_page.py::test_an_undefined_score_is_an_open_mark_and_not_a_point",),
    ),
    Fault(
        "the attacker narrows the gap it should widen",
        "objectives/bias.py",
        "-spread(chance(local), local.group, local.weight > 0)[0]",
        "spread(chance(local), local.group, local.weight > 0)[0]",
        ("tests/test_objectives.py",),
    ),
    Fault(
        "FinP's pull grows with the scale of the layers",
        "objectives/lipschitz.py",
        "(1 + log_lip - log_lip.detach())",
        "(1 + log_lip.exp() - log_lip.exp().detach())",
        ("tests/test_lipschitz.py",),
    ),
    Fault(
        "a flat client counts as the one most at risk",
        "scores.py",
        "(v < v[:, None]).sum(1)",
        "(v > v[:, None]).sum(1)",
        ("tests/rules/test_scores.py",),
    ),
    Fault(
        "distances are equalised uphill",
        "aggregate/_equidistant.py",
        "2 * (pull.sum() * (gram @ weights) - gram @ pull)",
        "-2 * (pull.sum() * (gram @ weights) - gram @ pull)",
        ("tests/rules/test_equidistant.py",),
    ),
    Fault(
        "an interval that holds the limit counts as outside",
        "audit/judge.py",
        "return OUTSIDE if (interval.high < limit.value if high_is_good else interval.low > limit.value) else UNSURE",
        "return OUTSIDE",
        ("tests/test_audit.py",),
    ),
    Fault(
        "one row is handed to every client",
        "data/partition.py",
        "np.concatenate([cut[k] for cut in cuts])",
        "np.concatenate([cut[k] for cut in cuts] + [cuts[0][0][:1]])",
        ("tests/data/test_partition.py",),
    ),
    Fault(
        "scaling is fitted on the test pool too",
        "study/cells.py",
        "data.fit_scaling(t.x, t.numeric, every)",
        "data.fit_scaling(t.x, t.numeric, np.arange(len(t.y)))",
        ("tests/study/test_facts.py",),
    ),
    Fault(
        "the attacker's share is the honest clients'",
        "records/summary.py",
        "sum(w for c, w in zip(x['clients'], x['weights'], strict=True) if c in members)",
        "sum(w for c, w in zip(x['clients'], x['weights'], strict=True) if c not in members)",
        ("tests/study/test_facts.py",),
    ),
    Fault(
        "of tied models the first is accused",
        "attacks/inference/source.py",
        "least = known == known.min(1, keepdims=True)",
        "least = np.arange(known.shape[1]) == known.argmin(1)[:, None]",
        ("tests/inference/test_source_inference.py",),
    ),
    Fault(
        "the fairness of losses is a mean of indices",
        "attacks/inference/source.py",
        "1 / (1 + cov ** 2)",
        "float(mean(1 / (1 + each ** 2)))",
        ("tests/inference/test_source_inference.py",),
    ),
    Fault(
        "records with equal scores are told apart",
        "attacks/inference/membership.py",
        "np.append(s[1:] != s[:-1], True)[:len(s)]",
        "np.ones(len(s), bool)",
        ("tests/inference/test_membership.py",),
    ),
    Fault(
        "sums of squares of all shadows are divided by the records",
        "attacks/inference/lira.py",
        "np.full_like(free, free.sum())",
        "np.full_like(free, len(free))",
        ("tests/inference/test_lira.py",),
    ),
    Fault(
        "a spread of risk is taken of a sample",
        "metrics/reductions.py",
        "_divide(_sum((v - m[..., None]) ** 2, ok), ok.sum(-1), ok.any(-1))",
        "_divide(_sum((v - m[..., None]) ** 2, ok), ok.sum(-1) - 1, ok.any(-1))",
        ("tests/metrics/test_dispersion.py",),
    ),
    Fault(
        "the weights that noise is made for have rows without a bound",
        "aggregate/_private.py",
        "np.minimum(reports.sizes, most_rows or np.inf)",
        "reports.sizes",
        ("tests/rules/test_private.py::test_one_client_moves_the_sums_by_the_stated_bound_and_no_further",),
    ),
    Fault(
        "noise is made for shares of the whole, which everybody moves",
        "aggregate/_private.py",
        "numerator, denominator = release(mass * factors, mass, reports.updates, sds, drawn)",
        "numerator, denominator = release(most * mass / mass.sum() * factors, mass, reports.updates, sds, drawn)",
        ("tests/rules/test_private.py::test_one_client_moves_the_sums_by_the_stated_bound_and_no_further",),
    ),
    Fault(
        "updates are not clipped before noise",
        "aggregate/_private.py",
        "release(mass * factors, mass, reports.updates, sds, drawn)",
        "release(mass, mass, reports.updates, sds, drawn)",
        ("tests/rules/test_private.py::test_one_client_moves_the_sums_by_the_stated_bound_and_no_further",),
    ),
    Fault(
        "noise forgets that a weight may be as large as eta",
        "aggregate/_private.py",
        "most = (most_rows or 1.0) ** power * float(tops.prod())",
        "most = (most_rows or 1.0) ** power",
        ("tests/rules/test_private.py::test_noise_is_gaussian_of_the_stated_width",),
    ),
    Fault(
        "a replaced client counts as one that left",
        "aggregate/_private.py",
        'ADJACENCY = {"add": 1, "replace": 2}',
        'ADJACENCY = {"add": 1, "replace": 1}',
        ("tests/rules/test_private.py::test_one_client_moves_the_sums_by_the_stated_bound_and_no_further",),
    ),
    Fault(
        "two sums share one client's budget as if each had it alone",
        "aggregate/_private.py",
        "noise * most * clip * np.sqrt(lift / (1 - h))",
        "noise * most * clip * np.sqrt(lift)",
        ("tests/rules/test_private.py::test_the_pair_in_units_of_its_noise_moves_by_one_over_the_multiplier",),
    ),
    Fault(
        "a score made for comparison is noised as if it were the client's own",
        "aggregate/_private.py",
        "_each(score, reports)",
        "score(reports)",
        ("tests/rules/test_private.py::test_whatever_the_score_no_other_client_can_move_a_weight",),
    ),
    Fault(
        "the noise of every round is the same",
        "aggregate/_private.py",
        "stream(seed, 'central noise', t)",
        "stream(seed, 'central noise')",
        ("tests/rules/test_private.py::test_noise_is_gaussian_of_the_stated_width",),
    ),
]
