from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from checkpoint_files import digest, errors_of

import tensorcomp

torch = pytest.importorskip("torch")

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)


def bits(tensor: Any) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def same(found: Any, wanted: Any) -> None:
    """Require equal types, dtypes, shapes and bits all the way down."""
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert bits(found) == bits(wanted)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            same(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for left, right in zip(found, wanted, strict=True):
            same(left, right)
    else:
        assert found == wanted or (found != found and wanted != wanted)


def test_every_dtype_saves_and_loads():
    random = np.random.default_rng(1)
    tensors = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        size = torch.empty(0, dtype=dtype).element_size()
        data = np.frombuffer(random.bytes(60 * size), np.uint8).copy()
        if name == "bool":
            data &= 1
        tensors[name] = torch.from_numpy(data).view(dtype).reshape(5, 12)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 4)
    tensors["view"] = torch.arange(60.0).reshape(6, 10).t()[::2]
    tensors["channels last"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    loaded = tensorcomp.load(tensorcomp.save(tensors), framework="pt")
    for name, tensor in tensors.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(loaded[name]) == bits(tensor)
        loaded[name].zero_()  # ours to change


def test_numpy_and_torch_save_the_same_bytes():
    array = np.random.default_rng(2).standard_normal((70, 80)).astype(np.float32)
    assert tensorcomp.save({"a": array}) == tensorcomp.save({"a": torch.from_numpy(array)})


def test_safe_open_slices_as_torch(tmp_path):
    tensor = torch.randn(20, 6).bfloat16()
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.save_file({"a": tensor}, path)
    with tensorcomp.safe_open(path, framework="pt") as file:
        part = file.get_slice("a")
        for index in (3, -1, slice(2, 9), slice(None, None, 3), (slice(4), 2), ..., (0, 0)):
            assert bits(part[index]) == bits(tensor[index])
        with pytest.raises(ValueError, match="step must be greater than zero"):
            part[::-2]


def test_tied_parameters_are_stored_once_and_loaded_tied(tmp_path):
    weight = torch.randn(100, 30)
    path = tmp_path / "model.pt"
    views = {"head": weight.detach(), "rows": weight[10:20]}
    torch.save({"embed": weight, **views, "copy": weight + 1}, path)
    done = tensorcomp.compress(path)
    assert done.path.stat().st_size < 2.2 * weight.numel() * 4
    loaded = tensorcomp.load_file(done.path, framework="pt")
    assert {"copy", "embed", "head"} <= set(loaded)  # a part of a tensor has no name of its own
    assert loaded["embed"].data_ptr() == loaded["head"].data_ptr()
    restored = torch.load(
        tensorcomp.decompress(done.path, tmp_path / "again.pt"), weights_only=True
    )
    same(restored["copy"], weight + 1)
    restored["embed"][0, 0] = 7
    assert restored["head"][0, 0] == 7
    restored["embed"][10, 1] = 9
    assert restored["rows"][0, 1] == 9


def test_a_training_checkpoint_comes_back_equal(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        OrderedDict(
            first=torch.nn.Linear(40, 60), norm=torch.nn.LayerNorm(60), last=torch.nn.Linear(60, 3)
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 40)).square().mean().backward()
        optimizer.step()
        schedule.step()
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": 3,
        "best": float("nan"),
        "notes": ["a", None, True, (1, 2.5)],
        "random": torch.get_rng_state(),
    }
    path = tmp_path / "train.pt"
    torch.save(checkpoint, path)
    done = tensorcomp.compress(path)
    assert done.path.name == "train.pt.tc.safetensors"
    assert not errors_of(done.path, path)
    restored = tensorcomp.decompress(done.path, tmp_path / "again.pt")
    found = torch.load(restored, weights_only=True)
    same(found, torch.load(path, weights_only=True))
    torch.optim.AdamW(model.parameters()).load_state_dict(found["optimizer"])
    again = tensorcomp.compress(restored, tmp_path / "again.tc.safetensors")
    assert done.path.stat().st_size == again.path.stat().st_size
    assert digest(tensorcomp.decompress(again.path, tmp_path / "third.pt")) == digest(restored)
