"""Errors carry where they happened, say it once, and pass from process to process."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import tensorcomp
from tensorcomp import save
from tensorcomp.api.load import load
from tensorcomp.api.save import save_file
from tensorcomp.api.verify import verify
from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import (
    CheckpointError,
    CodecError,
    FormatError,
    InfeasibleBudgetError,
    PlanError,
    TensorcompError,
    UnknownCodecError,
    VerificationError,
)
from tensorcomp.planning.budgets import Budget


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, ""),
        ({"path": Path("a") / "b"}, f"{Path('a') / 'b'}: "),
        ({"tensor": "w"}, "tensor 'w': "),
        ({"tensor": ""}, "tensor '': "),
        ({"chunk": 0}, "chunk 0: "),
        ({"path": "b", "tensor": "w\n"}, r"b: tensor 'w\n': "),
        ({"path": "b", "tensor": "w", "chunk": 3}, "b: tensor 'w', chunk 3: "),
    ],
)
def test_the_place_stands_before_the_message(fields, place):
    error = FormatError("is damaged", **fields)
    assert str(error) == place + "is damaged"
    assert error.message == "is damaged"


def test_known_fields_stay_and_are_shown_once():
    error = CheckpointError("is cut short", path="inner", chunk=1)
    assert error.at(path="outer", tensor="w", chunk=2) is error
    assert (error.path, error.tensor, error.chunk) == ("inner", "w", 1)
    assert str(error.at(path="outer")) == "inner: tensor 'w', chunk 1: is cut short"


@pytest.mark.parametrize(
    "error",
    [
        TensorcompError("plain"),
        VerificationError("differs", path="f", tensor="w", chunk=4),
        UnknownCodecError("no codec", codec="x", known=("a", "b")),
        InfeasibleBudgetError("too small", requested_bytes=1, least_bytes=2, protected_bytes=3),
    ],
)
def test_errors_are_copied_and_pickled_whole(error):
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert vars(twin) == vars(error)
        assert str(twin) == str(error)


def test_an_unknown_codec_is_a_fault_of_a_plan_and_of_a_codec():
    with pytest.raises(UnknownCodecError, match="no codec is called 'nonesuch'") as caught:
        parse_tree("fields(exponent=nonesuch)")
    assert isinstance(caught.value, PlanError)
    assert isinstance(caught.value, CodecError)
    assert caught.value.codec == "nonesuch"
    assert "huffman" in caught.value.known


def test_an_impossible_size_says_what_is_possible():
    tensors = {"w": np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)}
    with pytest.raises(InfeasibleBudgetError, match="not possible") as caught:
        save(tensors, budget=Budget(target_size=100))
    error = caught.value
    assert error.requested_bytes == 100
    assert error.protected_bytes is not None
    assert 100 < error.protected_bytes < error.least_bytes
    assert len(save(tensors, budget=Budget(target_size=error.least_bytes))) <= error.least_bytes


def test_an_impossible_size_has_the_numbers_of_its_text():
    moments = np.random.default_rng(0).normal(size=(2, 256, 256)).astype(np.float32)
    tensors = {"mlp.weight": moments[0], "state.0.exp_avg": moments[1]}
    with pytest.raises(InfeasibleBudgetError) as caught:
        save(tensors, budget=Budget(target_size=50_000))
    error = caught.value
    assert error.protected_bytes is not None
    assert f"about {error.least_bytes:,} bytes; " in error.message
    assert f"no budget changes {error.protected_bytes:,} of them" in error.message


def test_damage_names_the_file_the_tensor_and_the_chunk(tmp_path):
    path = tmp_path / "a.tc.safetensors"
    save_file({"w": np.random.default_rng(0).normal(size=5000)}, path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with CompressedFile(path) as file, pytest.raises(FormatError, match="is damaged") as caught:
        list(file.iter_bytes("w"))
    assert (caught.value.path, caught.value.tensor, caught.value.chunk) == (str(path), "w", 0)
    with pytest.raises(FormatError) as caught:
        load(bytes(data))
    assert (caught.value.path, caught.value.tensor) == ("the given bytes", "w")
    assert caught.value.chunk == 0
    assert str(caught.value).count("'w'") == str(caught.value).count("chunk 0") == 1


READERS = {
    "load_file": tensorcomp.load_file,
    "decompress": lambda path: tensorcomp.decompress(path, path.with_name("back.safetensors")),
    "get_tensor": lambda path: tensorcomp.safe_open(path, "numpy").get_tensor("w"),
    "get_slice": lambda path: tensorcomp.safe_open(path, "numpy").get_slice("w")[-1:],
    "load_file, one thread": lambda path: tensorcomp.load_file(path, threads=1),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("rows", [1, 5])
def test_every_reader_names_the_damaged_chunk(reader, rows, tmp_path):
    path = tmp_path / "a.tc.safetensors"
    weights = np.random.default_rng(0).standard_normal((rows, 1 << 18)).astype(np.float32)
    save_file({"w": weights}, path)  # four rows a chunk
    with CompressedFile(path) as file:
        chunk = file.open_tensor("w").grid.count - 1
    assert chunk == rows // 4
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1  # before the index, in the last chunk's payload
    path.write_bytes(data)
    with pytest.raises(FormatError, match="is damaged") as caught:
        READERS[reader](path)
    error = caught.value
    assert (error.path, error.tensor, error.chunk) == (str(path), "w", chunk)
    place = f"{path}: tensor 'w', chunk {chunk}: "
    assert str(error) == place + "the checksum is wrong; it is damaged"
    [check] = verify(path)
    assert (check.name, check.chunk, check.error) == ("w", chunk, str(error))


def test_verify_names_the_chunk_that_differs_from_the_original(tmp_path):
    weights = np.random.default_rng(0).standard_normal((5, 1 << 18)).astype(np.float32)
    path, original = tmp_path / "a.tc.safetensors", tmp_path / "a.safetensors"
    save_file({"w": weights}, path)
    weights[4, 5] += 1
    safetensors.numpy.save_file({"w": weights}, original)
    [check] = verify(path, original)
    assert check.chunk == 1
    assert check.error == f"{path}: tensor 'w', chunk 1: differs from the original"


def test_a_message_quotes_a_part_of_what_a_hostile_file_holds():
    error = FormatError(f"the weight is {'9' * 100_000} of 3")
    assert str(error) == f"the weight is {'9' * 200}… (100,000) of 3"
    error = FormatError("the weights are " + "9 " * 50_000)
    assert len(str(error)) < 4100
    assert str(error).endswith("… (100,016 characters)")


def test_a_message_is_one_printable_line_whatever_it_quotes():
    error = FormatError("of type a\nb\r\x1b[2J\u202e\udcff, é")
    assert error.message == r"of type a b \x1b[2J\u202e\udcff, é"
    str(error).encode()
