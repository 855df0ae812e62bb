"""Optimal brain damage from Adam's state in training checkpoints, against ½·h·w² by hand."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.pruning import Pruning
from tensorcomp.selection.stored.select import pruned_sources

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
nn = torch.nn

TINY_LM = Path(__file__).parents[2] / "examples" / "tiny_lm"
BETAS = (0.9, 0.95)
OBD = Pruning("obd", 0.5)


def layers() -> Any:
    """Return a net with equal shapes, buffers that look like parameters, and a tied weight."""
    torch.manual_seed(0)
    net = nn.Sequential()
    net.add_module("fc1", nn.Linear(6, 6))
    net.add_module("bn1", nn.BatchNorm1d(6))
    net.add_module("fc2", nn.Linear(6, 6))
    net.add_module("fc3", nn.Linear(6, 4))
    return net


def trained(model: Any, optimizer: Any, steps: int = 3, size: int = 6) -> None:
    data = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, size, generator=data)).square().sum().backward()
        optimizer.step()


def by_hand(model: Any, optimizer: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Return the scores ½·h·w² of parameters, taken from the objects themselves."""
    scores = {}
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        if name in names:
            state = optimizer.state[parameter]
            beta = groups[id(parameter)]["betas"][1]
            moment = state["exp_avg_sq"].double() / (1 - beta ** float(state["step"]))
            scores[name] = (0.5 * moment * parameter.detach().double() ** 2).numpy()
    return scores


def zeros_of(scores: dict[str, np.ndarray], sparsity: float) -> dict[str, np.ndarray]:
    names = sorted(scores)
    flat = np.concatenate([scores[name].reshape(-1) for name in names])
    dropped = np.zeros(flat.size, np.bool_)
    dropped[np.argsort(flat, kind="stable")[: round(sparsity * flat.size)]] = True
    parts = np.split(dropped, np.cumsum([scores[name].size for name in names])[:-1])
    return {n: part.reshape(scores[n].shape) for n, part in zip(names, parts, strict=True)}


def read_pruned(paths: list[Path], pruning: Pruning = OBD) -> dict[str, np.ndarray]:
    """Return the masks of zeros of all pruned tensors; the others must be as they were."""
    opened = [open_checkpoint(path) for path in paths]
    found = {}
    for source in pruned_sources(opened, pruning, threads=1):
        for info in source.tensors:
            data, before = source.read(info.name), source.original.read(info.name)
            if source.is_selected(info.name):
                values = data.view(np.float32).reshape(info.shape)
                found[info.name] = (values == 0) & (before.view(np.float32) != 0).reshape(
                    info.shape
                )
            else:
                np.testing.assert_array_equal(data, before)
    for checkpoint in opened:
        checkpoint.close()
    return found


def check_pruned(
    paths: list[Path],
    model: Any,
    optimizer: Any,
    names: list[str],
    prefix: str = "",
    where: str | None = None,
) -> None:
    """Require that half of these weights are pruned, the lowest by the scores of the objects."""
    scores = by_hand(model, optimizer, names)
    wanted = zeros_of({prefix + name: score for name, score in scores.items()}, 0.5)
    found = read_pruned(paths, Pruning("obd", 0.5, where=where))
    assert set(found) == set(wanted)
    for name, mask in wanted.items():
        np.testing.assert_array_equal(found[name], mask, err_msg=name)


def adam(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), 1e-2, betas=BETAS)


def named_adam(model: Any) -> Any:
    return torch.optim.AdamW(model.named_parameters(), 1e-2, betas=BETAS)


WEIGHTS = ["fc1.weight", "fc2.weight", "fc3.weight"]

LAYOUTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "plain": ("model.", lambda m, o: {"model": m, "optimizer": o, "epoch": 3}),
    "state_dict": ("state_dict.", lambda m, o: {"optim": o, "state_dict": m}),
    "lightning": (
        "state_dict.",
        lambda m, o: {"state_dict": m, "optimizer_states": [o], "lr_schedulers": [{"a": 1}]},
    ),
    "nested": (
        "run.nets.main.",
        lambda m, o: {"run": {"nets": {"main": m}, "optim": [("adam", o)]}, "args": {"lr": 1}},
    ),
    "flat": ("", lambda m, o: {**m, "optimizer": o}),
    "an average beside it": (
        "model.",
        lambda m, o: {"ema": {k: v * 2 for k, v in m.items()}, "model": m, "optimizer": o},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [adam, named_adam], ids=["by order", "by name"])
def test_the_selection_is_that_of_obd(tmp_path, layout, make):
    model = layers()
    optimizer = make(model)
    trained(model, optimizer)
    prefix, saved = LAYOUTS[layout]
    torch.save(saved(model.state_dict(), optimizer.state_dict()), tmp_path / "c.pt")
    check_pruned([tmp_path / "c.pt"], model, optimizer, WEIGHTS, prefix)


