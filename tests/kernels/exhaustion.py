"""Refuse each block of scratch memory of every kernel in turn; print how many were refused."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from checked import use_checked

use_checked()

import corpus  # noqa: E402

from tensorcomp.kernels import native  # noqa: E402

MOST_CALLS = 20  # tried of each kernel
tried, refused = Counter[str](), Counter[str]()


def exhausting(name: str, kernel: Callable[..., int]) -> Callable[..., int]:
    """Return a kernel that is called without its first block, then its second, until it works."""

    def call(*args: Any) -> int:
        tried[name] += 1
        for block in itertools.count() if tried[name] <= MOST_CALLS else ():
            native.fail_allocation(block)
            try:
                kernel(*map(corpus.copy_of, args))  # what is refused may have been overwritten
            except MemoryError:
                refused[name] += 1
            else:
                break
        native.fail_allocation(-1)
        return int(kernel(*args))

    call.__doc__ = kernel.__doc__
    return call


for name in corpus.kernels():
    setattr(native, name, exhausting(name, getattr(native, name)))
corpus.calls(corpus.payloads())
print(refused.total())
