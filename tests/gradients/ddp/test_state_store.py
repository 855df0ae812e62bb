import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, State
from tensorcomp.gradients.ddp.coding_groups import CodingGroup
from tensorcomp.gradients.ddp.state_store import SavedState, StateStore
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback, FeedbackState

SIZES = {"a": 300, "b": 200, "c": 400}  # much fewer are sent as they are: that takes less


def _group(*names: str, compressor: str = "topk(1)") -> CodingGroup:
    parts = tuple(GradientSpec(name, (SIZES[name],)) for name in names)
    spec = GradientSpec(" ".join(names), (sum(one.size for one in parts),))
    return CodingGroup(spec, parse_compressor(compressor), parts)


def _stepped(store: StateStore, group: CodingGroup, first: int) -> list[float]:
    """Stage a step whose gradient is counted up from `first`, and return the residual of it."""
    gradient = np.arange(first, first + group.spec.size, dtype=np.float32)
    _, state = group.compressor.step(gradient, store.state(group))
    store.stage(group, state)
    return [*gradient[:-1].tolist(), 0.0]  # the greatest, which is the last, was sent


def _residual(state: State) -> list[float]:
    assert isinstance(state, FeedbackState)
    return [float(value) for value in state.residual]


def test_a_step_counts_when_it_is_committed():
    store, group = StateStore(), _group("a")
    before = store.state(group)
    _stepped(store, group, 1)
    assert store.state(group) is before
    store.drop()
    store.commit()
    assert store.state(group) is before
    assert not any(_residual(store.state(group)))
    left = _stepped(store, group, 1)
    store.commit()
    assert _residual(store.state(group)) == left


def test_residuals_follow_names_when_groups_change():
    store = StateStore()
    ab = _stepped(store, _group("a", "b"), 1)
    c = _stepped(store, _group("c"), 1000)
    store.commit()
    assert _residual(store.state(_group("b", "c"))) == [*ab[300:], *c]
    assert _residual(store.state(_group("a"))) == ab[:300]
    assert store.groups == [["b", "c"], ["a"]]
    held = store.by_name()
    assert {name: values["residual"].size for name, values in held.items()} == SIZES


def test_residuals_outlive_another_compressor():
    store = StateStore()
    left = _stepped(store, _group("a"), 1)
    store.commit()
    other = _group("a", compressor="feedback(randomk(1))")
    assert isinstance(other.compressor, ErrorFeedback)
    assert _residual(store.state(other)) == left


def test_a_saved_state_fits_its_own_compressor_only_unless_asked():
    saved = np.array([1.0, 2.0, 3.0])
    values = {"velocity": np.arange(3.0), "inner.residual": saved}
    fresh = _group("a").compressor.init(GradientSpec("a", (3,)))
    with pytest.raises(GradientError, match="a: residual"):
        SavedState(values).fit(fresh)
    assert _residual(SavedState(values, strict=False).fit(fresh)) == [1, 2, 3]
    short = {"residual": np.ones(2)}
    with pytest.raises(GradientError, match="expected 3 elements, got 2"):
        SavedState(short).fit(fresh)
    assert _residual(SavedState(short, strict=False).fit(fresh)) == [0, 0, 0]


def test_saved_states_are_taken_up_when_groups_are_there():
    store = StateStore()
    store.replace({"a": SavedState({"residual": np.ones(300)})})
    assert store.used
    assert _residual(store.state(_group("a", "b"))) == [1.0] * 300 + [0.0] * 200
    store.replace({})
    assert not store.used
