import argparse
import datetime
import math
import pickle
import struct
import sys
import warnings
import zipfile
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

from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.dtypes import torch_dtype
from tensorcomp.errors import CheckpointError, FormatError

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


class Custom:
    """Stands for any class that weights_only loading does not allow."""


class Subclass(torch.Tensor):
    """Stands for any tensor subclass that a user allowed by hand."""


def cyclic() -> list[Any]:
    value: list[Any] = [1]
    value.append({"back": value})
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def deep_set(levels: int) -> set[Any]:
    value: tuple[Any, ...] = ()
    for _ in range(levels):
        value = (value,)
    return {value, 1}


REFUSED: dict[str, tuple[Any, str]] = {
    "numpy scalar": ({"loss": np.float64(1.5)}, "a NumPy object made by 'numpy.*scalar'"),
    "numpy array": ({"loss": np.ones(3)}, "a NumPy object made by"),
    "namespace": ({"args": argparse.Namespace(lr=1)}, "made by 'argparse.Namespace'.*code"),
    "own class": ({"a": Custom()}, r"made by '.*Custom'.*state_dict\(\)"),
    "function": ({"a": print}, "made by 'print'"),
    "date": ({"a": datetime.date(2020, 1, 1)}, "made by 'datetime.date'"),
    "module": (torch.nn.Linear(1, 1), "made by 'torch.nn.modules.linear.Linear'"),
    "sparse": ({"a": torch.eye(3).to_sparse()}, r"'a' is a tensor of layout torch.sparse_coo"),
    "meta": ({"x": [torch.ones(2, device="meta")]}, "'x.0' is a meta tensor"),
    "storage": (
        {"a": torch.ones(2).untyped_storage()},
        "'a' is a torch.*Storage|no attribute 'dtype'",
    ),
    "type": ({"a": torch.Tensor}, "'a' is a torch._C._TensorMeta|'a' is a builtins.type"),
    "cycle": (cyclic(), "'1.back' holds itself"),
    "deep": (deep(150), "nests more than 100 levels"),
    "deep set": (deep_set(300), "nests more than 100 levels"),
    "very deep": (deep(400), "nests more than 100 levels"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("zipped", [True, False])
def test_refused_objects_are_named(kind, zipped, tmp_path):
    value, message = REFUSED[kind]
    path = tmp_path / "m"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*[qQ]uantiz.*|.*TypedStorage.*")
def test_quantized_tensors_are_refused(tmp_path):
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    torch.save({"a": quantized}, tmp_path / "m")
    with pytest.raises(CheckpointError, match="'a' is a quantized tensor"):
        open_checkpoint(tmp_path / "m")


def test_tensor_subclasses_are_refused(tmp_path):
    torch.save({"a": torch.ones(3).as_subclass(Subclass)}, tmp_path / "m")
    with (
        torch.serialization.safe_globals([Subclass]),
        pytest.raises(CheckpointError, match=r"'a' is a tensor of the subclass .*Subclass"),
    ):
        open_checkpoint(tmp_path / "m")


def test_repetition_does_not_explode(tmp_path, round_trip):
    value: Any = ["x" * 10_000]
    for _ in range(40):
        value = [value, value]
    path = tmp_path / "m"
    torch.save(value, path)
    restored = round_trip(path)
    assert restored.stat().st_size < 20_000


def test_byte_strings_cannot_be_longer_than_their_file(tmp_path):
    class Claim:
        def __reduce__(self) -> Any:
            return bytearray, (2**26,)

    torch.save({"a": Claim()}, tmp_path / "m")
    with pytest.raises(CheckpointError, match="'a' claims 67,108,864 bytes"):
        open_checkpoint(tmp_path / "m")


def test_code_is_never_run(tmp_path):
    class Attack:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "run"), "w")

    for zipped in (True, False):
        torch.save({"a": Attack()}, tmp_path / "m", _use_new_zipfile_serialization=zipped)
        with pytest.raises(CheckpointError, match=r"made by '(io|_io)?\.?open'"):
            open_checkpoint(tmp_path / "m")
    assert not (tmp_path / "run").exists()


