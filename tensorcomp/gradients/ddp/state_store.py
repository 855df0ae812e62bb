"""Keep the states of all parameters by name, changed only by whole steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorcomp.gradients.base import Compressor, GradientSpec, State
from tensorcomp.gradients.ddp.coding_groups import CodingGroup
from tensorcomp.gradients.payload.arrays import move, move_to_host
from tensorcomp.gradients.payload.states import flatten, join, keep_fitting, split, unflatten


@dataclass(frozen=True)
class SavedState:
    """Hold what a state held when it was saved, as `states.flatten` gives it.

    If strict, everything must be there; otherwise a new state keeps what fits, residuals above all.
    """

    values: Mapping[str, Any]
    strict: bool = True

    def fit(self, fresh: State) -> State:
        """Return a new state with these values; refuse values that do not fit."""
        fill = unflatten if self.strict else keep_fitting
        return fill(fresh, self.values)


class StateStore:
    """Keep states between steps.

    What a step changes is staged; `commit` makes it count, `drop` forgets it, so that a step which
    was not made leaves every state as it was, bit for bit. States of groups follow their
    parameters' names where groups change.
    """

    def __init__(self) -> None:
        # By parameter: its group and the state of that; without a group, its own `SavedState`.
        self._held: dict[str, tuple[CodingGroup | None, Any]] = {}
        self._staged: dict[tuple[str, ...], tuple[CodingGroup, State | None]] = {}

    def state(self, group: CodingGroup) -> State:
        """Return the state of a group, rebuilt by parameter if groups changed."""
        state: State
        holder, state = self._held.get(group.key[0], (None, None))
        if holder is group:
            return state
        for name in group.key:
            self._loosen(name)
        if self._held.keys().isdisjoint(group.key):
            state = group.codec.init(group.spec)
        else:
            parts = [self._part(group.compressor, spec) for spec in group.parts]
            state = parts[0] if len(parts) == 1 else join(parts, group.spec)
            if group.native is not None:
                device: Any = group.native
                state = move(state, device.device)
        self._held |= dict.fromkeys(group.key, (group, state))
        return state

    def holds(self, name: str) -> bool:
        """Return whether there is a state of that name."""
        return name in self._held

    def stage(self, group: CodingGroup, state: State | None) -> None:
        """Stage the next state of a group, or None to forget it, until `commit`."""
        self._staged[group.key] = (group, state)

    @property
    def used(self) -> bool:
        """Return whether any parameter has a state."""
        return bool(self._held)

    @property
    def groups(self) -> list[list[str]]:
        """Return the parameters of every group."""
        keys = (group.key for group, _ in self._held.values() if group is not None)
        return [list(key) for key in dict.fromkeys(keys)]

    def commit(self) -> None:
        """Make what was staged count."""
        for key, (group, state) in self._staged.items():
            if state is None:
                for name in key:
                    del self._held[name]
            else:
                self._held |= dict.fromkeys(key, (group, state))
        self.drop()

    def drop(self) -> None:
        """Forget what was staged."""
        self._staged.clear()

    def by_name(self) -> dict[str, dict[str, Any]]:
        """Return the values of every parameter's state; arrays may be those in use."""
        found: dict[str, SavedState] = {}
        for name, (group, state) in self._held.items():
            if group is None:
                found[name] = state
            elif name == group.key[0]:
                found.update(_split(group, state))
        return {name: dict(state.values) for name, state in found.items()}

    def replace(self, states: Mapping[str, SavedState]) -> None:
        """Put other states, by parameter, in the place of all that are there."""
        self.drop()
        self._held = {name: (None, state) for name, state in states.items()}

    def _part(self, compressor: Compressor, spec: GradientSpec) -> State:
        _, saved = self._held.pop(spec.name, (None, None))
        fresh = compressor.init(spec)
        return fresh if saved is None else saved.fit(fresh)

    def _loosen(self, name: str) -> None:
        """Divide the state of a parameter's group into those of its parameters."""
        group, state = self._held.get(name, (None, None))
        if group is not None:
            self._held |= {part: (None, own) for part, own in _split(group, state).items()}


def _split(group: CodingGroup, state: State) -> dict[str, SavedState]:
    """Return the states of a group's parameters, of arrays."""
    if group.native is not None:
        state = move_to_host(state)
    parts = [state] if len(group.parts) == 1 else split(state, group.parts)
    pairs = zip(group.key, parts, strict=True)
    return {name: SavedState(flatten(part), strict=False) for name, part in pairs}
