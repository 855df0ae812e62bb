import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from checkpoint_files import assert_equal, digest, errors_of, small_model, write_safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorcomp
from tensorcomp.api.load import load
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.progress import Progress
from tensorcomp.testing import nasty_arrays

DTYPES = (
    *("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"),
    *("F16", "BF16", "F32", "F64", "C64", "C128"),
    *("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"),
)
UNKNOWN = ("F4", "F6_E2M3", "F99", "I4")


def packed(tensors: Mapping[str, Any], metadata: Any = None, **options: Any) -> bytes:
    """Return the compressed file of tensors, having checked the size that is reported."""
    file = io.BytesIO()
    source = MemoryCheckpoint(tensors, metadata)
    report = compress_source(source, file, CompressOptions(**options))
    assert report.output_bytes == len(file.getvalue())
    return file.getvalue()


def assert_loaded(data: bytes, tensors: Mapping[str, np.ndarray], threads: int) -> None:
    loaded = load(data, threads=threads)
    assert sorted(loaded) == sorted(tensors)
    for name, array in tensors.items():
        assert_equal(loaded[name], array)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = numpy_dtype(draw(st.sampled_from(DTYPES)))
    assert dtype is not None
    shape = tuple(draw(st.lists(st.integers(0, 12), max_size=4)))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    kind = draw(st.sampled_from(["bits", "few", "zeros", "normal"]))
    if kind == "normal" and dtype.kind in "fV":
        return random.standard_normal(shape).astype(dtype)
    data = np.frombuffer(random.bytes(count), np.uint8).copy()
    if kind == "zeros":
        data[:] = 0
    elif kind == "few":
        data %= 3
    if dtype.kind == "b":
        data &= 1
    return data.view(dtype).reshape(shape)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda name: name != "__metadata__"
)
METADATA = st.none() | st.dictionaries(NAMES, NAMES, max_size=3)


@settings(max_examples=150)
@given(
    tensors=st.dictionaries(NAMES, arrays(), max_size=5),
    metadata=METADATA,
    chunk=st.sampled_from([1, 7, 64, 1 << 20]),
    effort=st.sampled_from(EFFORTS),
)
def test_tensors_in_memory_come_back(tensors, metadata, chunk, effort):
    assert_loaded(packed(tensors, metadata, effort=effort, chunk_elements=chunk), tensors, 1)


