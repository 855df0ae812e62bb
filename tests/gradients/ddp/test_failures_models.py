"""Models that hooks were not written for: shared and sparse parameters, several dtypes."""

from collections.abc import Mapping

import numpy as np
import pytest
import ranks
import torch
from given_gradients import Case, Given, gradients_of, hashed, loaded, residuals, saved
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_gradients

SPARSE = "topk(0.02, values=affine(8), indices=gaps)"
Means = list[dict[str, np.ndarray]]


class _Tied(Given):
    """A model whose first parameter has a second name, and is used under both."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.shapes)
        self.again = self.p0

    def forward(self, gradients: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().forward(gradients) + (self.again * gradients["p0"]).sum()


def _train_tied(case: Case) -> tuple[Means, dict[str, np.ndarray], list[str]]:
    model = DistributedDataParallel(_Tied(case), **case.ddp)
    means = []
    with compress_gradients(model, case.compressor) as compression:
        for step in case.steps:
            model.zero_grad()
            given = case.gradients(distributed.get_rank(), step)
            model({name: torch.from_numpy(g) for name, g in given.items()}).backward()
            means.append(gradients_of(model))
        state = loaded(saved(compression.state_dict()))
    return means, residuals(state, case), sorted(state["states"])


def test_shared_parameter_has_one_residual():
    case = Case(SPARSE, range(4))
    (means, left, names), (others, left_there, _) = ranks.run(_train_tied, case)
    assert [hashed(mean) for mean in means] == [hashed(mean) for mean in others]
    assert names == [f"p{i}" for i in range(len(case.shapes))]
    for name in names:
        times = 2 if name == "p0" else 1
        local = [case.gradients(rank, step)[name] for rank in (0, 1) for step in case.steps]
        given = times * np.sum(local, axis=0, dtype=float)
        kept = 2 * sum(mean[name].astype(float) for mean in means) + left[name] + left_there[name]
        assert np.linalg.norm(kept - given) <= 1e-5 * np.linalg.norm(given), name


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _train_mixed(case: Case) -> tuple[Means, list[str]]:
    model = Given(case.shapes)
    for parameter, dtype in zip(model.parameters(), DTYPES, strict=True):
        parameter.data = parameter.data.to(dtype)
    ddp = DistributedDataParallel(model, **case.ddp)
    means = []
    with compress_gradients(ddp, case.compressor):
        for step in case.steps:
            ddp.zero_grad()
            given = case.gradients(distributed.get_rank(), step)
            tensors = {name: torch.from_numpy(g) for name, g in given.items()}
            ddp({n: tensors[n].to(d) for n, d in zip(tensors, DTYPES, strict=True)}).backward()
            means.append(gradients_of(ddp))
    return means, [str(one.grad.dtype) for one in model.parameters() if one.grad is not None]


@pytest.mark.parametrize("compressor", ["dense", "int8", SPARSE, "powersgd(4)"])
def test_parameters_of_several_dtypes(compressor):
    case = Case(compressor, range(3), ((64, 65), (70, 70), (4099,), (90, 60)))
    (means, dtypes), (others, _) = ranks.run(_train_mixed, case)
    assert dtypes == [str(dtype) for dtype in DTYPES]
    assert [hashed(mean) for mean in means] == [hashed(mean) for mean in others]
    if compressor in ("dense", "int8"):
        for mean, step in zip(means, case.steps, strict=True):
            for name, got in mean.items():
                true = (case.gradients(0, step)[name] + case.gradients(1, step)[name]) / 2
                assert np.linalg.norm(got - true) <= 0.03 * np.linalg.norm(true), name


def _train_sparse() -> tuple[Means, Means]:
    rank = distributed.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 8, sparse=True), torch.nn.Flatten(), torch.nn.Linear(16, 300)
    )
    seen, local = [], []
    ddp = DistributedDataParallel(model)
    with compress_gradients(ddp, "int8"):
        for step in range(3):
            ddp.zero_grad()
            ddp(torch.tensor([[rank, 5 + step]])).square().sum().backward()
            assert model[0].weight.grad.is_sparse
            seen.append(_dense_gradients(model))
    for step in range(3):
        both = []
        for other in (0, 1):
            model.zero_grad()
            model(torch.tensor([[other, 5 + step]])).square().sum().backward()
            both.append(_dense_gradients(model))
        local.append({name: (both[0][name] + both[1][name]) / 2 for name in both[0]})
    return seen, local


def _dense_gradients(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: one.grad.to_dense().numpy().copy() for name, one in model.named_parameters()}


def test_sparse_gradients_pass_as_they_are():
    (first, expected), (second, _) = ranks.run(_train_sparse)
    assert [hashed(mean) for mean in first] == [hashed(mean) for mean in second]
    for got, true in zip(first, expected, strict=True):
        for name, mean in got.items():
            near = 1e-6 if name == "0.weight" else 0.03
            assert np.linalg.norm(mean - true[name]) <= near * np.linalg.norm(true[name]), name
