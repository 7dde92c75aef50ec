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
        ("tests/test_weights.py",),
    ),
    Fault(
        "masses divided by the number of clients, not by their sum",
        "weights.py",
        "return mass / total if total > 0 else np.full(len(mass), np.nan)",
        "return mass / len(mass) if total > 0 else np.full(len(mass), np.nan)",
        ("tests/test_weights.py",),
    ),
    Fault(
        "a rate of 0/0 is 0",
        "metrics/rates.py",
        "np.full(n.shape, np.nan)",
        "np.zeros(n.shape)",
        ("tests/metrics",),
    ),
    Fault(
        "groups that are present are numbered anew",
        "metrics/counts.py",
        "_index('group', group, groups)",
        "np.unique(group, return_inverse=True)[1]",
        ("tests/metrics",),
    ),
    Fault(
        "an interval of 95 % takes the z of 90 %",
        "metrics/intervals.py",
        "NormalDist().inv_cdf((1 + level) / 2)",
        "NormalDist().inv_cdf(level)",
        ("tests/metrics",),
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
        ("tests/test_aggregate.py",),
    ),
    Fault(
        "an undefined score counts as perfectly fair",
        "aggregate/_lift.py",
        "UNDEFINED = {'neutral': 0.5, 'worst': 1.0, 'zero': 0.0, 'previous': 0.5, 'error': np.nan}",
        "UNDEFINED = {'neutral': 0.0, 'worst': 1.0, 'zero': 0.0, 'previous': 0.0, 'error': np.nan}",
        ("tests/test_aggregate.py",),
    ),
    Fault(
        "FairFed compares with a figure of old",
        "aggregate/_fairfed.py",
        "everyone = float(metric(table.sum(0)))",
        "everyone = memory.get('told', 0.3)",
        ("tests/test_aggregate.py",),
    ),
    Fault(
        "batches are drawn without the seed",
        "learners/batches.py",
        "random = stream(seed, 'batch', t, client)",
        "random = np.random.default_rng()",
        ("tests/learners",),
    ),
    Fault(
        "the rarer class weighs less",
        "learners/batches.py",
        "n / (parts * sizes[cell])",
        "parts * sizes[cell] / n",
        ("tests/learners",),
    ),
    Fault(
        "a resumed run does not look at the lines that stand there",
        "records/journal.py",
        "self._lines[self.done] != raw",
        "False",
        ("tests/records",),
    ),
    Fault(
        "an undefined number is written as 0",
        "records/journal.py",
        "return None if isinstance(value, float) and (not np.isfinite(value)) else value",
        "return 0.0 if isinstance(value, float) and (not np.isfinite(value)) else value",
        ("tests/records",),
    ),
]
