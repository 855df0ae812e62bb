import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import assert_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensorcomp
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.container.tensor_blob import TensorBlob
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions

CHUNKS = (1, 5, 16, 1000)
SHAPES = ((), (0,), (1,), (37,), (9, 4), (4, 9), (0, 3), (3, 0), (5, 3, 4), (2, 1, 3, 2), (1, 40))
DTYPES = ("F32", "BF16", "C64", "BOOL", "U8", "I64", "F8_E4M3")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return a file of the same tensors for each size of a chunk."""
    folder = tmp_path_factory.mktemp("slices")
    paths = {}
    for chunk in CHUNKS:
        file = io.BytesIO()
        compress_source(MemoryCheckpoint(tensors()), file, CompressOptions(chunk_elements=chunk))
        paths[chunk] = folder / f"{chunk}.tc.safetensors"
        paths[chunk].write_bytes(file.getvalue())
    return paths


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    arrays = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            kind = numpy_dtype(dtype)
            values = random.integers(0, 100, shape)
            arrays[f"{dtype} {shape}"] = np.asarray(values).astype(kind)
    return arrays


@st.composite
def slices(draw: st.DrawFn) -> tuple[int, str, Any]:
    shape = draw(st.sampled_from(SHAPES))
    name = f"{draw(st.sampled_from(DTYPES))} {shape}"
    index = draw(hnp.basic_indices(shape, allow_newaxis=False))
    return draw(st.sampled_from(CHUNKS)), name, index


@settings(max_examples=400)
@given(case=slices())
def test_slices_equal_those_of_the_whole_tensor(case, files):
    chunk, name, index = case
    wanted = tensors()[name][index]
    items = index if isinstance(index, tuple) else (index,)
    backwards = any(isinstance(item, slice) and (item.step or 1) < 0 for item in items)
    with tensorcomp.safe_open(files[chunk]) as file:
        if backwards:  # as safetensors has it
            with pytest.raises(ValueError, match="must be a positive integer"):
                file.get_slice(name)[index]
            return
        found = file.get_slice(name)[index]
    assert isinstance(found, np.ndarray)
    assert_equal(found, np.asarray(wanted))
    assert found.flags.writeable


@pytest.mark.parametrize("index", [5, -6, 1 << 70, (9, 0), (-10,)])
def test_a_row_that_is_not_there_is_named(index, files):
    name = "F32 (5, 3, 4)" if not isinstance(index, tuple) else "F32 (9, 4)"
    with tensorcomp.safe_open(files[5]) as file, pytest.raises(IndexError):
        file.get_slice(name)[index]


@pytest.mark.parametrize("index", ["a", 1.5, None, [0, 1], slice("a", "b"), {}])
def test_other_indices_are_refused(index, files):
    with tensorcomp.safe_open(files[5]) as file, pytest.raises(TypeError):
        file.get_slice("F32 (9, 4)")[index]


def test_too_many_indices_are_refused(files):
    with tensorcomp.safe_open(files[5]) as file:
        with pytest.raises(IndexError):
            file.get_slice("F32 (9, 4)")[0, 0, 0]
        with pytest.raises(IndexError):
            file.get_slice("F32 ()")[0]


def test_a_slice_decodes_only_the_chunks_that_it_needs(files, monkeypatch):
    decoded: list[int] = []
    decode = TensorBlob.decode_chunk

    def counted(self: TensorBlob, index: int, out: np.ndarray | None = None) -> np.ndarray:
        decoded.append(index)
        return decode(self, index, out)

    monkeypatch.setattr(TensorBlob, "decode_chunk", counted)
    with tensorcomp.safe_open(files[16]) as file:
        part = file.get_slice("F32 (9, 4)")  # 3 chunks of 4, 4 and 1 rows
        for index, wanted in (
            (0, [0]),
            (8, [2]),
            (slice(3, 5), [0, 1]),
            (slice(None), [0, 1, 2]),
            (slice(5, 5), []),
            (slice(7, 3), []),
            ((slice(4, 8), 2), [1]),
        ):
            decoded.clear()
            part[index]
            assert decoded == wanted, index
        assert part.get_shape() == [9, 4]
        assert part.get_dtype() == "F32"


def test_damage_in_a_chunk_leaves_the_others_readable(files, tmp_path):
    from tensorcomp.checkpoints.safetensors.header import read_header

    data = bytearray(files[16].read_bytes())
    header = read_header(io.BytesIO(data), len(data), "x")
    begin, _ = header.offsets["I64 (9, 4)"]
    shared_and_first = header.data_start + begin + 5
    data[shared_and_first] ^= 0xFF
    path = tmp_path / "x.tc.safetensors"
    path.write_bytes(data)
    with tensorcomp.safe_open(path) as file:
        part = file.get_slice("I64 (9, 4)")
        with pytest.raises(tensorcomp.errors.FormatError, match=r"'I64 \(9, 4\)'.*chunk 0"):
            part[0]
        assert_equal(part[4:], tensors()["I64 (9, 4)"][4:])