def test_steps_of_their_own_are_told_apart(tmp_path):
    model = layers()
    optimizer = adam(model)
    trained(model, optimizer, steps=1)
    model.fc1.weight.requires_grad_(False)
    trained(model, optimizer, steps=4)
    assert optimizer.state[model.fc1.weight]["step"] != optimizer.state[model.fc2.weight]["step"]
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(saved, tmp_path / "c.pt")
    check_pruned([tmp_path / "c.pt"], model, optimizer, WEIGHTS, "model.")


def test_groups_with_and_without_decay_of_the_tiny_language_model(tmp_path):
    sys.path.insert(0, str(TINY_LM))
    try:
        from model import ModelConfig, TinyLM
    finally:
        sys.path.remove(str(TINY_LM))
    torch.manual_seed(0)
    net = TinyLM(ModelConfig(dim=32, hidden_dim=48, n_layers=2))
    matrices = [p for p in net.parameters() if p.ndim >= 2]
    gains = [p for p in net.parameters() if p.ndim < 2]
    groups = [{"params": gains, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.1}]
    optimizer = torch.optim.AdamW(groups, 1e-3, betas=BETAS)
    for step in range(2):
        tokens = torch.randint(0, 256, (2, 9), generator=torch.Generator().manual_seed(step))
        loss = nn.functional.cross_entropy(
            net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    names = [n for n, p in net.named_parameters() if p.ndim >= 2 and not n.startswith("embed")]
    check_pruned([tmp_path / "c.pt"], net, optimizer, names, "model.")


def test_an_optimizer_in_a_file_of_its_own(tmp_path):
    model = layers()
    optimizer = named_adam(model)
    trained(model, optimizer)
    torch.save(model.state_dict(), tmp_path / "model.bin")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    check_pruned([tmp_path / "model.bin", tmp_path / "optimizer.pt"], model, optimizer, WEIGHTS)


def test_state_that_is_kept_by_name(tmp_path):
    model = layers()
    optimizer = adam(model)
    trained(model, optimizer)
    names = [name for name, _ in model.named_parameters()]
    state = optimizer.state_dict()
    by_name = {
        "state": {names[index]: entry for index, entry in state["state"].items()},
        "param_groups": [{**state["param_groups"][0], "params": names}],
    }
    wrapped = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"model": wrapped, "optim": by_name}, tmp_path / "c.pt")
    check_pruned([tmp_path / "c.pt"], model, optimizer, WEIGHTS, "model.module.")


def flat_state(step: float | None) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    tensors = {}
    for name in ("layers.0.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight"):
        tensors[f"model.{name}"] = random.standard_normal((4, 5)).astype(np.float32)
        tensors[f"optimizer.{name}.exp_avg"] = random.random((4, 5)).astype(np.float32)
        tensors[f"optimizer.{name}.exp_avg_sq"] = random.random((4, 5)).astype(np.float32)
        if step is not None:
            tensors[f"optimizer.{name}.step"] = np.array(step + ("1." in name), np.float32)
    return tensors


@pytest.mark.parametrize("step", [None, 2.0])
def test_flat_names_of_a_safetensors_checkpoint(step):
    tensors = flat_state(step)
    (pruned,) = pruned_sources([MemoryCheckpoint(tensors)], OBD, threads=1)
    scores = {}
    for name, array in tensors.items():
        if name.startswith("model."):
            own = f"optimizer.{name.removeprefix('model.')}"
            moment = tensors[f"{own}.exp_avg_sq"].astype(np.float64)
            if step is not None:
                moment = moment / (1 - 0.999 ** float(tensors[f"{own}.step"]))
            scores[name] = 0.5 * moment * array.astype(np.float64) ** 2
    wanted = zeros_of(scores, 0.5)
    for name, array in tensors.items():
        data = pruned.read(name).view(np.float32).reshape(array.shape)
        np.testing.assert_array_equal(
            data, np.where(wanted[name], 0, array) if name in wanted else array
        )


def save_as_it_was(model: Any, optimizer: Any, path: Path) -> Path:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


def test_a_frozen_layer_among_equal_shapes_cannot_be_told_without_names(tmp_path):
    model = layers()
    model.fc1.weight.requires_grad_(False)
    for make in (adam, named_adam):
        optimizer = make(model)
        trained(model, optimizer)
        path = save_as_it_was(model, optimizer, tmp_path / "c.pt")
        if make is adam:
            with pytest.raises(PruningError, match=r"1 moments for 2 tensors; store param_names"):
                read_pruned([path])
            continue
        check_pruned([path], model, optimizer, ["fc2.weight", "fc3.weight"], "model.")
        with pytest.raises(PruningError, match=r"'model\.fc1\.weight' has no second moment"):
            read_pruned([path], Pruning("obd", 0.5, where="*fc*.weight"))