@settings(max_examples=80)
@given(
    tensors=st.dictionaries(
        NAMES,
        arrays()
        | st.tuples(st.sampled_from(UNKNOWN), st.binary(max_size=60)).map(
            lambda pair: (
                pair[0],
                (len(pair[1]) // 3 * 4,) if pair[0].startswith("F6") else (2 * len(pair[1]),),
                pair[1][: len(pair[1]) // 3 * 3] if pair[0].startswith("F6") else pair[1],
            )
        ),
        max_size=5,
    ),
    metadata=METADATA,
    padding=st.integers(0, 3),
)
def test_a_safetensors_file_comes_back_in_every_byte(tensors, metadata, padding, tmp_path_factory):
    folder = tmp_path_factory.mktemp("x")
    path = write_safetensors(folder / "x.safetensors", tensors, metadata)
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")  # a header that the library would not write
    path.write_bytes(
        (end - 8 + 8 * padding).to_bytes(8, "little") + raw[8:end] + b" " * 8 * padding + raw[end:]
    )
    done = tensorcomp.compress(path, threads=1)
    restored = tensorcomp.decompress(done.path, folder / "again.safetensors", threads=1)
    assert digest(restored) == digest(path)
    assert not errors_of(done.path, path)


def test_an_empty_file_comes_back(tmp_path):
    for number, metadata in enumerate((None, {}, {"format": "pt"})):
        path = write_safetensors(tmp_path / f"{number}.safetensors", {}, metadata)
        done = tensorcomp.compress(path)
        assert digest(tensorcomp.decompress(done.path, tmp_path / "again", force=True)) == digest(
            path
        )
        assert tensorcomp.load_file(done.path) == {}


@pytest.mark.parametrize("effort", EFFORTS)
def test_threads_and_runs_give_the_same_bytes(effort, tmp_path):
    tensors = {name.replace(" ", "_"): array for name, array in nasty_arrays().items()}
    written = set()
    for threads in (1, 2, 5):
        for chunk in (1000, 1 << 20):
            asked = {"effort": effort, "threads": threads, "chunk_elements": chunk}
            written.add(packed(tensors, **asked))
    assert len(written) == 2  # one a chunk size
    for data in written:
        for threads in (1, 3):
            assert_loaded(data, tensors, threads)


@pytest.mark.parametrize("elements", [1, 2, 63, 64, 65, 1999, 2000, 2001, 1 << 22])
def test_chunks_end_anywhere(elements):
    random = np.random.default_rng(3)
    tensors = {
        "matrix": random.standard_normal((50, 40)).astype(np.float32),
        "vector": random.standard_normal(2000).astype(np.float16),
        "complex": random.standard_normal(500).astype(np.complex64).reshape(5, 100),
        "cube": random.integers(-5, 5, (10, 10, 20)).astype(np.int8),
    }
    assert_loaded(packed(tensors, chunk_elements=elements, threads=2), tensors, 2)


@pytest.mark.parametrize("elements", [0, -1, (1 << 22) + 1])
def test_impossible_chunks_are_refused(elements):
    with pytest.raises(ValueError, match="chunk_elements from 1 to"):
        CompressOptions(chunk_elements=elements)


def test_chunks_with_and_without_a_grid_share_a_tensor():
    random = np.random.default_rng(4)
    array = (np.rint(random.standard_normal((400, 50)) * 20) / 64).astype(np.float32)
    array[250:] = random.standard_normal((150, 50)) / 3
    assert_loaded(packed({"x": array}, chunk_elements=1000), {"x": array}, 1)


def test_report_counts_every_byte(tmp_path):
    path = write_safetensors(tmp_path / "x.safetensors", small_model())
    done = tensorcomp.compress(path)
    (report,) = done.files.values()
    assert report.input_bytes == path.stat().st_size
    assert report.output_bytes == done.path.stat().st_size
    assert [found.name for found in report.summary().tensors] == list(small_model())
    assert sum(found.stored for found in report.summary().tensors) < report.output_bytes


def test_duplicates_are_stored_once_and_come_back_apart(tmp_path):
    random = np.random.default_rng(6)
    once = {"a": random.standard_normal((200, 100)).astype(np.float32)}
    copies = {
        **once,
        "b": once["a"].copy(),
        "reshaped": once["a"].reshape(100, 200),
        "flat": once["a"].reshape(-1),
        "other type": once["a"].view(np.int32),
    }
    single = len(tensorcomp.save(once))
    (size,) = {len(tensorcomp.save({**once, "b": once["a"].copy()}))}
    assert size - single < 200
    path = write_safetensors(tmp_path / "x.safetensors", copies)
    done = tensorcomp.compress(path)
    (report,) = done.files.values()
    same = {found.name: found.same_as for found in report.summary().tensors}
    assert same == {"a": None, "b": "a", "reshaped": "a", "flat": "a", "other type": None}
    assert digest(tensorcomp.decompress(done.path, tmp_path / "again")) == digest(path)
    with tensorcomp.safe_open(done.path) as file:
        for name, array in copies.items():
            assert_equal(file.get_tensor(name), array)
            part = file.get_slice(name)
            assert part.get_shape() == list(array.shape)
            assert_equal(part[3:50:7], array[3:50:7])
            assert_equal(part[-4:], array[-4:])


def test_a_digest_that_only_begins_alike_is_no_duplicate(monkeypatch):
    from tensorcomp.pipeline import prepare as jobs

    class Same:
        @staticmethod
        def xxh3_128_hexdigest(_data: object) -> str:
            return "0" * 32

        xxh3_64_intdigest = staticmethod(jobs.xxhash.xxh3_64_intdigest)
        xxh3_128 = jobs.xxhash.xxh3_128

    monkeypatch.setattr(jobs, "xxhash", Same)
    tensors = {"a": np.arange(40), "b": np.arange(40)[::-1]}
    file = io.BytesIO()
    report = compress_source(MemoryCheckpoint(tensors), file)
    assert [found.same_as for found in report.summary().tensors] == [None, None]


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_counts_every_byte_once(threads):
    class Counted(Progress):
        def __init__(self) -> None:
            self.bytes_of: Counter[str] = Counter()

        def advance(self, name: str, nbytes: int) -> None:
            self.bytes_of[name] += nbytes

    tensors = {"a": np.arange(5000), "b": np.arange(5000), "c": np.ones(3), "none": np.empty(0)}
    options = CompressOptions(threads=threads, chunk_elements=1999)
    compress_source(MemoryCheckpoint(tensors), io.BytesIO(), options, progress := Counted())
    assert progress.bytes_of == {name: array.nbytes for name, array in tensors.items()}


def test_nothing_given_is_changed():
    tensors = {name: array.copy() for name, array in nasty_arrays().items()}
    before = {name: array.tobytes() for name, array in tensors.items()}
    metadata = {"a": "b"}
    tensorcomp.save(tensors, metadata)
    assert {name: array.tobytes() for name, array in tensors.items()} == before
    assert metadata == {"a": "b"}
