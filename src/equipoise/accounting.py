"""What differentially private training has spent: epsilon over all rounds, with the assumptions it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from .checks import BadInput, above, between, extra, one_of, same_length

__all__ = ["NOT_COVERED", "NOT_COVERED_CENTRALLY", "Spent", "central", "epsilon", "noise_for", "per_client"]

ADJACENCY = "add or remove one record of the client"

LIMIT = 1e4
"""An epsilon beyond this is given as infinite: neither promises anything, and the accountants overflow."""

MOST_NOISE = 1e6
"""More noise than this counts as this, which bounds what it spends; the accountants overflow on its square."""

ORDERS = (*range(2, 65), *(int(2 ** (6 + i / 2)) for i in range(1, 13)))
"""Renyi orders of the bound from which the grid of the exact accountant follows; whole ones have a closed form."""

NOT_COVERED = (
    "It covers the trained parameters that the client sends. It does not cover what else is sent or published about "
    "its rows: their number, tables of counts, curvature, losses and scores, nor a clip that was chosen by looking at "
    "private rows. Aggregation weights do not change it as long as they come from what is private already; weights "
    "made from other figures release those figures. Noise and batches can be drawn again by whoever knows the run's "
    "seed, so they protect from those who do not."
)
"""What an epsilon says nothing about; every statement ends with it."""

CLIENTS = {
    "add": "add or remove all that one client contributes",
    "replace": "replace all that one client contributes by anything else, or by nothing",
}
"""What the two runs that must look alike differ by, where whole clients are hidden."""

NOT_COVERED_CENTRALLY = (
    "It covers a client's whole contribution to the shared model in all rounds, its scores, its number of rows and its "
    "updates, against whoever sees the models. It does not protect from the server, which sees all of them before the "
    "noise, nor cover the run's records, which hold them, or other figures that are published, scaling and levels that "
    "were made from all rows, or who is a member, is asked and replies. The clip, the most rows and the constants of "
    "a score must have been chosen without looking at the clients. Noise that is keyed by a seed can be taken off by "
    "whoever knows the seed; a deployment draws it from the operating system."
)
"""What an epsilon of noise at the server is about, and what not; every statement of it ends with this."""


class Spent(NamedTuple):
    """What one client has spent, and what the figure rests on.

    Attributes
    ----------
    epsilon : upper bound, inf where there is no protection
    delta : the probability with which it may fail
    adjacency : which two data sets must look alike
    sampling : how a step's rows are drawn
    steps : steps over all rounds
    rate : probability with which a step takes a record
    accountant : how epsilon was found
    statement : all of it in sentences, with what it does not cover
    """

    epsilon: float
    delta: float
    adjacency: str
    sampling: str
    steps: int
    rate: float
    accountant: str
    statement: str


def epsilon(noise: float, rate: float, steps: int, delta: float) -> Spent:
    """Bound what a client's updates tell about any one of its records, over all steps of all rounds together.

        sup_S  P(M(D) in S) - exp(epsilon) P(M(D') in S)  <=  delta,  and the same with D and D' exchanged

    Parameters
    ----------
    noise : standard deviation of the noise over the clip, >= 0; see ``learners.Private``
    rate : probability q with which a step takes each record, on its own: batch / n. 1 = all rows at each step
    steps : steps that the client has taken in all its rounds, also in those whose reply came too late
    delta : below 1 / n, since a mechanism that publishes one random record has delta = 1 / n

    Raises
    ------
    BadInput
        If noise or steps are negative, the rate is outside 0..1, or delta outside 0..1 (both ends excluded).

    Examples
    --------
    FinP's code makes a new accountant for every client and round, which shows the first of these two figures; what 20
    rounds of 5 epochs over 1,000 rows in batches of 64 have spent is the second:

    >>> one, all_rounds = epsilon(1.0, 0.064, 80, 1e-5), epsilon(1.0, 0.064, 20 * 80, 1e-5)
    >>> round(one.epsilon, 1), round(all_rounds.epsilon, 1)
    (4.1, 19.5)

    References
    ----------
    Abadi et al., Deep learning with differential privacy (CCS 2016); Koskela et al., Computing tight differential
    privacy guarantees using FFT (AISTATS 2020); Doroshenko et al., Connect the dots (PoPETs 2022), as in dp-accounting.

    Notes
    -----
    The accountant convolves privacy loss distributions (PLD), which is tight up to its grid; the grid is a
    ten-thousandth of the Renyi (RDP) bound, so that time and memory stay small in any setting. RDP alone gives 5 to
    20 % more in usual ones. Batches must be drawn by Poisson sampling: for shuffled batches of a fixed size
    the figure would be wrong, and the learner refuses them.

    Each client clips and adds noise on its own, so its guarantee holds against the server too. A weighted mean of the
    updates is computed from them and no more: whatever the weights, it spends nothing. ``NOT_COVERED`` says the limits.
    """
    noise = between("noise", noise, 0, inf)
    rate = between("the sampling rate", rate, 0, 1)
    if steps != int(steps) or steps < 0:
        raise BadInput(f"steps must be a whole number >= 0, got {steps:g}; count the steps of all rounds")
    if not 0 < delta < 1:
        raise BadInput(f"delta must lie between 0 and 1, got {delta:g}; take less than 1 over the client's rows")
    found = _bound(noise, rate, int(steps), delta)
    sampling = "Poisson" if rate < 1 else "none: every step takes all rows"
    how = f"Poisson sampling at rate {rate:.4g}" if rate < 1 else "no sampling"
    if found < inf:
        says = f"The client's updates are ({found:.3g}, {delta:g})-differentially private"
    else:
        why = "there is no noise" if noise == 0 else "the noise is too little"
        says = f"The client's updates are not differentially private (epsilon is infinite, as {why})"
    says += (
        f": {ADJACENCY}; {int(steps)} steps, {how}, noise of {noise:g} times the clip, PLD accountant. {NOT_COVERED}"
    )
    return Spent(found, delta, ADJACENCY, sampling, int(steps), rate, "PLD", says)


def central(noise: float, rounds: int, delta: float, *, adjacency: str = "add", rate: float = 1.0) -> Spent:
    """Bound what the models of all rounds tell about any one client; the noise is that of ``aggregate.central_dp``.

    Each round is one Gaussian mechanism, of noise multiplier z, on the pair (weighted sum, sum of weights).

    Parameters
    ----------
    noise : z, >= 0
    rounds : in which the pair was released, kept models included
    delta : below 1 / K
    adjacency : "add" or "replace", as the noise was made for
    rate : probability with which each client is in a round, on its own and unseen (Poisson sampling). 1 where all are,
        and where a fixed number is drawn, as by ``participation.fraction``: that is no Poisson sample, and the figure
        for one would be too low. Clients that remember their last round have no smaller rate than 1 either

    Raises
    ------
    BadInput
        As for ``epsilon``; an unknown adjacency; a rate below 1 with "replace", for which the bound is another one.

    Examples
    --------
    >>> round(central(4.0, 16, 1e-3).epsilon, 2), round(central(4.0, 16, 1e-3, rate=0.1).epsilon, 2)
    (3.14, 0.21)

    ``noise_for(target, rate, rounds, delta)`` finds the noise of a target here too.

    References
    ----------
    Dwork and Roth, The algorithmic foundations of differential privacy (2014), appendix A; accountant as ``epsilon``.
    """
    one_of("adjacency", adjacency, CLIENTS)
    if rate < 1 and adjacency != "add":
        raise BadInput(
            f'a rate of {rate:g} lowers the figure for adjacency "add" only; take that, or account with a rate of 1'
        )
    found = epsilon(noise, rate, rounds, delta)
    bound = "is differentially private for no client (epsilon is infinite: there is too little noise)"
    if found.epsilon < inf:
        bound = f"is ({found.epsilon:.3g}, {delta:g})-differentially private for every client"
    who = "every client counts as part of each" if rate == 1 else f"Poisson sampling of clients at rate {rate:.4g}"
    says = (
        f"The shared model {bound}: {CLIENTS[adjacency]}; {rounds} rounds, {who}, noise multiplier {noise:g} of the "
        f"Gaussian mechanism on weighted sum and sum of weights, PLD accountant. {NOT_COVERED_CENTRALLY}"
    )
    sampling = "Poisson" if rate < 1 else "none: every client counts as part of each round"
    return found._replace(adjacency=CLIENTS[adjacency], sampling=sampling, statement=says)


def per_client(noise: float, sizes: Sequence[float], batch: float, steps: Sequence[int], delta: float) -> list[Spent]:
    """Account for every client: the fewer rows it has, the more often a step takes each of them.

        rate_k = min(1, batch / n_k)

    Parameters
    ----------
    sizes, steps : (K,) rows, and steps over all rounds; a client without rows has taken no step
    batch : expected rows of a step

    Examples
    --------
    >>> spent = per_client(1.0, [200, 1000], 50, [40, 200], 1e-5)
    >>> worst = max(spent, key=lambda s: s.epsilon)
    >>> [round(s.epsilon, 1) for s in spent], worst.rate
    ([11.3, 4.8], 0.25)
    """
    same_length(sizes=sizes, steps=steps)
    above("batch", batch, 0)
    rates = [min(1.0, batch / n) if n > 0 else 0.0 for n in sizes]
    return [epsilon(noise, q, t, delta) for q, t in zip(rates, steps, strict=True)]


def noise_for(target: float, rate: float, steps: int, delta: float) -> float:
    """Return the least noise with which ``epsilon(noise, rate, steps, delta)`` stays at or below ``target``.

    It is found by bisection, to a thousandth of itself, and rounded up.

    Raises
    ------
    BadInput
        If no noise up to a million times the clip is enough.

    Examples
    --------
    >>> noise = noise_for(8.0, 0.064, 1600, 1e-5)
    >>> round(noise, 2), epsilon(noise, 0.064, 1600, 1e-5).epsilon <= 8
    (1.71, True)
    """
    above("epsilon", target, 0)
    low, high = 0.0, 1.0
    while epsilon(high, rate, steps, delta).epsilon > target:
        low, high = high, 4 * high
        if high > MOST_NOISE:
            raise BadInput(f"no noise gives an epsilon of {target:g} at delta {delta:g}; raise one of them")
    while high - low > 1e-3 * high and high > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon(middle, rate, steps, delta).epsilon > target else (low, middle)
    return high


@lru_cache(maxsize=4096)  # clients of one size, and a bisection, ask again
def _bound(noise: float, rate: float, steps: int, delta: float) -> float:
    if steps == 0 or rate == 0:
        return 0.0
    if noise < 1e-3:
        return inf
    noise = min(noise, MOST_NOISE)
    dp: Any = extra("dp_accounting", "privacy")
    step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    event = dp.SelfComposedDpEvent(step, steps)
    renyi: Any = extra("dp_accounting.rdp.rdp_privacy_accountant", "privacy").RdpAccountant(orders=ORDERS)
    coarse = float(renyi.compose(event).get_epsilon(delta))
    if coarse > LIMIT:
        return inf
    exact: Any = extra("dp_accounting.pld.pld_privacy_accountant", "privacy").PLDAccountant(
        value_discretization_interval=max(coarse / 1e4, 1e-6)
    )
    return min(coarse, float(exact.compose(event).get_epsilon(delta)))  # both are upper bounds
