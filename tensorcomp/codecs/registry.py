"""Find codecs by id: our own, and those that installed packages announce.

A package adds codecs by an entry point in the group ``tensorcomp.codecs`` whose object is a codec
class; the entry point's name is the codec's id. A third party's codec may not take over an id.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools

from tensorcomp._expressions import suggestion
from tensorcomp._plugins import Plugins
from tensorcomp.codecs.base import Codec, Filter, Serializer, Transform
from tensorcomp.errors import PlanError, UnknownCodecError

GROUP = "tensorcomp.codecs"
_PLUGINS = Plugins(GROUP, "codec", (Transform, Serializer, Filter), PlanError)

# Our own, by family: modules bear the codecs' ids. The order is that of benchmarks.
_MODULES = """
floats.floats entropy.zstd quantize.uniform quantize.trellis quantize.kmeans quantize.affine
quantize.scales quantize.update quantize.rank1 quantize.nf4 floats.cast quantize.ternary
quantize.sign quantize.pq sparse.magnitude
sparse.nm sparse.channel lowrank.svd lowrank.rotate sparse.filter sparse.block sparse.threshold
sparse.topk sparse.randomk sparse.outliers sparse.sparse sparse.live sparse.packed sparse.zeros
quantize.grid quantize.ggml floats.fields floats.groupfloats floats.difference entropy.ans
entropy.bitpack entropy.constant entropy.gaps entropy.huffman entropy.palette entropy.raw
entropy.runlength
"""
_OWN = {name.partition(".")[2]: f"tensorcomp.codecs.{name}" for name in _MODULES.split()}


def own_codecs() -> dict[str, type[Codec]]:
    """Return tensorcomp's own codec classes by id; imports all of them."""
    return {name: codec_class(name) for name in _OWN}


@functools.cache
def codec_class(name: str) -> type[Codec]:
    """Return the class of the codec with this id.

    Raises
    ------
    UnknownCodecError
        If neither tensorcomp nor an installed package has such a codec.
    PlanError
        If several packages have, or the package's object cannot be imported or is not a codec of
        that id.
    """
    if name in _OWN:
        items = vars(importlib.import_module(_OWN[name])).values()
        own: type[Codec] = next(item for item in items if getattr(item, "id", None) == name)
        return own
    found: type[Codec] | None = _PLUGINS.load(name)
    if found is not None:
        return found
    known = codec_ids()
    raise UnknownCodecError(
        f"no codec is called {name[:60]!r}; known: {', '.join(known)}{suggestion(name, known)}",
        codec=name,
        known=tuple(known),
    )


def codec_ids() -> list[str]:
    """Return the ids of all codecs, sorted.

    Third parties' code is not imported.
    """
    return sorted({*_OWN, *_PLUGINS.names()})


@functools.cache
def added_codecs() -> tuple[type[Codec], ...]:
    """Return the codecs of other packages, but for those that cannot be used."""
    found = []
    for name in sorted(_PLUGINS.names() - _OWN.keys()):
        with contextlib.suppress(PlanError):  # naming it in a tree reports why
            found.append(codec_class(name))
    return tuple(found)


@functools.cache
def added_templates(*, lossless: bool) -> tuple[str, ...]:
    """Return the templates of other packages' codecs.

    Of the lossless ones, or of the others.
    """
    found = (codec.templates for codec in added_codecs() if codec.lossless == lossless)
    return tuple(itertools.chain.from_iterable(found))
