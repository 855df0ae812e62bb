"""The states of all parameters on this rank: kept by name, changed only by whole steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, State
from tensorcomp.gradients.ddp.coding_groups import Unit
from tensorcomp.gradients.payload.arrays import move, move_to_host
from tensorcomp.gradients.payload.states import carry, flatten, join, split, unflatten


@dataclass(frozen=True)
class Saved:
    """What a state held when it was saved.

    Parameters
    ----------
    values : mapping of str to array or number
        As `states.flatten` gives them.
    strict : bool
        Whether everything must be there; otherwise a new state keeps what fits: fields of the same
        name and size, residuals above all.
    """

    values: Mapping[str, Any]
    strict: bool = True

    def fit(self, fresh: State) -> State:
        """Return a new state with these values.

        Raises
        ------
        GradientError
            If they do not fit.
        """
        if self.strict:
            return unflatten(fresh, self.values)
        wanted = flatten(fresh)
        found = {key.rpartition(".")[2]: value for key, value in self.values.items()}
        for key, value in wanted.items():
            other = self.values.get(key, found.get(key.rpartition(".")[2]))
            if other is not None and np.size(other) == np.size(value):
                wanted[key] = other
        return unflatten(fresh, wanted)


class Memory:
    """States between steps.

    What a step changes is staged; `commit` makes it count, `drop` forgets it, so that a step which
    was not made leaves every state as it was, bit for bit. States of units follow their parameters'
    names where units change.
    """

    def __init__(self) -> None:
        self._units: dict[tuple[str, ...], tuple[Unit, State]] = {}
        self._holders: dict[str, tuple[str, ...]] = {}  # for each parameter, the key of its unit
        self._loose: dict[str, State | Saved] = {}  # of parameters that are in no unit now
        self._staged: dict[tuple[str, ...], State | None] = {}

    def state(self, unit: Unit) -> State:
        """Return the state of a unit, made from those of its parameters where units changed."""
        held = self._units.get(unit.key)
        if held is not None and held[0] is unit:
            return held[1]
        names = set(unit.key)
        for name in unit.key:
            if name in self._holders:
                self._loosen(self._holders[name])
        if names.isdisjoint(self._loose):
            state = unit.codec.init(unit.spec)
        else:
            parts = [self._part(unit.compressor, spec) for spec in unit.piece_specs]
            state = parts[0] if len(parts) == 1 else join(parts, unit.spec)
            state = _moved(unit, state)
        self._hold(unit, state)
        return state

    def holds(self, name: str) -> bool:
        """Return whether there is a state of that name."""
        return name in self._holders or name in self._loose

    def stage(self, unit: Unit, state: State | None) -> None:
        """Take the next state of a unit, or None to forget it; it counts once the step is done."""
        self._staged[unit.key] = state

    @property
    def used(self) -> bool:
        """Whether any parameter has a state."""
        return bool(self._units or self._loose)

    def clear(self) -> None:
        """Forget the states of all parameters."""
        self._units.clear()
        self._holders.clear()
        self._loose.clear()

    @property
    def groups(self) -> list[list[str]]:
        """The parameters of every unit."""
        return [list(key) for key in self._units]

    def commit(self) -> None:
        """Make what was staged count."""
        for key, state in self._staged.items():
            unit, _ = self._units.pop(key)
            if state is None:
                for name in key:
                    del self._holders[name]
            else:
                self._units[key] = (unit, state)
        self.drop()

    def drop(self) -> None:
        """Forget what was staged."""
        self._staged.clear()

    def by_name(self) -> dict[str, State | Saved]:
        """Return the state of every parameter; arrays may be those in use."""
        found = dict(self._loose)
        for unit, state in self._units.values():
            parts = _split(unit, state)
            found.update(zip(unit.key, parts, strict=True))
        return found

    def replace(self, states: Mapping[str, State | Saved]) -> None:
        """Put other states, by parameter, in the place of all that are there."""
        self.drop()
        self.clear()
        self._loose = dict(states)

    def _part(self, compressor: Compressor, spec: GradientSpec) -> State:
        state = self._loose.pop(spec.name, None)
        if isinstance(state, Saved):
            return state.fit(compressor.init(spec))
        return compressor.init(spec) if state is None else carry(compressor, state, spec)

    def _hold(self, unit: Unit, state: State) -> None:
        self._units[unit.key] = (unit, state)
        for name in unit.key:
            self._holders[name] = unit.key

    def _loosen(self, key: tuple[str, ...]) -> None:
        unit, state = self._units.pop(key)
        parts = _split(unit, state)
        for name, part in zip(key, parts, strict=True):
            self._loose[name] = part
            del self._holders[name]


def _moved(unit: Unit, state: State) -> State:
    """Return a state of arrays as a unit needs it, on its device."""
    if unit.native is None:
        return state
    device: Any = unit.native
    return move(state, device.device)


def _split(unit: Unit, state: State) -> list[State]:
    """Return the states of a unit's parameters, of arrays."""
    if unit.native is not None:
        state = move_to_host(state)
    if len(unit.pieces) == 1:
        return [state]
    sizes = [piece.stop - piece.start for piece in unit.pieces]
    return split(state, sizes, unit.piece_specs)
