"""Keep the states of all parameters by name, changed only by whole steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec, State
from tensorcomp.gradients.ddp.coding_groups import CodingGroup
from tensorcomp.gradients.payload.arrays import move, move_to_host
from tensorcomp.gradients.payload.states import carry, flatten, join, split, unflatten


@dataclass(frozen=True)
class SavedState:
    """Hold what a state held when it was saved.

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


class StateStore:
    """Keep states between steps.

    What a step changes is staged; `commit` makes it count, `drop` forgets it, so that a step which
    was not made leaves every state as it was, bit for bit. States of groups follow their
    parameters' names where groups change.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], tuple[CodingGroup, State]] = {}
        self._holders: dict[str, tuple[str, ...]] = {}  # for each parameter, the key of its group
        self._loose: dict[str, State | SavedState] = {}  # of parameters that are in no group now
        self._staged: dict[tuple[str, ...], State | None] = {}

    def state(self, group: CodingGroup) -> State:
        """Return the state of a group, rebuilt by parameter if groups changed."""
        held = self._groups.get(group.key)
        if held is not None and held[0] is group:
            return held[1]
        for name in group.key:
            if name in self._holders:
                self._loosen(self._holders[name])
        if self._loose.keys().isdisjoint(group.key):
            state = group.codec.init(group.spec)
        else:
            parts = [self._part(group.compressor, spec) for spec in group.slice_specs]
            state = parts[0] if len(parts) == 1 else join(parts, group.spec)
            if group.native is not None:
                device: Any = group.native
                state = move(state, device.device)
        self._groups[group.key] = (group, state)
        self._holders |= dict.fromkeys(group.key, group.key)
        return state

    def holds(self, name: str) -> bool:
        """Return whether there is a state of that name."""
        return name in self._holders or name in self._loose

    def stage(self, group: CodingGroup, state: State | None) -> None:
        """Stage the next state of a group, or None to forget it, until `commit`."""
        self._staged[group.key] = state

    @property
    def used(self) -> bool:
        """Return whether any parameter has a state."""
        return bool(self._groups or self._loose)

    @property
    def groups(self) -> list[list[str]]:
        """Return the parameters of every group."""
        return [list(key) for key in self._groups]

    def commit(self) -> None:
        """Make what was staged count."""
        for key, state in self._staged.items():
            group, _ = self._groups.pop(key)
            if state is None:
                for name in key:
                    del self._holders[name]
            else:
                self._groups[key] = (group, state)
        self.drop()

    def drop(self) -> None:
        """Forget what was staged."""
        self._staged.clear()

    def by_name(self) -> dict[str, State | SavedState]:
        """Return the state of every parameter; arrays may be those in use."""
        found = dict(self._loose)
        for group, state in self._groups.values():
            found.update(zip(group.key, _split(group, state), strict=True))
        return found

    def replace(self, states: Mapping[str, State | SavedState]) -> None:
        """Put other states, by parameter, in the place of all that are there."""
        self._staged.clear()
        self._groups.clear()
        self._holders.clear()
        self._loose = dict(states)

    def _part(self, compressor: Compressor, spec: GradientSpec) -> State:
        state = self._loose.pop(spec.name, None)
        if isinstance(state, SavedState):
            return state.fit(compressor.init(spec))
        return compressor.init(spec) if state is None else carry(compressor, state, spec)

    def _loosen(self, key: tuple[str, ...]) -> None:
        """Divide the state of a group into those of its parameters."""
        group, state = self._groups.pop(key)
        for name, part in zip(key, _split(group, state), strict=True):
            self._loose[name] = part
            del self._holders[name]


def _split(group: CodingGroup, state: State) -> list[State]:
    """Return the states of a group's parameters, of arrays."""
    if group.native is not None:
        state = move_to_host(state)
    if len(group.slices) == 1:
        return [state]
    return split(state, [one.size for one in group.slices], group.slice_specs)
