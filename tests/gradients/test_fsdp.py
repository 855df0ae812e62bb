import io
from typing import Any

import pytest
import torch
from ranks import failed, run
from torch import distributed as dist
from torch import nn

from tensorcomp.errors import GradientError
from tensorcomp.gradients.fsdp.hook import compress_fsdp

WORLD = 2


def model_of(seed: int = 0, *, shard: bool = True) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(31, 67), nn.Tanh(), nn.Linear(67, 5))
    if shard:
        fully_shard(model[0])
        fully_shard(model)
    return model


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    torch.manual_seed(1000 * step + rank)
    inputs, targets = torch.randn(16, 31), torch.randn(16, 5)
    return nn.functional.mse_loss(model(inputs), targets)


def backward(model: nn.Module, step: int, factor: float = 1.0) -> None:
    (loss_of(model, step, dist.get_rank()) * factor).backward()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def expected_gradients(step: int) -> list[torch.Tensor]:
    model = model_of(shard=False)
    for rank in range(WORLD):
        (loss_of(model, step, rank) / WORLD).backward()
    return [parameter.grad for parameter in model.parameters()]


def residual_sum(compression: Any) -> float:
    states = compression.state_dict()["states"]
    return sum(float(fields["residual"].double().sum()) for fields in states.values())


def everything() -> None:
    the_mean_arrives_and_nothing_is_lost()
    half_precision_is_widened()
    what_is_not_finite_changes_no_state()
    resuming_is_going_on()
    residuals_are_unscaled()
    paused_it_averages_and_counts_nothing()
    states_go_by_the_models_own_names()
    closed_it_does_nothing()
    hybrid_shards_are_refused()


def the_mean_arrives_and_nothing_is_lost() -> None:
    for text in ("dense", "int8", "topk(0.05)"):
        model = model_of()
        compression = compress_fsdp(model, text)
        sums = [torch.zeros(parameter.shape) for parameter in model.parameters()]
        expected = [torch.zeros(parameter.shape) for parameter in model.parameters()]
        for step in range(3):
            model.zero_grad()
            backward(model, step)
            for total, gradient in zip(sums, gradients(model), strict=True):
                total += gradient
            for total, gradient in zip(expected, expected_gradients(step), strict=True):
                total += gradient
        state = compression.state_dict()
        assert state["step"] == 3
        dense = 3 * sum(total.numel() for total in sums) * 4 / WORLD
        assert compression.bytes_sent < dense * {"dense": 1.2, "int8": 0.4}.get(text, 0.25)
        if text == "topk(0.05)":
            left = torch.tensor(residual_sum(compression) / WORLD, dtype=torch.float64)
            dist.all_reduce(left)
            total, all_of_it = (float(sum(t.double().sum() for t in ts)) for ts in (sums, expected))
            assert abs(total + float(left) - all_of_it) < 1e-4
            assert abs(total - all_of_it) > 1e-3
            assert set(state["states"]) == {
                f"{module}, part {owner}" for module in ("0", "the model") for owner in range(WORLD)
            }
        else:
            bound = 1e-5 if text == "dense" else 0.03
            for total, wanted in zip(sums, expected, strict=True):
                assert float((total - wanted).abs().max()) <= bound * float(wanted.abs().max())


def half_precision_is_widened() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = fully_shard(
        nn.Linear(64, 64), mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float16)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    compress_fsdp(model, "dense")
    (model(torch.ones(4, 64)).sum() * (1 + dist.get_rank())).backward()
    for gradient in gradients(model):
        assert torch.equal(gradient, torch.full_like(gradient, 6.0))


def what_is_not_finite_changes_no_state() -> None:
    model = model_of()
    compression = compress_fsdp(model, "topk(0.05)")
    backward(model, 0)
    before = residual_sum(compression)
    model.zero_grad()
    backward(model, 1, factor=float("inf") if dist.get_rank() == 1 else 1.0)
    assert all(bool(gradient.isnan().all()) for gradient in gradients(model))
    assert residual_sum(compression) == before
    assert compression.steps == 1
    model.zero_grad()
    backward(model, 2)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(model))
    assert residual_sum(compression) != before


