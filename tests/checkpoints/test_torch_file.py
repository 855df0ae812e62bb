import math
import struct
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dtype_names import NAMES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.dtypes import torch_dtype

RoundTrip = Callable[[Path], Path]
Reload = Callable[..., Any]


@pytest.fixture
def reload(tmp_path: Path, round_trip: RoundTrip) -> Reload:
    """Return a function that saves an object, restores the file, and loads that."""

    def run(value: Any, **options: Any) -> Any:
        path = tmp_path / "model.pt"
        torch.save(value, path, **options)
        return torch.load(round_trip(path), weights_only=True)

    return run


@pytest.fixture
def names(tmp_path: Path) -> Callable[[Any], list[str]]:
    """Return a function that tells the names under which an object's tensors are stored."""

    def run(value: Any) -> list[str]:
        path = tmp_path / "named.pt"
        torch.save(value, path)
        with open_checkpoint(path) as checkpoint:
            return [info.name for info in checkpoint.tensors]

    return run


def assert_equal(a: Any, b: Any) -> None:
    """Compare types, values, bits and the order of dictionaries."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        assert a.detach().contiguous().flatten().view(torch.uint8).tolist() == (
            b.detach().contiguous().flatten().view(torch.uint8).tolist()
        )
        assert_equal(vars(a), vars(b))
    elif isinstance(a, dict):
        assert_equal(list(a.items()), list(b.items()))
        assert_equal(getattr(a, "__dict__", None), getattr(b, "__dict__", None))
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert_equal(left, right)
    elif isinstance(a, float):
        assert struct.pack("<d", a) == struct.pack("<d", b)
    else:
        assert a == b


def storages(tensors: Any) -> int:
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors})


def test_training_checkpoint(reload):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.LSTM(4, 5)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sum(parameter.square().sum() for parameter in model.parameters()).backward()
    optimizer.step()
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "epoch": 3,
        "best": None,
        "args": {"lr": 1e-3, "name": "run ü", "sizes": [1, 2, 3], "amp": False},
    }
    restored = reload(checkpoint)
    assert_equal(restored, checkpoint)
    assert restored["model"]._metadata == model.state_dict()._metadata
    assert_equal(reload(checkpoint, _use_new_zipfile_serialization=False), checkpoint)


VALUES: dict[str, Any] = {
    "none": None,
    "booleans": [True, False, 1, 0],
    "integers": [2**53 - 1, 2**53, -(2**53), 2**64, -(10**100)],
    "floats": [1.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1],
    "NaN payload": struct.unpack("<d", struct.pack("<Q", 0xFFF8DEAD00000001))[0],
    "complex": [complex(-0.0, math.inf), 1j],
    "texts": ["", "ü", "\0", "\ud800", "x" * 1000, '"\\'],
    "bytes": [b"a", b"\0\xff", bytearray(b"abc")],
    "tuples": ((), (1,), (1, (2, [3]))),
    "sets": {"a", 1, (2, 3)},
    "keys": {1: "a", "1": "b", 1.5: "c", None: "d", (1, "a"): "e", b"k": "f", torch.int8: "g"},
    "ordered": OrderedDict(b=1, a=2),
    "counter": Counter("abca"),
    "torch": [torch.Size([2, 3]), torch.bfloat16, torch.device("cuda:1"), torch.strided],
    "nothing": {},
}


@pytest.mark.parametrize("kind", VALUES)
def test_objects_without_tensors(kind, reload):
    assert_equal(reload({"value": VALUES[kind]}), {"value": VALUES[kind]})
    assert_equal(reload(VALUES[kind]), VALUES[kind])


PRIMITIVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.binary(min_size=1, max_size=80)  # weights_only loading refuses b""
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.recursive(
        PRIMITIVES,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_any_nesting(reload: Reload, value: Any) -> None:
    assert_equal(reload(value), value)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "F8_E8M0"])
def test_dtypes(name, reload):
    dtype = torch_dtype(name)
    patterns = torch.arange(2, dtype=torch.uint8).repeat(80)
    if dtype != torch.bool:
        patterns = torch.arange(160, dtype=torch.uint8)
    tensor = patterns.view(dtype)
    value = {"t": tensor, "scalar": tensor[0].clone(), "empty": tensor[:0].reshape(0, 3).clone()}
    restored = reload(value)
    assert_equal(restored, value)
    assert restored["scalar"].shape == ()


def test_dtypes_unknown_to_safetensors_travel_as_bytes(reload):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls ComplexHalf experimental, once
        torch.zeros(1, dtype=torch.complex32)
    for dtype in (torch.complex32, torch.float4_e2m1fn_x2):
        tensor = torch.arange(24, dtype=torch.uint8).view(dtype).reshape(2, -1)
        assert_equal(reload([tensor, tensor, tensor[1]]), [tensor, tensor, tensor[1]])


def test_tied_tensors_are_stored_once_and_stay_tied(reload, names):
    weight = torch.randn(5, 4)
    value = OrderedDict({"embed.weight": weight, "head.weight": weight[:], "other": weight.clone()})
    assert names(value) == ["embed.weight", "other"]
    restored = reload(value)
    assert_equal(restored, value)
    assert storages(restored.values()) == 2
    restored["embed.weight"].zero_()
    assert not restored["head.weight"].any()


def test_one_object_stays_one(reload):
    tensor, inner, text = torch.ones(2), [1], "t" * 1000
    first = reload({"a": [tensor, inner, text], "b": [tensor, inner, text]})
    for left, right in zip(first["a"], first["b"], strict=True):
        assert left is right
    parameter = torch.nn.Parameter(torch.ones(3))
    restored = reload([parameter, parameter])
    assert restored[0] is restored[1]


def test_views_of_one_storage(reload, names):
    base = torch.randn(6, 8)
    value = {
        "rows": base[1:3],
        "base": base,
        "transposed": base.t(),
        "columns": base[:, ::3],
        "corner": base[4:, 4:],
        "expanded": base[0, :1].expand(1000, 7),
        "diagonal": base.diagonal(),
    }
    assert names(value) == ["base"]
    restored = reload(value)
    assert_equal(restored, value)
    assert storages(restored.values()) == 1
    for name, tensor in value.items():
        assert restored[name].stride() == tensor.stride()


def test_disjoint_views_keep_their_names_and_their_storage(reload, names):
    flat = torch.randn(1000)
    value = {"b": flat[100:130].view(5, 6), "a": flat[10:22].view(3, 4), "c": flat[900]}
    assert names(value) == ["a", "b", "c"]
    restored = reload(value)
    assert_equal(restored, value)
    assert storages(restored.values()) == 1
    assert restored["a"].untyped_storage().nbytes() == 4 * (30 + 12 + 1)


def test_overlapping_views_without_a_cover(reload, names):
    flat = torch.randn(100)
    value = {"a": flat[:60], "b": flat[40:], "c": flat[50:70]}
    assert names(value) == ["a.storage"]
    restored = reload(value)
    assert_equal(restored, value)
    assert storages(restored.values()) == 1


def test_part_of_a_storage_is_stored_alone(tmp_path, reload):
    big = torch.randn(100_000)
    assert reload({"a": big[5:10]})["a"].untyped_storage().nbytes() == 20


def test_expanded_tensors_stay_small(reload, names):
    value = {"a": torch.ones(1).expand(10**12), "b": torch.arange(6.0).unfold(0, 3, 1)}
    assert names(value) == ["a.storage", "b.storage"]
    restored = reload(value)
    assert restored["a"].shape == (10**12,)
    assert restored["a"].stride() == (0,)
    assert_equal(restored["b"], value["b"])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 6).t(),
        torch.randn(2, 3, 4).permute(2, 0, 1),
    ],
)
def test_permuted_tensors(tensor, reload, tmp_path):
    restored = reload({"a": tensor})["a"]
    assert_equal(restored, tensor)
    assert restored.stride() == tensor.stride()
    with open_checkpoint(tmp_path / "model.pt") as checkpoint:
        logical = checkpoint.read("a").view(np.float32).reshape(tensor.shape)
        np.testing.assert_array_equal(logical, tensor.numpy())


def test_strided_tensors_keep_their_values(reload):
    value = {"a": torch.randn(6, 8)[::2, 1::3], "b": torch.randn(3, 1, 4)[:, :, ::2]}
    assert_equal(reload(value), value)


def test_lazily_conjugated_and_negated_tensors(reload):
    tensor = torch.randn(4000, dtype=torch.complex64)
    value = [tensor, tensor.conj(), tensor.clone().conj().imag]
    restored = reload(value)
    for left, right in zip(restored, value, strict=True):
        assert torch.equal(left, right.resolve_conj().resolve_neg())


def test_parameters_and_gradient_flags(reload):
    tagged = torch.nn.Parameter(torch.ones(2))
    tagged.partition = {"axis": 0, "mean": torch.zeros(3)}
    value = [
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.arange(3), requires_grad=False),
        torch.ones(2, requires_grad=True),
        tagged,
    ]
    assert_equal(reload(value), value)


def test_names_are_readable_and_unique(names):
    one = torch.ones(1)
    value = {
        "a.b": one + 1,
        "a": {"b": one + 2},
        "list": [one + 3, {5: one + 4}],
        ("x", 1): one + 5,
        "__metadata__": one + 6,
        "\ud800": one + 7,
        b"raw": one + 8,
        "": one + 9,
    }
    assert names(value) == [
        "a.b",
        "a.b#2",
        "list.0",
        "list.1.5",
        "('x', 1)",
        "__metadata__#2",
        "\\ud800",
        "6",
        "",
    ]
    assert names(one) == ["tensor"]


def test_aliases_name_their_tensor(tmp_path):
    weight = torch.ones(3)
    torch.save({"a": weight, "b": weight[:], "c": weight[:2], "d": weight[:]}, tmp_path / "m")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert [info.name for info in checkpoint.tensors] == ["a"]
        assert checkpoint.aliases == {"b": "a", "d": "a"}


def test_large_storages_pass_through_unnamed_files(tmp_path, reload, monkeypatch):
    monkeypatch.setattr("tensorcomp.checkpoints.layouts.torch_restore._SCRATCH_BYTES", 1)
    value = {"a": torch.randn(100, 7), "b": torch.randn(4, 6).t(), "empty": torch.zeros(0)}
    assert_equal(reload(value), value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "restored"]


def test_restored_files_do_not_depend_on_their_name(tmp_path, decoded):
    torch.save({"a": torch.ones(3), "set": {"x", "y", "z"}}, tmp_path / "m")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        source, template = decoded(checkpoint), checkpoint.template()
    restore(template, source, tmp_path / "one")
    restore(template, source, tmp_path / ".two.tmp")
    assert (tmp_path / "one").read_bytes() == (tmp_path / ".two.tmp").read_bytes()
