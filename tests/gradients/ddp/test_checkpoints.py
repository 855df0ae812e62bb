"""State dicts in other formats, and what of them is refused."""

import warnings
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from given_gradients import Given
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import tensorcomp
from tensorcomp.errors import GradientError
from tensorcomp.gradients import compress_gradients
from tensorcomp.gradients.ddp.checkpoints import (
    from_tensors,
    load_distributed,
    save_distributed,
    to_tensors,
)

SHAPES = ((70, 70), (300,))
STATE = {
    "version": 1,
    "mode": "exact",
    "choices": {"a.b": "topk(0.1)"},
    "metrics": [1.5, 0.1],
    "states": {
        "a.b": {"residual": torch.arange(3.0), "inner.step": 4, "inner.threshold": 0.1},
        "c": {"residual": torch.ones(2, dtype=torch.bfloat16)},
    },
    "means": {"a.b": {"residual": torch.zeros(1)}},
}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


def test_tensors_hold_all_of_a_state():
    tensors = to_tensors(STATE)
    assert set(tensors) == {
        "about",
        "states/a.b/residual",
        "states/c/residual",
        "means/a.b/residual",
    }
    assert _equal(from_tensors(tensors), STATE)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"about": torch.tensor([1, 2], dtype=torch.uint8)},
        {"about": torch.tensor(list(b"[" * 100_000), dtype=torch.uint8)},
        {"about": torch.tensor([91, 93], dtype=torch.uint8), "x": torch.zeros(1)},
        {"about": torch.full((100_000,), ord("["), dtype=torch.uint8)},
        {**to_tensors(STATE), "states/other/residual": torch.zeros(1)},
    ],
)
def test_other_tensors_are_refused(tensors):
    with pytest.raises(GradientError, match="hold no state"):
        from_tensors(tensors)


def _trained(steps: int = 3, text: str = "topk(0.02)") -> tuple[Any, Any]:
    model = DistributedDataParallel(Given(SHAPES))
    compression = compress_gradients(model, text)
    for step in range(steps):
        _step(model, step)
    return model, compression


def _step(model: DistributedDataParallel, step: int) -> None:
    generator = torch.Generator().manual_seed(10 * step + distributed.get_rank())
    given = {f"p{i}": torch.randn(s, generator=generator) for i, s in enumerate(SHAPES)}
    model.zero_grad()
    model(given).backward()


def _written(folder: str) -> list[bool]:
    rank = distributed.get_rank()
    _, compression = _trained(text="int2")
    passed = []
    for mode in ("exact", "mean"):
        state = compression.state_dict(mode)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own
            save_distributed(state, f"{folder}/{mode}")
            passed.append(_equal(load_distributed(f"{folder}/{mode}", rank), state))
        path = f"{folder}/{mode}{rank}.tc.safetensors"
        tensorcomp.save_file(to_tensors(state), path)
        passed.append(_equal(from_tensors(tensorcomp.load_file(path, "pt")), state))
        passed.append(bool(state["means"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(GradientError, match="holds no state of rank 7"):
            load_distributed(f"{folder}/exact", 7)
    return passed


def test_torch_and_our_own_container_hold_states(tmp_path):
    assert ranks.run(_written, str(tmp_path)) == [[True] * 6] * 2


def _averaged() -> tuple[Any, ...]:
    _, compression = _trained(text="int2")
    exact, mean = compression.state_dict(), compression.state_dict("mean")
    return (
        {name: fields["residual"].numpy() for name, fields in exact["states"].items()},
        {name: fields["residual"].numpy() for name, fields in exact["means"].items()},
        {name: fields["residual"].numpy() for name, fields in mean["states"].items()},
        {name: fields["residual"].numpy() for name, fields in mean["means"].items()},
    )


def test_the_mean_state_is_that_of_all_ranks_together():
    results = ranks.run(_averaged)
    for _, _, states, means in results:
        for name in ("p0", "p1"):
            workers = [result[0][name] for result in results]
            np.testing.assert_allclose(states[name], np.mean(workers, axis=0), rtol=1e-6)
            parts = [result[1][name] for result in results if name in result[1]]
            np.testing.assert_array_equal(means[name], np.concatenate(parts))


def _refused() -> list[str]:
    model, compression = _trained()
    state = compression.state_dict()
    other = {**state, "states": {"p9": {}}}
    dgc = compress_gradients(DistributedDataParallel(Given(SHAPES)), "dgc(0.02)")
    messages = []
    for load, given in (
        (compression.load_state_dict, {**state, "rank": 1 - state["rank"]}),
        (compression.load_state_dict, {**state, "world": 5}),
        (compression.load_state_dict, {**state, "version": 99}),
        (compression.load_state_dict, other),
        (dgc.load_state_dict, state),
    ):
        with pytest.raises(GradientError) as caught:
            load(given)
        messages.append(str(caught.value))
    dgc.load_state_dict(state, strict=False)
    kept = dgc.state_dict()["states"]
    for name, fields in state["states"].items():
        assert torch.equal(kept[name]["inner.residual"], fields["residual"])
        assert not kept[name]["velocity"].any()
    assert dgc.steps == 3
    _step(model, 5)  # what was refused has left no trace
    return messages


def test_states_of_something_else_are_refused():
    expected = [
        'save with mode="mean"',
        "cannot be that of rank",
        "of version 1",
        "a parameter 'p9', which the model lacks",
        "expected a saved p0: residual",
    ]
    for messages in ranks.run(_refused):
        for message, part in zip(messages, expected, strict=True):
            assert part in message
