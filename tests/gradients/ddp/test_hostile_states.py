"""State dicts that are damaged, settings that ranks must have alike, and values that overflow."""

import copy
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients import PacketLoss, PhaseTracker, compress_gradients

SPARSE = "topk(0.1, values=affine(8))"


def _model(module: nn.Module | None = None) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(module or nn.Linear(20, 10), bucket_cap_mb=0.001)


def _step(model: DistributedDataParallel, scale: float = 1.0) -> None:
    model.zero_grad()
    given = torch.Generator().manual_seed(distributed.get_rank())
    (model(torch.randn(4, 20, generator=given)).square().mean() * scale).backward()


def _message(state: Any, compression: Any) -> str:
    with pytest.raises(GradientError) as caught:
        compression.load_state_dict(state)
    return str(caught.value)


def _damaged() -> dict[str, str]:
    model = _model()
    with compress_gradients(model, SPARSE) as compression:
        _step(model)
        good = compression.state_dict()
        found = {}
        for key in good:
            found[f"no {key}"] = _message({k: v for k, v in good.items() if k != key}, compression)
        wrong = {
            "version": [2, torch.ones(3)],
            "mode": ["foo", np.ones(3)],
            "step": [2**70],
            "phase": [3, np.ones(3)],
            "metrics": [3],
            "choices": [[1]],
            "units": [
                [[1]],
                [*good["units"], []],
                [["weight", "weight"]],
                [["bias", "weight", "bias"]],
                [["weight"], ["bias", "weight"]],
            ],
            "states": [3],
            "means": [{"weight": 3}],
        }
        for key, values in wrong.items():
            for number, value in enumerate(values):
                found[f"bad {key} {number}"] = _message({**good, key: value}, compression)
        field = good["states"]["weight"]["residual"]
        for name, value in {
            "nan": torch.full_like(field, torch.nan),
            "int": field.long(),
            "complex": field.to(torch.complex64),
            "short": field[:-1],
            "text": "x",
            "ragged": [[1.0], [1.0, 2.0]],
            "sparse": field.to_sparse(),
        }.items():
            state = copy.deepcopy(good)
            state["states"]["weight"]["residual"] = value
            found[name] = _message(state, compression)
        compression.load_state_dict(good)
        _step(model)
        assert compression.steps == 2
    return found


def test_damaged_states_are_refused_and_the_good_one_still_loads():
    for found in ranks.run(_damaged, timeout=30):
        for message in found.values():
            assert "\n" not in message
            assert len(message) < 300


def _exact_on_one_rank() -> list[Any]:
    model = _model()
    with compress_gradients(model, "error_bounded(max_abs=0.001)") as compression:
        for step in range(3):
            _step(model, scale=0.0 if distributed.get_rank() and step else 1.0)
        states = compression.state_dict("mean")["states"].values()
    return [type(value) for fields in states for value in fields.values()]


def test_the_mean_state_where_one_rank_had_no_error():
    first, second = ranks.run(_exact_on_one_rank, timeout=20)
    assert first == second


def _unlike(name: str, values: list[Any]) -> None:
    options: dict[str, Any] = {name: values[distributed.get_rank()]}
    compress_gradients(_model(), SPARSE, **options)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("check_ranks", [1, 0]),
        ("scaler", [torch.amp.GradScaler("cpu"), None]),
        ("phases", [PhaseTracker(window=1), None]),
        ("packet_loss", [PacketLoss(), None]),
    ],
)
def test_settings_that_differ_are_told_at_once(name, values):
    with pytest.raises(ranks.RanksFailed) as caught:
        ranks.run(_unlike, name, values, timeout=20)
    for failure in caught.value.failures.values():
        assert failure.kind == "GradientError"
        assert name in failure.message


class _Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(20, 5, dtype=torch.complex64))


def _complex() -> str:
    with pytest.raises(GradientError) as caught:
        compress_gradients(_model(_Complex()), "int8")
    return str(caught.value)


def test_complex_parameters_are_refused_by_name():
    assert all("'weight' is torch.complex64" in message for message in ranks.run(_complex))


def _near_the_largest(text: str) -> None:
    model = _model()
    with compress_gradients(model, text) as compression:
        hooks = [one.register_hook(lambda g: g.sign() * 3e38) for one in model.parameters()]
        for _ in range(4):
            _step(model)
        skipped = compression.steps
        for hook in hooks:
            hook.remove()
        for fields in compression.state_dict()["states"].values():
            for value in fields.values():
                assert not isinstance(value, torch.Tensor) or value.isfinite().all()
    assert skipped < 4


@pytest.mark.parametrize("text", [SPARSE, "sign", "powersgd(2)", "dgc(0.1)", "owners(topk(0.1))"])
def test_sums_that_overflow_skip_the_step_and_poison_nothing(text):
    ranks.run(_near_the_largest, text, timeout=30)
