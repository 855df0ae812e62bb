"""Slices take the indices that safetensors takes, and refuse the others as it does."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from checkpoint_files import write_safetensors

import tensorcomp

PAIRS = torch.float4_e2m1fn_x2 if hasattr(torch, "float4_e2m1fn_x2") else None
WHOLE = slice(None)
INDICES: tuple[Any, ...] = (
    *(..., (), (...,), (WHOLE, slice(2, 5)), (..., slice(2, 5)), (slice(0, 2), ...), slice(2)),
    *(slice(-2, None), (WHOLE, slice(-3, -1)), slice(None, None, 2), (WHOLE, slice(1, 5, 3))),
    *(slice(None, None, -1), (WHOLE, slice(None, None, -1)), slice(None, None, 0)),
    *(slice(7, 3), slice(12, 14), slice(0, 20), (WHOLE, slice(0, 6)), slice(0, 1 << 70)),
    *(3, -1, 10, -11, (0, 0), (-1, -5), (WHOLE, -6), (WHOLE, 5), (0, 0, 0), (..., 0, 0, 0)),
    *((..., 0), (0, ..., 1), (0, ...), (..., ...), (WHOLE, WHOLE, ...), 1 << 70),
    *([0], [], (0, [1]), (WHOLE, []), None, (None, 0), True, np.int64(3), np.array([1, 2])),
    *(torch.tensor([1]), torch.arange(10) < 4, 1.5, "a", slice("a"), slice(2.0), {}),
)
# Where theirs fails by accident, or has an axis without elements: ours answers as NumPy does.
LESS = (OverflowError, SystemError)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("slices") / "x.safetensors"
    tensors = {
        "matrix": torch.arange(50.0).reshape(10, 5),
        "cube": torch.arange(60).reshape(3, 4, 5).to(torch.int16),
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "bfloat16": torch.arange(12).reshape(3, 4).bfloat16(),
        "complex": torch.arange(6).reshape(3, 2).to(torch.complex64),
    }
    safetensors.torch.save_file(tensors, path)
    return [path, tensorcomp.compress(path).path]


def result(file: Any, name: str, index: Any) -> Any:
    try:
        found = file.get_slice(name)[index]
    except Exception as error:  # whatever it is, it is compared
        return error
    assert isinstance(found, (np.ndarray, torch.Tensor))
    return found


@pytest.mark.parametrize("framework", ["np", "pt"])
@pytest.mark.parametrize("kind", [0, 1], ids=["ordinary", "compressed"])
@pytest.mark.parametrize("name", ["matrix", "cube", "scalar", "none", "bfloat16", "complex"])
def test_every_index_does_what_it_does_there(framework, kind, name, paths):
    with (
        safetensors.safe_open(paths[0], framework) as theirs,
        tensorcomp.safe_open(paths[kind], framework) as ours,
    ):
        for index in INDICES:
            if framework == "np" and isinstance(index, torch.Tensor):
                continue  # which is an integer or not by its size
            found, wanted = result(ours, name, index), result(theirs, name, index)
            if not isinstance(wanted, Exception):
                assert isinstance(found, type(wanted)), (index, found)
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), index
                assert found.tolist() == wanted.tolist(), index
                found.reshape(-1)[:1] = found.reshape(-1)[:1]  # ours to change
            elif isinstance(found, Exception):
                assert isinstance(found, (type(wanted), IndexError, TypeError)), (index, found)
            else:
                lacking = name in ("none", "bfloat16") and framework == "np"
                assert lacking or isinstance(wanted, LESS), (index, wanted)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ((slice(2, None), -6), "Invalid index -6 for dimension 1 of size 5"),
        ([0, 1], "Non empty lists are not implemented"),
        (slice(None, None, -2), "Slice step must be a positive integer, got -2"),
        (
            (slice(2, None), 20),
            "Error during slicing [2:, 20] with shape [10, 5]: "
            "index 20 out of bounds for tensor dimension #1 of size 5",
        ),
        (
            (WHOLE, slice(20)),
            "Error during slicing [:, :20] with shape [10, 5]: "
            "index 19 out of bounds for tensor dimension #1 of size 5",
        ),
    ],
)
def test_refusals_have_the_same_words(index, text, paths):
    for opened, path in ((safetensors.safe_open, paths[0]), (tensorcomp.safe_open, paths[1])):
        with opened(path, "np") as file, pytest.raises(safetensors.SafetensorError) as caught:
            file.get_slice("matrix")[index]
        assert str(caught.value) == text


@pytest.mark.parametrize("kind", [0, 1], ids=["ordinary", "compressed"])
def test_a_slice_describes_what_it_returns(kind, paths):
    for framework in ("np", "pt"):
        with tensorcomp.safe_open(paths[kind], framework) as file:
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                part = file.get_slice(name)
                whole = part[...]
                assert (part.shape, part.dtype, part.ndim) == (whole.shape, whole.dtype, whole.ndim)
                assert type(part.shape) is type(whole.shape)
                if framework == "pt":
                    assert part.device == whole.device
                    assert part.numel() == whole.numel()
                    assert part.is_floating_point() == whole.is_floating_point()
                    assert part.is_complex() == whole.is_complex()
                    assert part.to(torch.complex128).dtype == torch.complex128
                else:
                    assert part.is_floating_point() == (name not in ("cube", "complex"))
                    assert part.is_complex() == (name == "complex")


def test_pairs_of_floats_and_unknown_types_are_sliced_too(tmp_path):
    data = bytes(range(24))
    given = {"pairs": ("F4", (6, 8), data), "odd": ("F4", (16, 3), data), "new": ("Q9", (5,), data)}
    path = write_safetensors(tmp_path / "x.safetensors", given)
    for source in (path, tensorcomp.compress(path).path):
        with tensorcomp.safe_open(source, "np") as file:
            for name, (dtype, shape, _) in given.items():
                part = file.get_slice(name)
                assert (part.get_dtype(), part.get_shape()) == (dtype, list(shape))
                assert (part.dtype, part.shape) == (np.uint8, (24,))
                assert part[3:5].tobytes() == data[3:5]
                assert not part.is_floating_point()
        with tensorcomp.safe_open(source, "pt") as file:
            assert file.get_slice("new")[3:5].tolist() == [3, 4]
            if PAIRS is not None:
                part = file.get_slice("pairs")
                assert (part.dtype, part.shape, part.get_shape()) == (PAIRS, (6, 4), [6, 8])
                assert part.is_floating_point()
                rows = part[2:4, 1:3]
                assert (rows.dtype, rows.shape) == (PAIRS, (2, 2))
                assert rows.view(torch.uint8).tolist() == [[9, 10], [13, 14]]


def test_columns_of_an_ordinary_file_are_all_that_is_copied(tmp_path):
    array = np.arange(1 << 22, dtype=np.float32).reshape(1 << 12, 1 << 10)
    path = write_safetensors(tmp_path / "x.safetensors", {"a": array})
    with tensorcomp.safe_open(path) as file:
        part = file.get_slice("a")
        tracemalloc.start()
        columns = part[:, 5:7]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert np.array_equal(columns, array[:, 5:7])
    assert columns.base is None or columns.base.nbytes == columns.nbytes
    assert most < 1 << 20
