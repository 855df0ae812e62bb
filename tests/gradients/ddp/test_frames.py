import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.ddp import frames
from tensorcomp.gradients.payload.decoded import EmptyGradient


def _framed(payloads: list[bytes], flags: int = 0, step: int = 3, schema: int = 9) -> np.ndarray:
    head = frames.head(flags, step, schema, payloads)
    return np.frombuffer(b"".join([head, *payloads]), np.uint8)


@given(
    st.lists(st.binary(max_size=20), max_size=6),
    st.integers(0, 3),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_a_frame_is_read_as_it_was_made(payloads, flags, step, schema):
    frame = frames.read(_framed(payloads, flags, step, schema), 5)
    assert [payload.tobytes() for payload in frame.payloads] == payloads
    assert (frame.flags, frame.step, frame.schema) == (flags, step, schema)


def test_a_head_takes_28_bytes_and_4_for_each_payload():
    assert len(frames.head(0, 0, 0, [])) == 28
    assert len(frames.head(0, 0, 0, [b"abc", b""])) == 36


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:10], "10 bytes, which are no frame"),
        (lambda data: np.concatenate([data[1:], data[:1]]), "no frame of version 1"),
        (lambda data: data[:30], "ends in its head"),
        (lambda data: data[:-1], "other lengths"),
        (lambda data: np.concatenate([data, data[:1]]), "other lengths"),
    ],
)
def test_what_is_no_frame_is_refused(change, message):
    with pytest.raises(GradientError, match=message) as caught:
        frames.read(change(_framed([b"abc", b"de"])), 2)
    assert "rank 2" in str(caught.value)


class _Reader:
    """Return who sent a payload."""

    def receive(self, payload: Payload) -> int:
        return payload.spec.worker


def test_a_payload_is_decoded_as_of_its_sender():
    spec = GradientSpec("w", (3,), worker=1)
    data = np.ones(2, np.uint8)
    assert frames.decode(_Reader(), spec, data, 2) == 2
    assert isinstance(frames.decode(_Reader(), spec, data[:0], 2), EmptyGradient)
