"""Bundles of small tensors: which are in them, and that every way of reading gets them back."""

import hashlib
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tampering import with_blob, with_manifest

import tensorcomp
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.container.bundles import ROW
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import TensorBlob
from tensorcomp.errors import FormatError, VerificationError
from tensorcomp.io.memory_file import MemoryFile
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.budgets import Budget
from tensorcomp.progress import Progress
from tensorcomp.pruning import Pruning

DTYPES: list[Any] = [
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    np.int64, np.int8, np.uint16, np.bool_, np.complex64,
]  # fmt: skip


def noise(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * 50
    return values.astype(dtype)


def vectors(count: int = 20, dtype: Any = np.float32, prefix: str = "v") -> dict[str, np.ndarray]:
    """Return so many small tensors of which none equals another."""
    return {f"{prefix}.{i}": noise((3, i + 5), dtype, i) for i in range(count)}


def manifest_of(data: bytes) -> Manifest:
    with CompressedFile(data) as file:
        return file.manifest


def bundled_names(data: bytes) -> set[str]:
    return {r.name for r in manifest_of(data).tensors.values() if r.bundle is not None}


def assert_same(found: dict[str, Any], wanted: dict[str, np.ndarray]) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_small_tensors_of_every_type_come_back(dtype, tmp_path):
    tensors = vectors(20, dtype) | {"scalar": noise((), dtype, 99)}
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.save_file(tensors, path)
    data = path.read_bytes()
    assert len(manifest_of(data).bundles) == 1
    assert bundled_names(data) | {"scalar", "v.0"} >= set(tensors)  # booleans may be equal
    assert_same(tensorcomp.load(data), tensors)
    with tensorcomp.safe_open(path) as file:
        assert_same({name: file.get_tensor(name) for name in file.keys()}, tensors)  # noqa: SIM118
        for name, array in tensors.items():
            if array.ndim:
                assert file.get_slice(name)[1:3, ::2].tobytes() == array[1:3, ::2].tobytes()
    assert not [check for check in tensorcomp.verify(path) if check.error]


shapes = st.lists(st.lists(st.integers(0, 40), max_size=3).map(tuple), max_size=60)


@given(
    shapes,
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
    st.sampled_from([1, 2]),
    st.sampled_from([17, 300, 1 << 20]),
)
def test_any_tensors_come_back_and_their_shares_add_up(shapes, dtypes, threads, chunk_elements):
    tensors = {
        f"{'x' * (i % 3)}{i}": noise(shape, dtypes[i % len(dtypes)], i % 25)
        for i, shape in enumerate(shapes)
    }
    out = MemoryFile(1)
    options = CompressOptions(threads=threads, chunk_elements=chunk_elements)
    report = compress_source(MemoryCheckpoint(tensors), out, options)
    data = out.to_bytes()
    assert_same(tensorcomp.load(data, threads=threads), tensors)
    with CompressedFile(data) as file:
        shares = {name: file.blob_bytes(name) for name in tensors}
        held = sum(stop - begin for begin, stop in file._file.header.offsets.values())
        assert sum(shares.values()) == held
        assert {item.name: item.stored for item in report.summary().tensors} == shares
        for name in tensors:
            assert b"".join(file.iter_bytes(name)) == tensors[name].tobytes()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_file_of_small_tensors_is_restored_byte_for_byte(threads, tmp_path):
    tensors = vectors(40) | vectors(30, np.float16, "h") | {"big": noise((90, 80), np.float32, 1)}
    first = tensorcomp.save(tensors, {"a": "b"}, threads=threads)
    assert first == tensorcomp.save(tensors, {"a": "b"}, threads=1)
    packed = tmp_path / "m.tc.safetensors"
    packed.write_bytes(first)
    source = tensorcomp.decompress(packed, threads=threads)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    done = tensorcomp.compress(source, packed, threads=threads, force=True)
    assert done.path.read_bytes() == first
    tensorcomp.decompress(packed, source, force=True, threads=threads)
    assert hashlib.sha256(source.read_bytes()).hexdigest() == digest


def test_few_large_and_opaque_tensors_have_blobs_of_their_own():
    assert not bundled_names(tensorcomp.save(vectors(15)))
    assert len(bundled_names(tensorcomp.save(vectors(16)))) == 16
    tensors = vectors(20) | {
        "as large as may be": noise((2048,), np.float32, 1),
        "larger": noise((2049,), np.float32, 2),
        "nothing": np.empty((0, 3), np.float32),
        "of another type": noise((3,), np.float16, 3),
    }
    found = bundled_names(tensorcomp.save(tensors))
    assert found == set(tensors) - {"larger", "nothing", "of another type"}


def test_equal_tensors_are_stored_once_wherever_they_are():
    tensors = vectors(20)
    again = {f"{name}.again": array.reshape(-1).copy() for name, array in tensors.items()}
    alone, twice = tensorcomp.save(tensors), tensorcomp.save(tensors | again)
    manifest = manifest_of(twice)
    assert all(manifest.tensors[name].same_as == name[: -len(".again")] for name in again)
    assert bundled_names(twice) == bundled_names(alone)
    loaded = tensorcomp.load(twice)
    assert_same(loaded, tensors | again)
    assert np.shares_memory(loaded["v.3"], loaded["v.3.again"])
    zeros = {f"z.{i}": np.zeros(64, np.float32) for i in range(50)}
    manifest = manifest_of(tensorcomp.save(zeros))
    assert not manifest.bundles
    assert [name for name, record in manifest.tensors.items() if record.has_blob] == ["z.0"]


def test_a_tensor_that_equals_a_whole_bundle_is_a_tensor_of_its_own():
    tensors = {f"r.{i:02}": noise((ROW,), np.float32, i) for i in range(20)}
    tensors["all"] = np.concatenate(list(tensors.values())).reshape(20, ROW)
    tensors["large"] = noise((60, 60), np.float32, 77)
    assert_same(tensorcomp.load(tensorcomp.save(tensors)), tensors)


def test_a_tensor_may_have_the_name_of_a_bundle():
    tensors = vectors(20) | {"small tensors.F32.0": noise((70, 70), np.float32, 1)}
    tensors["small tensors.F32.0'"] = noise((5,), np.float32, 2)
    data = tensorcomp.save(tensors)
    assert list(manifest_of(data).bundles) == ["small tensors.F32.0''"]
    assert_same(tensorcomp.load(data), tensors)


def test_bundles_are_cut_so_that_one_of_their_tensors_takes_little_to_read():
    tensors = {f"t.{i}": noise((2000,), np.float16, i) for i in range(150)}
    data = tensorcomp.save(tensors)
    bundles = manifest_of(data).bundles.values()
    assert len(bundles) == 3
    assert all(math.prod(bundle.shape) <= 1 << 17 for bundle in bundles)
    assert_same(tensorcomp.load(data), tensors)


@pytest.mark.parametrize("budget", [Budget(max_rel_l2=0.05), Budget(bits_per_weight=5)])
def test_what_a_budget_keeps_exactly_is_bundled_and_the_rest_is_not(budget, tmp_path):
    layers = {f"layers.{i}.norm.weight": noise((70,), np.float32, i) for i in range(20)}
    layers |= {f"layers.{i}.mlp.weight": noise((70, 70), np.float32, i) for i in range(3)}
    source, packed = tmp_path / "m.safetensors", tmp_path / "m.tc.safetensors"
    tensorcomp.save_file(layers, packed)
    tensorcomp.decompress(packed, source)
    tensorcomp.compress(source, packed, budget=budget, force=True)
    assert not [check for check in tensorcomp.verify(packed, source) if check.error]
    manifest = manifest_of(packed.read_bytes())
    for name, record in manifest.tensors.items():
        assert (record.bundle is not None) <= ("norm" in name)
        assert record.bundle is None or record.rel_l2 == 0
    assert any(record.bundle is not None for record in manifest.tensors.values())


def test_pruned_tensors_are_not_bundled(tmp_path):
    tensors = {f"layers.{i}.mlp.weight": noise((20, 30), np.float32, i) for i in range(18)}
    tensors |= {f"layers.{i}.bias": noise((20,), np.float32, i + 50) for i in range(18)}
    packed = tmp_path / "m.tc.safetensors"
    tensorcomp.save_file(tensors, packed, prune=Pruning("magnitude", 0.5))
    manifest = manifest_of(packed.read_bytes())
    pruned = {name for name, record in manifest.tensors.items() if record.pruned is not None}
    assert pruned == {name for name in tensors if "mlp" in name}
    assert bundled_names(packed.read_bytes()) == set(tensors) - pruned
    assert not [check for check in tensorcomp.verify(packed) if check.error]
    loaded = tensorcomp.load_file(packed)
    assert all((loaded[name] == 0).sum() > 0 for name in pruned)


def test_a_damaged_bundle_is_noticed_by_every_way_of_reading(tmp_path):
    tensors = vectors(20) | {"big": noise((90, 80), np.float32, 1)}
    data = tensorcomp.save(tensors)
    (name,) = manifest_of(data).bundles
    bad = with_blob(data, name, lambda blob: blob[:50] + bytes([blob[50] ^ 4]) + blob[51:])
    path = tmp_path / "x.tc.safetensors"
    path.write_bytes(bad)
    for threads in (1, 2):
        with pytest.raises(FormatError, match=name):
            tensorcomp.load(bad, threads=threads)
        with pytest.raises(FormatError, match=name):
            tensorcomp.decompress(path, tmp_path / "out", threads=threads)
        failed = {check.name for check in tensorcomp.verify(path, threads=threads) if check.error}
        assert failed == set(tensors) - {"big"}
    with tensorcomp.safe_open(path) as file:
        assert file.get_tensor("big").tobytes() == tensors["big"].tobytes()
        with pytest.raises(FormatError, match=name):
            file.get_tensor("v.7")
    assert not (tmp_path / "out").exists()


def test_a_bundle_that_decodes_to_other_bytes_is_noticed(tmp_path):
    data = tensorcomp.save(vectors(20))

    def change(manifest: dict[str, Any]) -> None:
        (bundle,) = manifest["bundles"].values()
        bundle["digest"] = "0" * 16

    path = tmp_path / "x.tc.safetensors"
    path.write_bytes(with_manifest(data, change))
    assert all("other bytes" in str(check.error) for check in tensorcomp.verify(path))
    with pytest.raises(VerificationError, match="other bytes"):
        tensorcomp.decompress(path, tmp_path / "out")


def test_a_bundle_that_fails_is_decoded_once(monkeypatch):
    data = tensorcomp.save(vectors(20))
    (name,) = manifest_of(data).bundles
    bad = with_blob(data, name, lambda blob: blob[:50] + bytes([blob[50] ^ 4]) + blob[51:])
    decoded = []
    decode = TensorBlob.decode_chunk
    monkeypatch.setattr(
        TensorBlob, "decode_chunk", lambda self, index: (decoded.append(1), decode(self, index))[1]
    )
    with CompressedFile(bad) as file:
        for vector in vectors(20):
            with pytest.raises(FormatError, match="checksum"):
                list(file.iter_bytes(vector))
    assert len(decoded) == 1


def test_what_many_bundles_take_in_memory_is_bounded():
    tensors = {
        f"layers.{i}.{np.dtype(dtype).name}": noise((2000,), dtype, i)
        for i in range(1200)
        for dtype in (np.float64, np.int64)
    }
    data = tensorcomp.save(tensors, threads=2)
    with CompressedFile(data) as file:
        for name, array in tensors.items():
            assert b"".join(file.iter_bytes(name)) == array.tobytes()
        kept = [whole.nbytes for whole in file._decoded_bundles.values()]
        assert (1 << 24) - (1 << 21) < sum(kept) <= 1 << 24


@pytest.mark.parametrize("names", [("", "b"), ("b", "")])
def test_a_name_may_be_empty(names, tmp_path):
    large = noise((6000,), np.float32, 1)
    tensors = dict.fromkeys(names, large) | vectors(20)
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.save_file(tensors, path)
    assert_same(tensorcomp.load_file(path), tensors)
    tensors |= {"v.1": tensors["v.2"].copy(), "v.": tensors["v.3"].copy()}
    assert_same(tensorcomp.load(tensorcomp.save(tensors)), tensors)
    assert not [check for check in tensorcomp.verify(path) if check.error]


class Counting(Progress):
    """Adds up what it is told of each tensor."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}

    def advance(self, name: str, nbytes: int) -> None:
        self.told[name] = self.told.get(name, 0) + nbytes


def test_progress_counts_the_tensors_and_not_the_bundles():
    tensors = vectors(20) | {"big": noise((90, 80), np.float32, 1)}
    tensors["equal"] = tensors["v.4"].copy()
    counting = Counting()
    compress_source(MemoryCheckpoint(tensors), MemoryFile(1), CompressOptions(threads=2), counting)
    assert counting.told == {name: array.nbytes for name, array in tensors.items()}


def test_the_file_is_one_that_safetensors_reads(tmp_path):
    from safetensors.numpy import load_file

    path = tmp_path / "x.tc.safetensors"
    tensorcomp.save_file(vectors(20), path)
    assert list(load_file(path)) == ["small tensors.F32.0"]


def test_torch_takes_bundled_tensors():
    torch = pytest.importorskip("torch")
    tensors = {f"t.{i}": torch.randn(i + 3).bfloat16() for i in range(20)}
    loaded = tensorcomp.load(tensorcomp.save(tensors), framework="pt")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    loaded["t.3"][0] = 5
    assert loaded["t.3"][0] == 5


def test_infos_of_a_source_are_not_touched():
    source = MemoryCheckpoint(vectors(20))
    before = source.tensors
    compress_source(source, MemoryFile(1))
    assert source.tensors == before
    assert all(isinstance(info, TensorInfo) for info in before)
