"""Which compressor for which tensor: the fastest that keeps the error, the same on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.measurements import Measurement, Speed
from tensorcomp.gradients.base import GradientSpec, Reduction
from tensorcomp.gradients.cost_model.collective_costs import (
    Link,
    bytes_sent,
    coding_seconds,
    messages_sent,
)
from tensorcomp.gradients.cost_model.collective_costs import seconds as exchange_seconds

DENSE = "dense"
RIDES = 1 << 16  # bytes of a dense tensor that goes along with gathered payloads
_KINDS: tuple[Reduction, ...] = ("sum", "gather", "reduce_scatter")


@dataclass(frozen=True)
class _Offer:
    """A candidate for one tensor: seconds by the kind of collective it goes with."""

    text: str
    seconds: Mapping[Reduction, float]


def decide(
    measurements: Sequence[Measurement],
    specs: Iterable[GradientSpec],
    candidates: Mapping[str, Reduction],
    world: int,
    *,
    max_rel_l2: float | None = None,
    current: Mapping[str, str] | None = None,
    hysteresis: float = 0.1,
    buckets: int = 1,
) -> dict[str, str]:
    """Choose a candidate for each tensor, so that coding and exchanging all takes least time.

    Of the ranks' figures the worst ones count: the longest times of coding and the largest error.
    But a rank that comes early to a collective waits for the others, which is no fault of the
    link, so the rank is believed to which the link looks fastest. For every set of kinds of
    collectives, each tensor takes its fastest candidate; the set that takes least in all, its
    latencies included, is taken. This is pure arithmetic in the ranks' order: the same
    measurements give the same choices everywhere.

    Parameters
    ----------
    measurements : sequence of Measurement
        One of each rank, in the order of ranks.
    specs : iterable of GradientSpec
    candidates : mapping of str to str
        Their texts, and how each is reduced. ``"dense"`` is one in any case.
    world : int
        Ranks.
    max_rel_l2 : float, optional
        The largest error of a tensor's payload; none by default. A candidate that was not tried on
        a tensor is not chosen for it.
    current : mapping of str to str, optional
        The choices so far. They stay, unless they break the bound or the new ones take less time
        by more than `hysteresis`.
    hysteresis : float
        A fraction of the time.
    buckets : int
        Into how many collectives the tensors are divided.

    Returns
    -------
    dict of str to str
        A candidate's text for each tensor, in the order of `specs`.

    Raises
    ------
    GradientError
        If nothing was measured.
    """
    if not measurements:
        raise GradientError("no rank measured anything; there is nothing to decide by")
    tensors = list(specs)
    link = _believed(measurements, tensors, world)
    kinds = {DENSE: _KINDS[0], **candidates}
    offers = {
        spec.name: list(_offers(spec, measurements, kinds, world, link, max_rel_l2))
        for spec in tensors
    }
    rounds = {kind: buckets * messages_sent(kind, world) * link.latency for kind in _KINDS}
    plans = (_plan(offers, used, rounds) for used in _subsets(kinds.values()))
    seconds, best = min((plan for plan in plans if plan is not None), key=lambda plan: plan[0])
    if current is not None:
        held = {
            name: [o for o in listed if o.text == current.get(name, DENSE)]
            for name, listed in offers.items()
        }
        plans = (_plan(held, used, rounds) for used in _subsets(kinds.values()))
        kept = min(
            (plan for plan in plans if plan is not None), default=None, key=lambda plan: plan[0]
        )
        if kept is not None and kept[0] <= seconds * (1 + hysteresis):
            return kept[1]
    return best


def dense_seconds(
    measurements: Sequence[Measurement], specs: Iterable[GradientSpec], world: int
) -> float:
    """Return the seconds that exchanging all gradients as they are is predicted to take."""
    tensors = list(specs)
    link = _believed(measurements, tensors, world)
    return exchange_seconds("sum", sum(spec.nbytes for spec in tensors), world, link)


def _believed(
    measurements: Sequence[Measurement], tensors: Sequence[GradientSpec], world: int
) -> Link:
    """Return the link of the rank on which the sum of all tensors takes least time."""
    nbytes = sum(spec.nbytes for spec in tensors)
    return min(
        (measured.link for measured in measurements),
        key=lambda link: exchange_seconds("sum", nbytes, world, link),
    )


def _subsets(kinds: Iterable[Reduction]) -> Iterator[tuple[Reduction, ...]]:
    """Yield every set of the kinds of collectives, the smallest first."""
    there = [kind for kind in _KINDS if kind in set(kinds)]
    for count in range(1, len(there) + 1):
        yield from combinations(there, count)


def _offers(
    spec: GradientSpec,
    measurements: Sequence[Measurement],
    kinds: Mapping[str, Reduction],
    world: int,
    link: Link,
    max_rel_l2: float | None,
) -> Iterator[_Offer]:
    dense: dict[Reduction, float] = {"sum": bytes_sent("sum", spec.nbytes, world) / link.bandwidth}
    if spec.nbytes < RIDES:
        dense["gather"] = bytes_sent("gather", spec.nbytes, world) / link.bandwidth
    yield _Offer(DENSE, dense)
    for text, kind in kinds.items():
        tried = [
            m.trials[text][spec.name] for m in measurements if spec.name in m.trials.get(text, ())
        ]
        if text == DENSE or not tried:
            continue
        if max_rel_l2 is not None and max(trial.error for trial in tried) > max_rel_l2:
            continue
        pieces = world if kind == "reduce_scatter" else 1
        encode = max(_coding(m.encode, text, spec, pieces) for m in measurements)
        decode = max(_coding(m.decode, text, spec, pieces) for m in measurements)
        nbytes = sum(trial.nbytes for trial in tried) / len(tried)
        seconds = sum(coding_seconds(kind, encode, decode, world))
        yield _Offer(text, {kind: seconds + bytes_sent(kind, nbytes, world) / link.bandwidth})


def _coding(speeds: Mapping[str, Speed], text: str, spec: GradientSpec, pieces: int) -> float:
    return speeds.get(text, Speed()).seconds(spec.nbytes, pieces)


def _plan(
    offers: Mapping[str, Sequence[_Offer]],
    used: Sequence[Reduction],
    rounds: Mapping[Reduction, float],
) -> tuple[float, dict[str, str]] | None:
    """Return the seconds and the choices of each tensor's fastest offer; None if one has none."""
    total = sum(rounds[kind] for kind in used)
    choices = {}
    for name, listed in offers.items():
        possible = [
            (offer.seconds[kind], offer.text)
            for offer in listed
            for kind in used
            if kind in offer.seconds
        ]
        if not possible:
            return None
        seconds, choices[name] = min(possible, key=lambda pair: pair[0])
        total += seconds
    return total, choices
