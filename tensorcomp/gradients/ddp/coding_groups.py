"""How a bucket of gradients is cut into units: what is compressed as one tensor.

A unit is a parameter, or all small parameters of a bucket that share a compressor: one payload then
costs one index, and one call. Where a bucket's layout changes, units change and states follow the
parameters' names (`memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, Reduction, State, leaf_of
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.ddp.frames import schema_hash
from tensorcomp.gradients.labels import label
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter

if TYPE_CHECKING:
    from tensorcomp.gradients.ddp.state_store import Memory
    from tensorcomp.gradients.wrappers.packet_loss import PacketLoss

SMALL = 4096  # elements: fewer are joined with others
_RIDING = 1 << 16  # bytes of dense gradients that go with others' payloads


@dataclass(frozen=True)
class Piece:
    """A parameter's place in the flat buffer of a bucket.

    Parameters
    ----------
    name : str
    shape : tuple of int
    start, stop : int
        Elements of the buffer.
    role : str
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    role: str = ""


@dataclass(frozen=True)
class Unit:
    """What is compressed as one tensor.

    Parameters
    ----------
    spec : GradientSpec
        Of one parameter, or of several as one flat vector.
    compressor : Compressor
        Concrete: nothing in it decides any more.
    pieces : tuple of Piece
        The parameters, in the order of the buffer; their elements are the unit's, back to back.
    native : Compressor or None
        The compressor's counterpart for tensors on the bucket's device, if it is compressed there.
    """

    spec: GradientSpec
    compressor: Compressor
    pieces: tuple[Piece, ...]
    native: Compressor | None = None

    @property
    def codec(self) -> Compressor:
        """What is stepped: the native compressor, or else the compressor."""
        return self.compressor if self.native is None else self.native

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(piece.name for piece in self.pieces)

    @cached_property
    def place(self) -> tuple[int, int] | None:
        """Where it starts and stops in the buffer, or None if other parameters lie between."""
        for one, other in zip(self.pieces, self.pieces[1:], strict=False):
            if one.stop != other.start:
                return None
        return self.pieces[0].start, self.pieces[-1].stop

    @cached_property
    def piece_specs(self) -> tuple[GradientSpec, ...]:
        """The spec of each parameter."""
        return tuple(
            replace(self.spec, name=piece.name, shape=piece.shape, role=piece.role)
            for piece in self.pieces
        )

    @cached_property
    def text(self) -> str:
        """The compressor's text."""
        return self.compressor.text()

    @cached_property
    def label(self) -> str:
        """The compressor's text as people read it."""
        return label(self.compressor)

    @cached_property
    def line(self) -> str:
        """What ranks must have alike to decode each other."""
        shapes = ", ".join(f"{piece.name}{list(piece.shape)}" for piece in self.pieces)
        return f"{shapes} of {self.spec.dtype} by {self.text}"

    def spec_of(self, worker: int) -> GradientSpec:
        """Return the spec as another worker has it."""
        return self._specs.setdefault(worker, replace(self.spec, worker=worker))

    @cached_property
    def _specs(self) -> dict[int, GradientSpec]:
        return {}

    @cached_property
    def notes(self) -> dict[str, Any]:
        """What a reduction works out of a unit once."""
        return {}


@dataclass(frozen=True)
class Layout:
    """The units of a bucket.

    Parameters
    ----------
    units : tuple of Unit
    compressors : tuple of Compressor
        Of each parameter, in the order of the buffer.
    """

    units: tuple[Unit, ...]
    compressors: tuple[Compressor, ...]

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """What ranks must have alike, a line for each unit."""
        return tuple(unit.line for unit in self.units)

    @cached_property
    def schema(self) -> int:
        """The hash of `lines`."""
        return schema_hash(self.lines)

    @cached_property
    def routes(self) -> dict[Reduction, tuple[int, ...]]:
        """The units that are reduced in each way, by their places in `units`.

        A few dense ones go with gathered payloads: another collective would cost more.
        """
        units = self.units
        riding = [unit for unit in units if is_dense(unit.compressor)]
        gathers = any(unit.compressor.reduction == "gather" for unit in units)
        ride = gathers and sum(unit.spec.nbytes for unit in riding) < _RIDING
        found: dict[Reduction, list[int]] = {"gather": [], "reduce_scatter": [], "sum": []}
        for index, unit in enumerate(units):
            rides = ride and is_dense(unit.compressor)
            found["gather" if rides else unit.compressor.reduction].append(index)
        return {way: tuple(indices) for way, indices in found.items() if indices}

    @cached_property
    def lossy_routes(self) -> dict[Reduction, tuple[int, ...]]:
        """The same where chunks are lost at owners: they reduce all but what must be summed."""
        found: dict[Reduction, list[int]] = {"reduce_scatter": [], "sum": []}
        for index, unit in enumerate(self.units):
            summed = unit.compressor.reduction == "sum" and not is_dense(unit.compressor)
            found["sum" if summed else "reduce_scatter"].append(index)
        return {way: tuple(indices) for way, indices in found.items() if indices}


@dataclass
class UnitWork:
    """A unit in a step, as the functions that reduce see it.

    Parameters
    ----------
    unit : Unit
    gradient : numpy.ndarray
        Of the unit's shape and dtype, finite where `Context.finite`.
    mean : numpy.ndarray
        (n,) where the mean over ranks goes. It may be the memory of `gradient`: nothing may be
        written to it while the gradient is still read.
    state : State
        Of the compressor, before the step.
    silent : bool
        Whether nothing is sent and the state stays as it is: the parameter was not used here.
    new_state : State or None
        What the step leaves; None for no change.
    sent : DecodedGradient or None
        What this rank's payload decodes to.
    payload_bytes : int
        Of this rank's payload.
    encode_seconds, decode_seconds : float
        What the codecs took.
    """

    unit: Unit
    gradient: np.ndarray
    mean: np.ndarray
    state: State
    silent: bool = False
    new_state: State | None = None
    sent: DecodedGradient | None = None
    payload_bytes: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass
class Context:
    """What is the same for all units of a bucket in a step.

    Parameters
    ----------
    key : str
        Of the bucket; the same on all ranks.
    step : int
    phase : str
        Of training, as in `StepInfo`.
    layout : Layout
        Of the whole bucket.
    finite : bool
        Whether all values of the bucket on this rank are finite. Where they are not, nothing is
        compressed, and the function that reduces only tells the other ranks.
    kept : Memory
        The states on this rank, also of units beside those of the bucket, such as an owner's:
        ``kept.state(unit)`` and ``kept.stage(unit, state)``; what is staged counts once the step is
        done, and is dropped with it.
    sizes : mapping of str to int
        Elements of every parameter of the model, in the same order on all ranks.
    loss : PacketLoss or None
    """

    key: str
    step: int
    phase: str
    layout: Layout
    finite: bool
    kept: Memory
    sizes: Mapping[str, int]
    loss: PacketLoss | None = None


def is_dense(compressor: Compressor) -> bool:
    """Return whether a compressor sends everything."""
    return isinstance(leaf_of(compressor), Dense)


def is_plain(compressor: Compressor) -> bool:
    """Return whether a compressor sends the gradient itself, once no residual is left."""
    while isinstance(compressor, ErrorFeedback | ReduceScatter):
        compressor = compressor.inner
    return isinstance(compressor, Dense)
