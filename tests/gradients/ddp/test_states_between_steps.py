from __future__ import annotations

import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, State
from tensorcomp.gradients.ddp.coding_groups import Piece, Unit
from tensorcomp.gradients.ddp.state_store import Memory, Saved
from tensorcomp.gradients.recipes import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback, FeedbackState

SIZES = {"a": 300, "b": 200, "c": 400}  # much fewer are sent as they are: that takes less


def _unit(*names: str, compressor: str = "topk(1)") -> Unit:
    pieces, start = [], 0
    for name in names:
        pieces.append(Piece(name, (SIZES[name],), start, start + SIZES[name]))
        start += SIZES[name]
    spec = GradientSpec(" ".join(names), (start,))
    return Unit(spec, parse_compressor(compressor), tuple(pieces))


def _stepped(memory: Memory, unit: Unit, first: int) -> list[float]:
    """Stage a step whose gradient is counted up from `first`, and return the residual of it."""
    gradient = np.arange(first, first + unit.spec.size, dtype=np.float32)
    _, state = unit.compressor.step(gradient, memory.state(unit))
    memory.stage(unit, state)
    return [*gradient[:-1].tolist(), 0.0]  # the greatest, which is the last, was sent


def _residual(state: State) -> list[float]:
    assert isinstance(state, FeedbackState)
    return [float(value) for value in state.residual]


def test_a_step_counts_when_it_is_committed() -> None:
    memory, unit = Memory(), _unit("a")
    before = memory.state(unit)
    _stepped(memory, unit, 1)
    assert memory.state(unit) is before
    memory.drop()
    memory.commit()
    assert memory.state(unit) is before
    assert not any(_residual(memory.state(unit)))
    left = _stepped(memory, unit, 1)
    memory.commit()
    assert _residual(memory.state(unit)) == left


def test_residuals_follow_names_when_units_change() -> None:
    memory = Memory()
    ab = _stepped(memory, _unit("a", "b"), 1)
    c = _stepped(memory, _unit("c"), 1000)
    memory.commit()
    assert _residual(memory.state(_unit("b", "c"))) == [*ab[300:], *c]
    assert _residual(memory.state(_unit("a"))) == ab[:300]
    assert memory.groups == [["b", "c"], ["a"]]
    held = memory.by_name()
    sizes = {name: state.spec.size for name, state in held.items() if isinstance(state, State)}
    assert sizes == SIZES


def test_residuals_outlive_another_compressor() -> None:
    memory = Memory()
    left = _stepped(memory, _unit("a"), 1)
    memory.commit()
    other = _unit("a", compressor="feedback(randomk(1))")
    assert isinstance(other.compressor, ErrorFeedback)
    assert _residual(memory.state(other)) == left


def test_a_saved_state_fits_its_own_compressor_only_unless_asked() -> None:
    saved = np.array([1.0, 2.0, 3.0])
    values = {"velocity": np.arange(3.0), "inner.residual": saved}
    fresh = _unit("a").compressor.init(GradientSpec("a", (3,)))
    with pytest.raises(GradientError, match="a: residual"):
        Saved(values).fit(fresh)
    assert _residual(Saved(values, strict=False).fit(fresh)) == [1, 2, 3]
    short = {"residual": np.ones(2)}
    with pytest.raises(GradientError, match="2 elements"):
        Saved(short).fit(fresh)
    assert _residual(Saved(short, strict=False).fit(fresh)) == [0, 0, 0]


def test_saved_states_are_taken_up_when_units_are_there() -> None:
    memory = Memory()
    memory.replace({"a": Saved({"residual": np.ones(300)})})
    assert memory.used
    assert _residual(memory.state(_unit("a", "b"))) == [1.0] * 300 + [0.0] * 200
    memory.clear()
    assert not memory.used
