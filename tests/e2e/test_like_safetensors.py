"""The functions of safetensors and ours, called alike on the original and the compressed file."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from checkpoint_files import assert_equal, small_model, write_safetensors

import tensorcomp

METADATA = {"format": "pt", "é": "ü"}


def plain_model() -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array) for name, array in small_model().items()}


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """Return a file and its compressed twin."""
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(plain_model(), path, METADATA)
    return path, tensorcomp.compress(path).path


def test_load_file_and_load(both):
    wanted = safetensors.numpy.load_file(both[0])
    for found in (
        tensorcomp.load_file(both[1]),
        tensorcomp.load_file(str(both[1]), threads=3),
        tensorcomp.load(both[1].read_bytes()),
    ):
        assert sorted(found) == sorted(wanted)
        for name, array in wanted.items():
            assert_equal(found[name], array)
            assert found[name].flags.writeable
        tied = found["embed.weight"], found["lm_head.weight"]
        assert np.shares_memory(*tied)  # stored once


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_share_chunks_of_all_sizes(threads):
    rng = np.random.default_rng(0)
    tensors = {str(n): rng.standard_normal((n % 7, n)).astype(np.float32) for n in range(60)}
    tensors["long"] = rng.standard_normal((5, 1 << 19)).astype(np.float16)  # of three chunks
    data = tensorcomp.save(tensors)
    found = tensorcomp.load(data, threads=threads)
    assert sorted(found) == sorted(tensors)
    for name, array in tensors.items():
        assert_equal(found[name], array)

    damaged = bytearray(data)
    damaged[-100] ^= 1
    with pytest.raises(tensorcomp.errors.FormatError, match="chunk 2: the checksum is wrong"):
        tensorcomp.load(bytes(damaged), threads=threads)


def test_save_file_and_save(tmp_path):
    metadata = {"format": "pt"}  # of more entries theirs has no order
    wanted = safetensors.numpy.save(plain_model(), metadata)
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.save_file(plain_model(), path, metadata)
    assert path.read_bytes() == tensorcomp.save(plain_model(), metadata)
    assert tensorcomp.decompress(path).read_bytes() == wanted


@pytest.mark.parametrize("framework", ["np", "numpy", "pt"])
def test_safe_open(framework, both):
    if framework == "pt":
        pytest.importorskip("torch")
    with (
        safetensors.safe_open(both[0], framework=framework) as wanted,
        tensorcomp.safe_open(both[1], framework=framework) as found,
    ):
        assert found.metadata() == wanted.metadata()
        assert sorted(found.keys()) == sorted(wanted.keys())
        assert found.offset_keys() == wanted.offset_keys()
        for name in wanted.keys():  # noqa: SIM118 - not a dictionary
            _same(found.get_tensor(name), wanted.get_tensor(name))
            ours, theirs = found.get_slice(name), wanted.get_slice(name)
            assert ours.get_shape() == theirs.get_shape()
            assert ours.get_dtype() == theirs.get_dtype()
            indices: list[Any] = [slice(None), slice(1, 3), slice(0, 0)]
            if len(theirs.get_shape()) == 2:
                indices += [(slice(0, 2), slice(3, 9)), (slice(None), slice(2))]
            for index in indices if theirs.get_shape() else [...]:
                with contextlib.suppress(safetensors.SafetensorError):  # theirs takes fewer
                    _same(ours[index], theirs[index])


def _same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, np.ndarray):
        assert_equal(found, wanted)
        return
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.equal(wanted)


def test_a_missing_tensor_is_named(both):
    with tensorcomp.safe_open(both[1]) as file:
        for call in (file.get_tensor, file.get_slice):
            with pytest.raises(tensorcomp.errors.FormatError, match="has no tensor 'nonesuch'"):
                call("nonesuch")


def test_an_unknown_framework_is_refused(both):
    for call in (tensorcomp.load_file, tensorcomp.safe_open):
        with pytest.raises(ValueError, match="expected framework to be 'np' or 'pt', got 'tf'"):
            call(both[1], framework="tf")


@pytest.mark.parametrize("metadata", [None, {}, {"a": "b"}])
def test_metadata_is_as_it_was(metadata, tmp_path):
    path = write_safetensors(tmp_path / "x.safetensors", {"a": np.arange(3)}, metadata)
    done = tensorcomp.compress(path)
    with tensorcomp.safe_open(done.path) as file:
        assert file.metadata() == metadata
    restored = tensorcomp.decompress(done.path, tmp_path / "again")
    assert restored.read_bytes() == path.read_bytes()


def test_types_that_numpy_lacks_come_as_bytes(tmp_path):
    data = bytes(range(24))
    given = {"known bits": ("F4", (6, 8), data), "new": ("F99", (5,), data), "b": np.arange(4)}
    path = write_safetensors(tmp_path / "x.safetensors", given)
    done = tensorcomp.compress(path)
    assert tensorcomp.decompress(done.path, tmp_path / "y").read_bytes() == path.read_bytes()
    loaded = tensorcomp.load_file(done.path)
    with tensorcomp.safe_open(done.path) as file:
        for name in ("known bits", "new"):
            for found in (loaded[name], file.get_tensor(name), file.get_slice(name)[...]):
                assert found.dtype == np.uint8
                assert found.tobytes() == data
            assert file.get_slice(name).get_dtype() == given[name][0]
            assert file.get_slice(name).get_shape() == list(given[name][1])


def test_what_is_no_tensor_is_refused():
    for value, wanted in (
        ([1, 2], "is a list"),
        ("text", "is a str"),
        (None, "is a NoneType"),
        (np.array(["a"]), "no safetensors equal"),
        (np.array([None]), "no safetensors equal"),
        (np.zeros(2, np.longdouble), "no safetensors equal"),
        (np.zeros(2, "M8[s]"), "no safetensors equal"),
    ):
        with pytest.raises(TypeError, match=wanted):
            tensorcomp.save({"x": value})
    with pytest.raises(tensorcomp.errors.CheckpointError, match="__metadata__"):
        tensorcomp.save({"__metadata__": np.zeros(2)})


def test_a_numpy_scalar_is_a_tensor_without_axes():
    loaded = tensorcomp.load(tensorcomp.save({"x": np.float32(2.5)}))
    assert_equal(loaded["x"], np.array(2.5, np.float32))


def test_numpy_functions_differ_in_the_import_only(tmp_path):
    import safetensors.numpy as theirs

    import tensorcomp.numpy as ours

    results = []
    for functions in (theirs, ours):
        path = tmp_path / "x.safetensors"
        functions.save_file(plain_model(), path, METADATA)
        results.append(functions.load_file(path))
        results.append(functions.load(functions.save(plain_model(), METADATA)))
    for found in results[1:]:
        assert sorted(found) == sorted(results[0])
        for name, array in results[0].items():
            assert_equal(found[name], array)


def test_torch_functions_differ_in_the_import_only(tmp_path):
    torch = pytest.importorskip("torch")
    import safetensors.torch as theirs

    import tensorcomp.torch as ours

    model = {"a": torch.randn(30, 40).bfloat16(), "b": torch.arange(5)}
    for functions in (theirs, ours):
        path = tmp_path / "x.safetensors"
        functions.save_file(model, path, METADATA)
        for found in (
            functions.load_file(path),
            functions.load_file(path, device="cpu"),
            functions.load(functions.save(model, METADATA)),
        ):
            assert sorted(found) == sorted(model)
            assert all(torch.equal(found[name], tensor) for name, tensor in model.items())
            assert all(found[name].dtype == tensor.dtype for name, tensor in model.items())
