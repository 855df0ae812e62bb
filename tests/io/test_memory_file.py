"""`MemoryFile` does what `io.BytesIO` does, and becomes bytes."""

import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.io.memory_file import MemoryFile

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.binary(max_size=60)),
        st.tuples(st.just("seek"), st.integers(0, 300)),
        st.tuples(st.just("read"), st.integers(0, 100)),
    ),
    max_size=20,
)


@given(st.integers(0, 100), STEPS)
def test_it_is_a_file(capacity, steps):
    file, wanted = MemoryFile(capacity), io.BytesIO()
    for name, argument in steps:
        assert getattr(file, name)(argument) == getattr(wanted, name)(argument)
    assert file.to_bytes() == wanted.getvalue()


def test_it_takes_arrays_and_grows_past_large_pages():
    array = np.arange(1 << 20, dtype=np.uint32)
    file = MemoryFile(10)
    assert file.write(array) == array.nbytes
    assert file.write(array[:5]) == 20
    content = file.to_bytes()
    assert type(content) is bytes
    assert content == array.tobytes() + array[:5].tobytes()
    assert hash(content) == hash(bytes(bytearray(content)))


def test_an_unused_file_is_let_go():
    for _ in range(100):
        MemoryFile(1 << 30)  # a leak would be 100 GB of addresses
    assert MemoryFile(0).to_bytes() == b""


def test_types_that_other_libraries_set_do_no_harm():
    import ctypes

    shared = [
        ctypes.pythonapi.PyBytes_FromStringAndSize,
        ctypes.pythonapi._PyBytes_Resize,
        ctypes.pythonapi.Py_DecRef,
    ]
    before = [(function.argtypes, function.restype) for function in shared]
    try:
        for function in shared:
            function.argtypes, function.restype = (ctypes.py_object,), ctypes.py_object
        file = MemoryFile(4)
        file.write(b"more than was expected")
        assert file.to_bytes() == b"more than was expected"
    finally:
        for function, (arguments, result) in zip(shared, before, strict=True):
            function.argtypes, function.restype = arguments, result
