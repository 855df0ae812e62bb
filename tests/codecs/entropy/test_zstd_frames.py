import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp._zstd_frames import ZstdError, compress, decompress, zstd

TEXT = b"weights and biases " * 40


@given(st.binary(max_size=300), st.integers(1, 22), st.booleans(), st.binary(max_size=40))
def test_what_is_compressed_comes_back(plain, level, checksum, like):
    frame = compress(plain, level, checksum=checksum, like=like)
    assert decompress(frame, len(plain), like=like) == plain
    assert zstd.get_frame_info(frame).decompressed_size == len(plain)


def test_a_similar_text_saves_bytes():
    assert len(compress(TEXT, 19, like=TEXT)) < len(compress(TEXT, 19)) < len(TEXT)


def test_frames_that_are_too_large_are_refused_before_they_are_decoded():
    with pytest.raises(ZstdError, match="claims 760 bytes, at most 759"):
        decompress(compress(TEXT, 3), len(TEXT) - 1)
    compressor = zstd.ZstdCompressor()
    unsized = compressor.compress(TEXT) + compressor.flush()
    with pytest.raises(ZstdError, match="does not say the size"):
        decompress(unsized, len(TEXT))


@pytest.mark.parametrize("checksum", [False, True])
def test_damaged_frames_are_errors(checksum):
    frame = compress(TEXT, 3, checksum=checksum)
    for damaged in (
        b"",
        b"no frame",
        b"\x50\x2a\x4d\x18\0\0\0\0",
        frame[:-1],
        frame[:9],
        frame + b"x",
        frame + frame,
    ):
        with pytest.raises(ZstdError):
            decompress(damaged, len(TEXT))
