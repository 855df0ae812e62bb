"""What the fuzzer starts from: sound payloads, and the calls of kernels that decode them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tensorcomp
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import fit
from tensorcomp.container.blob import ChunkCoder
from tensorcomp.errors import NotRepresentable
from tensorcomp.kernels import native
from tensorcomp.testing import nasty_arrays
from tensorcomp.testing.arrays import reference_of

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden" / "v9").glob("*.tc.safetensors"))
# Beside the golden files: what they have too little of, and arrays without planes.
TREES = (
    "groupfloats", 'groupfloats(4, 2, "columns")', "groupfloats(0, groups=1)", "floats",
    "floats(0, contexts=1)", "floats(4, contexts=32)", "huffman", "huffman(contexts=8)", "ans",
    "ans(contexts=16, states=12)", "ans(contexts=8, trellis=8)", "ans(contexts=4, bypass=true)",
    "bitpack", "runlength", "gaps", "zeros", "sparse", "fields", "palette", "affine", "grid",
    "uniform(0.01)", "trellis(0.01)", "scales", "scales(axis=0)", "nm(2, 4)",
    "packed(1, 16)", "kmeans(3)", "magnitude(0.9)", "difference", "difference(2, levels=false)",
    "update",
)  # fmt: skip
ARRAYS = (
    "weights float32", "rows of three", "rows and columns scaled", "random bits float16",
    "geometric uint16", "one rare symbol of many", "two-sided", "wide alphabet", "half zeros",
    "fp32 that holds fp16 in some rows", "int8 grid, a scale a row", "runs", "rare marks",
    "positions", "zeros of both signs", "one element", "random bool",
)  # fmt: skip
MOST_BYTES = 6 << 10  # of an array: larger ones are only slower
MOST_CALLS = 40  # kept of a kernel


@dataclass(frozen=True)
class Payload:
    """A chunk's bytes, and what decodes them to an array of a shape and dtype.

    With its reference if it has one.
    """

    coder: ChunkCoder
    shape: tuple[int, ...]
    dtype: np.dtype
    data: bytes
    reference: np.ndarray | None = None

    def decode(self, data: bytes) -> None:
        """Decode these bytes instead of its own."""
        out = np.empty(self.shape, self.dtype)
        self.coder.decode_into(np.frombuffer(data, np.uint8), out, self.reference)


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter as table.h has it."""

    hostile: bool  # ~
    written: bool  # &
    optional: bool  # ?
    kind: str  # u8 … f64, a letter, or int, uint, count, float
    shape: tuple[str, ...]


def parameters_of(kernel: str) -> list[Parameter]:
    """Read a kernel's line of table.h."""
    found = []
    for text in getattr(native, kernel).__doc__.split():
        kind = re.match(r"[~&]*(\w+)", text)
        shape = re.search(r"\[(.*)\]", text)
        sizes = tuple(shape[1].split(",")) if shape else ()
        assert kind is not None, text
        found.append(Parameter("~" in text, "&" in text, "?" in text, kind[1], sizes))
    return found


def kernels() -> list[str]:
    """Return the names of all kernels."""
    functions = {name: value for name, value in vars(native).items() if callable(value)}
    return [name for name, value in functions.items() if name[0] != "_" and value.__doc__]


def hostile_kernels() -> dict[str, list[Parameter]]:
    """Return the kernels with a parameter that a file fills."""
    table = {name: parameters_of(name) for name in kernels()}
    return {name: line for name, line in table.items() if any(p.hostile for p in line)}


def payloads() -> list[Payload]:
    """Return the chunks of the golden trees, and some that are encoded now."""
    found: list[Payload] = []
    inner = ChunkCoder.decode_into

    def record(
        self: ChunkCoder,
        payload: np.ndarray,
        out: np.ndarray,
        reference: np.ndarray | None = None,
    ) -> None:
        found.append(Payload(self, out.shape, out.dtype, payload.tobytes(), reference))
        inner(self, payload, out, reference)

    ChunkCoder.decode_into = record
    try:
        for path in GOLDEN:
            if path.name.startswith("tree_"):
                tensorcomp.load_file(path, threads=1)
    finally:
        ChunkCoder.decode_into = inner
    return found + list(_encoded())


def _encoded() -> Iterator[Payload]:
    nasty = nasty_arrays()
    arrays = [cut for name in ARRAYS if (cut := _cut(readable(nasty[name]))).size]
    for tree in map(parse_tree, TREES):
        for array in arrays:
            known = reference_of(tree, array)
            try:
                coder = ChunkCoder((tree,), (fit(tree, array, known),))
                data = join(coder.encode(array, None, known))
            except NotRepresentable:
                continue
            spec = spec_of(array)
            yield Payload(coder, spec.shape, spec.dtype, data, known)


def _cut(array: np.ndarray) -> np.ndarray:
    """Return the first rows."""
    rows = max(MOST_BYTES * len(array) // array.nbytes, 1) if array.nbytes else 0
    return np.ascontiguousarray(array[:rows])


Call = tuple[Any, ...]


def calls(found: list[Payload]) -> dict[str, list[Call]]:
    """Decode payloads, and return the arguments of the calls of each hostile kernel."""
    recorded: dict[str, list[Call]] = {name: [] for name in hostile_kernels()}
    kernels = {name: getattr(native, name) for name in recorded}

    def recording(name: str) -> Callable[..., int]:
        def call(*args: Any) -> int:
            recorded[name].append(tuple(map(copy_of, args)))
            return int(kernels[name](*args))

        return call

    for name in recorded:
        setattr(native, name, recording(name))
    try:
        for payload in found:
            payload.decode(payload.data)
    finally:
        for name, kernel in kernels.items():
            setattr(native, name, kernel)
    recorded["gradients_scatter_add"].append(
        (np.arange(0, 60, 3), np.ones(20, np.float32), 0.5, np.zeros(60, np.float32))
    )
    return {name: _chosen(all_calls) for name, all_calls in recorded.items()}


def copy_of(argument: Any) -> Any:
    """Return a copy of an argument that is an array, or bytes; any other as it is."""
    number = argument is None or isinstance(argument, int | float | np.generic)
    return argument if number else np.array(memoryview(argument))


def _chosen(all_calls: list[Call]) -> list[Call]:
    """Return calls spread over those of the kernel, from the smallest on."""
    size = [sum(a.nbytes for a in call if isinstance(a, np.ndarray)) for call in all_calls]
    order = np.argsort(size, kind="stable")
    small = [int(i) for i in order if size[i] <= 8 * MOST_BYTES] or [int(i) for i in order[:1]]
    step = max(len(small) // MOST_CALLS, 1)
    return [all_calls[i] for i in small[::step]]
