"""tensorcomp under a budget, as the benchmarks call it: the only place that knows its API."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.common.checkpoints import Array, Tensors
from tensorcomp import Budget, load, save
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import decode, encode, join
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.statistics import Statistics
from tensorcomp.planning.steps import QUANTIZER, expand_quantizer
from tensorcomp.planning.trials import first_guess, meet_bound

SMALLEST = 4096  # elements below which a tensor stays lossless
PROFILE = "transformer"


@dataclass(frozen=True)
class Coded:
    """A compressed checkpoint.

    Parameters
    ----------
    nbytes : int
        Of the whole file.
    decoded : dict of str to numpy.ndarray
        Every tensor.
    """

    nbytes: int
    decoded: Tensors


def bits(nbytes: int, tensors: Tensors) -> float:
    """Return bits a weight: all bytes over the elements of all tensors."""
    return 8 * nbytes / sum(tensor.size for tensor in tensors.values())


def at_snr(tensors: Tensors, snr: Mapping[str, float], effort: str) -> Coded:
    """Compress a checkpoint so that each tensor named has at least its SNR, the others lossless."""
    bounds = {name: Budget(min_snr=wanted) for name, wanted in snr.items()}
    return _opened(save(tensors, effort=effort, profile=PROFILE, bounds=bounds))


def at_size(
    tensors: Tensors,
    nbytes: int | None,
    profile: str,
    statistics: Statistics | None = None,
    effort: str | None = None,
) -> Coded:
    """Compress a checkpoint to at most so many bytes, or to the profile's own budget."""
    budget = None if nbytes is None else Budget(target_size=nbytes)
    options = {"profile": profile, "statistics": statistics, "effort": effort}
    return _opened(save(tensors, budget=budget, **options))


def _opened(file: bytes) -> Coded:
    return Coded(len(file), load(file))


def file_at_bits(tensors: Tensors, wanted: float, effort: str) -> bytes:
    """Return a file of at most so many bits a weight."""
    return save(tensors, effort=effort, profile=PROFILE, budget=Budget(bits_per_weight=wanted))


def loaded(file: bytes, threads: int) -> Tensors:
    """Return all tensors of a file."""
    tensors: Tensors = load(file, threads=threads)
    return tensors


def tree_at_snr(array: Array, snr: float, effort: str) -> Node:
    """Return the quantizer of an effort, with the step that just gives an SNR in dB."""
    bound = Bound(max_rel_l2=10 ** (-snr / 20))
    found = meet_bound(first_guess(expand_quantizer(QUANTIZER, effort), array, bound), array, bound)
    if found is None:
        raise ValueError(f"no step gives {snr} dB")
    return found


def payload(tree: Node, array: Array) -> bytes:
    """Return an array coded by a tree, as one chunk."""
    return join(encode(tree, readable(array)))


def restored(tree: Node, data: bytes, like: Array) -> Array:
    """Return what was coded by a tree, of the shape and type of `like`."""
    return decode(tree, data, spec_of(like))


def coded_by_text(tree: str, tensors: Tensors) -> tuple[int, Tensors]:
    """Return the bytes of tensors, each coded by the tree of a text, and what is decoded."""
    total, decoded = 0, {}
    node = parse_tree(tree)
    for name, tensor in tensors.items():
        data = payload(node, tensor)
        total += len(data)
        decoded[name] = restored(node, data, tensor)
    return total, decoded
