"""What the kernels of `floats` and `groupfloats` say of a chunk that they cannot decode."""

from __future__ import annotations

SHORTEST = 8  # bytes of any chunk
PADDING = 8  # bytes behind its streams, planes or zeros
WRONG = {
    -1: "the side information is damaged",
    -2: "the code lengths make no prefix code",
    -3: "its streams and planes have other sizes than its bytes",
    -4: "a stream does not end where it should",
}