def test_a_frozen_layer_of_a_shape_of_its_own_is_left_out(tmp_path):
    model = layers()
    model.fc3.weight.requires_grad_(False)
    for make in (adam, named_adam):
        optimizer = make(model)
        trained(model, optimizer)
        path = save_as_it_was(model, optimizer, tmp_path / "c.pt")
        check_pruned([path], model, optimizer, ["fc1.weight", "fc2.weight"], "model.")
        with pytest.raises(PruningError, match=r"'model\.fc3\.weight' has no second moment"):
            read_pruned([path], Pruning("obd", 0.5, where="*fc*.weight"))


def test_equal_shapes_in_two_groups_cannot_be_told_without_names(tmp_path):
    model = layers()
    groups = [{"params": [model.fc2.weight]}, {"params": [model.fc1.weight, model.fc3.weight]}]
    optimizer = torch.optim.AdamW(groups, 1e-2)
    trained(model, optimizer)
    path = save_as_it_was(model, optimizer, tmp_path / "c.pt")
    with pytest.raises(PruningError, match=r"several groups of parameters.*param_names"):
        read_pruned([path])
    check_pruned([path], model, optimizer, ["fc3.weight"], "model.", "model.fc3.weight")


def test_a_file_that_sorts_its_tensors_has_lost_their_order(tmp_path):
    from safetensors.torch import save_file

    model = layers()
    optimizer = adam(model)
    trained(model, optimizer)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    paths = [tmp_path / "model.safetensors", tmp_path / "optimizer.pt"]
    with pytest.raises(PruningError, match="does not keep the order"):
        read_pruned(paths)
    check_pruned(paths, model, optimizer, ["fc3.weight"], where="fc3.weight")


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.RMSprop])
def test_other_optimizers_have_no_such_moment(tmp_path, optimizer):
    model = layers()
    made = optimizer(model.parameters(), 1e-3)
    trained(model, made)
    path = save_as_it_was(model, made, tmp_path / "c.pt")
    with pytest.raises(PruningError, match="training checkpoint that holds Adam's state"):
        read_pruned([path])


def test_two_parts_that_may_be_the_model_ask_which(tmp_path):
    model = layers()
    optimizer = named_adam(model)
    trained(model, optimizer)
    states = {"first": model.state_dict(), "second": layers().state_dict()}
    torch.save({**states, "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    with pytest.raises(PruningError, match=r"belongs to is ambiguous: 'first', 'second'"):
        read_pruned([tmp_path / "c.pt"])
    check_pruned([tmp_path / "c.pt"], model, optimizer, WEIGHTS, "first.", "first.fc*.weight")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("betas", value) for value in (3, None, (0.9,), ("a", "b"), (0.9, 10**400))),
        ("betas", torch.ones(2)),
        *(("params", value) for value in (3, None, [{}, {}])),
        *(("param_names", value) for value in (3, [[]], [1])),
        *(("step", value) for value in ([1], "x", 10**400)),
    ],
    ids=str,
)
def test_a_malformed_state_is_named(tmp_path, field, value):
    model = layers()
    optimizer = adam(model)
    trained(model, optimizer)
    state = optimizer.state_dict()
    place = state["state"][0] if field == "step" else state["param_groups"][0]
    place[field] = value
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match=rf"c\.pt: expected '{field}' of the optimizer"):
        read_pruned([tmp_path / "c.pt"])


def test_a_step_of_zero_is_refused():
    with pytest.raises(PruningError, match="step is 0"):
        pruned_sources([MemoryCheckpoint(flat_state(0.0))], OBD)


def test_a_moment_of_another_shape_is_refused():
    tensors = flat_state(1.0)
    tensors["optimizer.layers.1.mlp.up_proj.weight.exp_avg_sq"] = np.ones((2, 2), np.float32)
    with pytest.raises(PruningError, match=r"'model\.layers\.1.*of another model"):
        pruned_sources([MemoryCheckpoint(tensors)], OBD)


def test_moments_stay_views_of_the_file(tmp_path):
    from tensorcomp.selection.stored.adam import second_moments
    from tensorcomp.selection.stored.tensors import choose

    source = MemoryCheckpoint(flat_state(1.0))
    keys = [{info.name: info.name for info in source.tensors}]
    _, statistics = second_moments([source], choose([source], keys, None), all_of_them=False)
    for name, array in statistics.arrays["fisher"].items():
        stored = source.read(f"optimizer.{name.removeprefix('model.')}.exp_avg_sq")
        assert np.shares_memory(array, stored)
