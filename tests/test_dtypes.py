"""One table relates the dtypes of safetensors, NumPy, ml_dtypes and torch."""

import numpy as np
import pytest
import safetensors.torch
import torch
from dtype_names import NAMES
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from tensorcomp.dtypes import (
    _BLOCKS,
    block_size,
    common_name,
    dtype_bits,
    dtype_name,
    holds_floats,
    numpy_dtype,
    torch_dtype,
    torch_dtype_name,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_to_all_libraries_and_back(name):
    dtype = numpy_dtype(name)
    assert dtype is not None
    assert dtype.name == common_name(name)
    assert 8 * dtype.itemsize == dtype_bits(name)
    assert dtype_name(dtype) == name
    assert holds_floats(dtype) == (name.startswith(("F", "BF")))
    found = torch_dtype(name)
    assert found is not None
    assert torch_dtype_name(found) == name
    assert 8 * found.itemsize == dtype_bits(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "C128"])  # it knows C64 only
def test_safetensors_gives_the_same_names(name):
    file = safetensors.torch.save({"a": torch.zeros(2, dtype=torch_dtype(name))})
    assert f'"dtype":"{name}"'.encode() in file


@pytest.mark.parametrize(
    ("name", "bits"), [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("Q9", None)]
)
def test_what_arrays_cannot_hold_has_a_size_at_most(name, bits):
    assert dtype_bits(name) == bits
    assert common_name(name) is None
    assert numpy_dtype(name) is None
    assert torch_dtype(name) is None


def test_blocks_have_the_sizes_that_ggml_gives_them():
    for name, size in _BLOCKS.items():
        assert GGML_QUANT_SIZES[GGMLQuantizationType[name]] == size == block_size(name)
        assert dtype_bits(name) is numpy_dtype(name) is None
    assert block_size("F32") is None


def test_byte_order_and_spelling_do_not_count():
    for spelling in (">i4", "<i4", "intc", np.int32):
        assert dtype_name(np.dtype(spelling)) == "I32"
    assert dtype_name(np.dtype("q")) == dtype_name(np.dtype("l")) == "I64"
    assert numpy_dtype("I64") == np.dtype("<i8")


@pytest.mark.parametrize("dtype", ["S3", "O", "M8[s]", "longdouble", "f4,i4", "2f4"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match="no safetensors equal; use one of BOOL, U8"):
        dtype_name(np.dtype(dtype))


def test_dtypes_of_torch_alone_have_no_name():
    assert torch_dtype_name(torch.quint8) is None
