"""How a case of the golden chunks is coded: chunk by chunk, as the writer of files does it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from golden_cases import base_of

from tensorcomp.codecs import parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import CODED, ChunkCoder
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, chunk_grid
from tensorcomp.dtypes import dtype_name
from tensorcomp.planning.lossless import sample_rows

Source = Callable[[], np.ndarray]


@dataclass(frozen=True)
class ChunkCase:
    """A tree, and the tensors that it codes.

    Parameters
    ----------
    tree : str
    sources : tuple of callable
    """

    tree: str
    sources: tuple[Source, ...]


def cases_of(
    trees: Mapping[str, Sequence[str]], sources: Mapping[str, Source]
) -> Iterator[tuple[str, ChunkCase]]:
    """Yield a case for each source that is named for a tree."""
    for tree, names in trees.items():
        for name in names:
            yield f"{tree}: {name}", ChunkCase(tree, (sources[name],))


def code(case: ChunkCase) -> dict[str, object]:
    """Return the digests of a case: of its tensors, of all that is stored, of what is decoded.

    Beside them the bytes stored, and how many chunks are stored as they are since the tree makes
    them no smaller. What is decoded is told of lossy trees only: others give the tensors back.
    """
    source, stored, decoded = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()
    size = raw = 0
    for make in case.sources:
        array = make()
        source.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        for part, back in _coded(parse_tree(case.tree), array):
            stored.update(len(part).to_bytes(8, "little") + part)
            decoded.update(back)
            size += len(part)
            raw += len(back) > 0 and part[0] != CODED
    found: dict[str, object] = {"bytes": size, "raw": raw}
    for name, digest in (("source", source), ("stored", stored), ("decoded", decoded)):
        found[name] = digest.hexdigest()
    if parse_tree(case.tree).lossless:
        assert found.pop("decoded") == found["source"]
    return found


def _coded(tree: Node, array: np.ndarray) -> Iterator[tuple[bytes, bytes]]:
    """Yield what the chunks share, and each payload, with the bytes that it decodes to."""
    grid = chunk_grid(dtype_name(array.dtype), array.shape, array.nbytes, CHUNK_ELEMENTS)
    seen = array.view(grid.dtype).reshape(grid.shape)
    bounds = [grid.bounds(index) for index in range(grid.count)]
    roots = tree.codec.per_chunk(seen, bounds)
    base = base_of(seen) if tree.codec.uses_reference else None
    coder = ChunkCoder.alone((tree,))
    if grid.count > 1:
        known = None if base is None else sample_rows(base, CHUNK_ELEMENTS)
        coder = ChunkCoder.learn((tree,), sample_rows(seen, CHUNK_ELEMENTS), known)
        yield coder.pack(), b""
        coder = ChunkCoder.unpack((tree,), coder.pack())
    for (start, stop), root in zip(bounds, roots, strict=True):
        chunk = seen[start:stop]
        rows = None if base is None else base[start:stop]
        payload = join(coder.encode(chunk, Node(root, tree.children), rows))
        back = coder.decode(np.frombuffer(payload, np.uint8), spec_of(chunk), None, rows)
        yield payload, back.tobytes()
