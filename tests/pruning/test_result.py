import copy

import numpy as np
import pytest
import torch
from torch import nn

from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.pruning import Filter, PruningResult

MASKS = {
    "0.weight": np.array([[True, False, True], [False, False, True]]),
    "2.weight": np.array([[False, True]]),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))


def test_counts():
    result = PruningResult(MASKS, "magnitude")
    assert result.sizes == {"0.weight": 6, "2.weight": 2}
    assert result.pruned == {"0.weight": 3, "2.weight": 1}
    assert result.sparsity == 0.5


def test_apply_sets_zeros_and_nothing_else():
    model, result = network(), PruningResult(MASKS)
    before = copy.deepcopy(model.state_dict())
    result.apply_(model)
    for name, tensor in model.state_dict().items():
        mask = torch.as_tensor(MASKS.get(name, np.ones(tuple(tensor.shape), np.bool_)))
        assert torch.equal(tensor[mask], before[name][mask])
        assert not tensor[~mask].any()
        assert not torch.signbit(tensor[~mask]).any()


@pytest.mark.parametrize(
    "masks",
    [
        {**MASKS, "4.weight": np.ones((1, 1), np.bool_)},
        {**MASKS, "2.weight": np.ones((2, 2), np.bool_)},
        {**MASKS, "2.weight": np.ones((1, 2))},
        {**MASKS, "2.weight": [[True, False]]},
        {**MASKS, "2.weight": None},
    ],
)
def test_masks_that_do_not_fit_change_nothing(masks):
    model = network()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(PruningError):
        PruningResult(masks).apply_(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("change", ["read-only", "backwards", "transposed"])
def test_masks_of_any_layout(change):
    mask = np.array([[True, False, True], [False, False, True]])
    given = {
        "read-only": np.frombuffer(mask.tobytes(), np.bool_).reshape(2, 3),
        "backwards": mask[::-1].copy()[::-1],
        "transposed": mask.T.copy().T,
    }[change]
    model = network()
    PruningResult({"0.weight": given}).apply_(model)
    assert torch.equal(model[0].weight != 0, torch.from_numpy(mask))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with PruningResult({"0.weight": given}).hold(model, optimizer):
        assert torch.equal(model[0].weight != 0, torch.from_numpy(mask))


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float64]
)
def test_apply_to_weights_of_any_type(dtype):
    model = network().to(dtype)
    PruningResult(MASKS).apply_(model)
    for name, mask in MASKS.items():
        kept = model.get_parameter(name).detach().float() != 0
        assert torch.equal(kept, torch.from_numpy(mask))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(3, 2, device="meta"), "'weight' is on the meta device"),
        (lambda: nn.LazyLinear(2), "'weight' is of a lazy layer"),
    ],
)
def test_apply_to_weights_without_values_is_no_silent_omission(make, words):
    with pytest.raises(PruningError, match=words):
        PruningResult({"weight": MASKS["0.weight"]}).apply_(make())


def test_shuffled_masks_keep_as_many_in_each_tensor():
    rng = np.random.default_rng(0)
    masks = {name: rng.random((40, 50)) < 0.1 for name in "ab"}
    result = PruningResult(masks, "snip")
    control = result.shuffled(1)
    assert control.pruned == result.pruned
    assert control.score == "shuffled snip"
    for name, mask in masks.items():
        assert not np.array_equal(control.masks[name], mask)
        assert np.array_equal(control.masks[name], result.shuffled(1).masks[name])
        assert not np.array_equal(control.masks[name], result.shuffled(2).masks[name])


def test_masks_are_saved_and_loaded(tmp_path):
    path = tmp_path / "masks.tc.safetensors"
    PruningResult(MASKS, "random(7)", Filter()).save(path)
    loaded = PruningResult.load(path)
    assert (loaded.score, loaded.granularity) == ("random(7)", Filter())
    for name, mask in MASKS.items():
        np.testing.assert_array_equal(loaded.masks[name], mask)


def test_other_files_hold_no_masks(tmp_path):
    from tensorcomp import save_file

    path = tmp_path / "weights.tc.safetensors"
    save_file({"w": np.ones(3)}, path)
    with pytest.raises(CheckpointError, match="holds no masks"):
        PruningResult.load(path)
    for text in ("[" * 100_000, "[]", "3", "{}", '{"score": "random(7)", "granularity": 3}'):
        save_file({"w": np.ones(3)}, path, metadata={"tensorcomp.masks": text})
        with pytest.raises(CheckpointError, match="holds no masks"):
            PruningResult.load(path)