def resuming_is_going_on() -> None:
    def trained(state: Any, first: int, last: int, model: nn.Module) -> tuple[Any, Any]:
        compression = compress_fsdp(model, "topk(0.05, values=affine(8))")
        if state is not None:
            compression.load_state_dict(state)
        for step in range(first, last):
            model.zero_grad()
            backward(model, step)
        return gradients(model), compression.state_dict()

    straight, end = trained(None, 0, 4, model_of())
    _, middle = trained(None, 0, 2, model_of())
    file = io.BytesIO()
    torch.save(middle, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    resumed, again = trained(loaded, 2, 4, model_of())
    assert all(torch.equal(one, other) for one, other in zip(straight, resumed, strict=True))
    assert again["step"] == end["step"] == 4
    for name, fields in end["states"].items():
        assert torch.equal(fields["residual"], again["states"][name]["residual"])
    with pytest.raises(GradientError, match="the state is that of topk"):
        compress_fsdp(model_of(), "int8").load_state_dict(middle)


def paused_it_averages_and_counts_nothing() -> None:
    model = model_of()
    compression = compress_fsdp(model, "topk(0.05)")
    with compression.paused():
        backward(model, 0)
    for gradient, wanted in zip(gradients(model), expected_gradients(0), strict=True):
        assert torch.allclose(gradient, wanted, rtol=1e-4, atol=1e-6)
    state = compression.state_dict()
    assert (state["step"], state["states"]) == (0, {})


def states_go_by_the_models_own_names() -> None:
    model = model_of()
    first, second = compress_fsdp(model, "topk(0.05)"), compress_fsdp(model_of(), "topk(0.05)")
    backward(model, 0)
    state = first.state_dict()
    wrapped = {name.replace("the model", "_orig_mod"): one for name, one in state["states"].items()}
    second.load_state_dict(
        {**state, "states": {n.replace("0,", "_orig_mod.0,"): one for n, one in wrapped.items()}}
    )
    assert set(second.state_dict()["states"]) == set(state["states"])


def residuals_are_unscaled() -> None:
    found = []
    for scale in (1.0, 8.0):
        model = model_of()
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        compression = compress_fsdp(model, "topk(0.05)", scaler=scaler)
        for step in range(2):
            model.zero_grad()
            backward(model, step, factor=scale)
        found.append((residual_sum(compression), [g / scale for g in gradients(model)]))
    assert found[0][0] == found[1][0]  # a power of two rounds nothing
    assert all(torch.equal(one, other) for one, other in zip(found[0][1], found[1][1], strict=True))


def closed_it_does_nothing() -> None:
    model = model_of()
    compression = compress_fsdp(model, "topk(0.01)")
    compression.close()
    backward(model, 0)
    for gradient, wanted in zip(gradients(model), expected_gradients(0), strict=True):
        assert torch.allclose(gradient, wanted, atol=1e-6)
    assert compression.bytes_sent == 0


def hybrid_shards_are_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD, 1), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(nn.Linear(8, 8), mesh=mesh)
    with pytest.raises(GradientError, match="the shards of weight are replicated"):
        compress_fsdp(model, "int8")


def test_fully_sharded_models():
    run(everything, world=WORLD)


def different() -> None:
    model = model_of()
    compress_fsdp(model, "int8" if dist.get_rank() else "int4")
    backward(model, 0)


def test_ranks_that_differ_are_told():
    for failure in failed(different, world=WORLD).failures.values():
        assert (
            "ranks compress different tensors in the model: rank 0 has the model, part 0"
            in failure.message
        )


def test_models_that_are_not_sharded_are_refused():
    with pytest.raises(GradientError, match="no module of the model is fully sharded"):
        compress_fsdp(nn.Linear(3, 3), "int8")
