"""Which parameters of a bucket are compressed together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, Wrapper
from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
from tensorcomp.gradients.compressors.powersgd import PowerSgd
from tensorcomp.gradients.ddp.coding_groups import Layout, Piece, Unit

SMALL = 4096  # elements: fewer are joined with others


def lay_out(
    pieces: Sequence[Piece],
    compressors: Sequence[Compressor],
    *,
    dtype: np.dtype,
    worker: int,
    join_small: bool,
    groups: Sequence[tuple[str, ...]] = (),
) -> Layout:
    """Return the units of a bucket.

    Parameters
    ----------
    pieces : sequence of Piece
        All parameters, in the order of the buffer.
    compressors : sequence of Compressor
        Of each, concrete.
    dtype : numpy.dtype
        Of what is coded.
    worker : int
        This rank.
    join_small : bool
        Whether parameters of fewer than `SMALL` elements with equal compressors become one unit.
    groups : sequence of tuple of str
        Names of parameters that become one unit where all of them are in this bucket: those of an
        earlier run, so that it goes on bit for bit while its buckets are not there yet.
    """
    units: list[tuple[Compressor, list[Piece]]] = []
    open_units: list[int] = []  # those that take more
    together = _together(pieces, compressors, groups) if join_small else {}
    for piece, compressor in zip(pieces, compressors, strict=True):
        group = together.get(piece.name)
        if group is not None:
            if group[0] is piece:
                units.append((compressor, group))
        elif not (join_small and may_join(piece, compressor)):
            units.append((compressor, [piece]))
        else:
            place = next((i for i in open_units if units[i][0] == compressor), None)
            if place is None:
                open_units.append(len(units))
                units.append((compressor, [piece]))
            else:
                units[place][1].append(piece)
    made = tuple(_unit(tuple(group), one, dtype, worker) for one, group in units)
    return Layout(made, tuple(compressors))


def _together(
    pieces: Sequence[Piece], compressors: Sequence[Compressor], groups: Sequence[tuple[str, ...]]
) -> dict[str, list[Piece]]:
    """Return the groups whose members are all here and may be joined, by each member's name."""
    here = {piece.name: (piece, one) for piece, one in zip(pieces, compressors, strict=True)}
    found = {}
    for names in groups:
        members = [here[name] for name in names if name in here]
        alike = len(members) == len(names) and all(one == members[0][1] for _, one in members)
        if alike and all(may_join(piece, one) for piece, one in members):
            group = [piece for piece, _ in members]
            for name in names:
                found[name] = group
    return found


def may_join(piece: Piece, compressor: Compressor) -> bool:
    """Return whether a parameter may be compressed together with others.

    Large ones may not, nor those of a compressor that minds the tensor's shape, promises something
    of each tensor, or clips by its norm.
    """
    if not 0 < math.prod(piece.shape) < SMALL:
        return False
    while isinstance(compressor, Wrapper):
        if getattr(compressor, "clip", None) is not None:
            return False
        compressor = compressor.inner
    return not isinstance(compressor, ErrorBounded | PowerSgd)


def _unit(pieces: tuple[Piece, ...], compressor: Compressor, dtype: np.dtype, worker: int) -> Unit:
    if len(pieces) == 1:
        (piece,) = pieces
        spec = GradientSpec(piece.name, piece.shape, dtype, piece.role, worker)
    else:
        size = sum(piece.stop - piece.start for piece in pieces)
        name = f"{pieces[0].name} and {len(pieces) - 1} more"
        spec = GradientSpec(name, (size,), dtype, "", worker)
    return Unit(spec, compressor, pieces)