def test_zip_packed_again_is_inflated(tmp_path, round_trip):
    value = {"a": torch.arange(5000)}
    torch.save(value, tmp_path / "m")
    with (
        zipfile.ZipFile(tmp_path / "m") as old,
        zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    try:
        torch.load(tmp_path / "packed", weights_only=True)
    except Exception:
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path / "packed")
    else:
        assert_equal(torch.load(round_trip(tmp_path / "packed"), weights_only=True), value)


@pytest.mark.parametrize("zipped", [True, False])
def test_cut_files(zipped, tmp_path):
    path = tmp_path / "m"
    torch.save({"a": torch.randn(1000), "b": [1, 2]}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    for size in [*range(1, 600, 23), len(whole) // 2, len(whole) - 100, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_flipped_bits(zipped, tmp_path, damage):
    path = tmp_path / "m"
    value = {"a": torch.arange(20), "b": [1, 2.5, "text", torch.ones(2, 2).t()]}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    damage(path, flips=150, seed=3)


def test_damaged_templates_are_format_errors(tmp_path, decoded):
    base = torch.arange(12.0)
    torch.save({"a": base, "b": base[2:5], "c": torch.ones(2, 3).t()}, tmp_path / "m")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        source, good = decoded(checkpoint), checkpoint.template().structure
    pool = {"pool": 0, "offset": 0, "shape": [12], "stride": [1]}
    leaf = {"tree": {"tensor": 0}, "leaves": [pool], "pools": good["pools"]}
    restore(SourceTemplate("torch", leaf), source, tmp_path / "out")
    for damage in (
        {"tree": {"tensor": 1}},
        {"tree": {"tensor": "a"}},
        {"tree": {"unknown": 1}},
        {"tree": {}},
        {"tree": {"ref": 5}},
        {"tree": {"dict": [[[], 1]]}},
        {"tree": {"dict": 5}},
        {"tree": {"dtype": "load"}},
        {"tree": {"float": "zz"}},
        {"tree": {"bytes": "%"}},
        {"tree": {"device": "nowhere"}},
        {"tree": deep(2000)},
        {"leaves": 5},
        {"leaves": [pool | {"offset": 1}]},
        {"leaves": [pool | {"offset": -1}]},
        {"leaves": [pool | {"shape": [13]}]},
        {"leaves": [pool | {"shape": [2**62], "stride": [2**62]}]},
        {"leaves": [pool | {"pool": 9}]},
        {"leaves": [{"name": "absent"}]},
        {"leaves": [{"name": "c", "stride": [1, 1]}]},
        {"leaves": [{"name": "c", "shape": [7]}]},
        {"leaves": [{"name": "c", "dtype": "nothing"}]},
        {"pools": [{"dtype": "float32", "pieces": ["absent"]}]},
        {"pools": [{}]},
    ):
        with pytest.raises(FormatError):
            restore(SourceTemplate("torch", leaf | damage), source, tmp_path / "out")
    for template in (SourceTemplate("torch"), SourceTemplate("torch", {}, {"structure": b"junk"})):
        with pytest.raises(FormatError):
            restore(template, source, tmp_path / "out")


def test_unwritable_output(tmp_path, decoded):
    torch.save({"a": torch.ones(3)}, tmp_path / "m")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        with pytest.raises(CheckpointError, match="has no tensor 'absent'"):
            checkpoint.read("absent")
        with pytest.raises(CheckpointError, match="cannot be written"):
            restore(checkpoint.template(), decoded(checkpoint), tmp_path / "absent" / "out")


def test_missing_torch_is_explained(tmp_path, monkeypatch):
    torch.save({"a": torch.ones(3)}, tmp_path / "m")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CheckpointError, match=r"pip install 'tensorcomp\[torch\]'"):
        open_checkpoint(tmp_path / "m")


def test_storage_claims_are_compared_with_the_file(tmp_path):
    path = tmp_path / "m"
    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    # Storage of 3 elements and a tensor of shape (3,), both made to claim more.
    damaged = path.read_bytes().replace(b"K\x03", b"J\xff\xff\xff\x7f")
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError):
        open_checkpoint(path)
    assert pickle.loads(damaged[:15])
