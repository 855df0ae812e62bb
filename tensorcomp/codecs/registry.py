"""Which codec an id names: our own, and those that installed packages announce.

A package adds codecs by an entry point in the group ``tensorcomp.codecs`` whose object is a codec
class; the entry point's name is the codec's id. A third party's codec may not take over an id.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tensorcomp import codecs
from tensorcomp._expressions import suggestion
from tensorcomp.codecs.base import Codec, Filter, Serializer, Transform
from tensorcomp.errors import PlanError, UnknownCodecError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

GROUP = "tensorcomp.codecs"

# Our own, by id: the name of each class in `tensorcomp.codecs`, which imports it when it is asked.
_OWN = {
    "affine": "Affine",
    "ans": "Ans",
    "bitpack": "Bitpack",
    "block": "Block",
    "cast": "Cast",
    "channel": "Channel",
    "constant": "Constant",
    "fields": "Fields",
    "filter": "FilterRows",
    "floats": "Floats",
    "gaps": "Gaps",
    "grid": "Grid",
    "groupfloats": "GroupFloats",
    "huffman": "Huffman",
    "kmeans": "Kmeans",
    "live": "Live",
    "magnitude": "Magnitude",
    "nf4": "Nf4",
    "nm": "NM",
    "packed": "Packed",
    "palette": "Palette",
    "pq": "Pq",
    "randomk": "RandomK",
    "raw": "Raw",
    "rotate": "Rotate",
    "runlength": "Runlength",
    "sign": "Sign",
    "sparse": "Sparse",
    "svd": "Svd",
    "ternary": "Ternary",
    "threshold": "Threshold",
    "topk": "TopK",
    "trellis": "Trellis",
    "uniform": "Uniform",
    "zeros": "Zeros",
    "zstd": "Zstd",
}


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
        own: type[Codec] = getattr(codecs, _OWN[name])
        return own
    found = [entry for entry in _announced() if entry.name == name]
    if len({entry.value for entry in found}) > 1:
        homes = ", ".join(sorted(entry.value for entry in found))
        raise PlanError(f"several packages have a codec {name!r} ({homes}); keep one of them")
    if found:
        return _checked(name, _loaded(found[0]))
    known = codec_ids()
    raise UnknownCodecError(
        f"no codec is called {name[:60]!r}; known: {', '.join(known)}{suggestion(name, known)}",
        codec=name,
        known=tuple(known),
    )


def codec_ids() -> list[str]:
    """Return the ids of all codecs, sorted, without importing third parties' code."""
    return sorted({*_OWN, *(entry.name for entry in _announced())})


def _announced() -> EntryPoints:
    from importlib.metadata import entry_points  # which imports packages for mail

    return entry_points(group=GROUP)


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise PlanError(f"the codec {entry.name!r} cannot be imported: {error}") from error


def _checked(name: str, found: object) -> type[Codec]:
    kinds = (Transform, Serializer, Filter)
    if not (isinstance(found, type) and issubclass(found, kinds)):
        raise PlanError(f"the entry point {name!r} gives {found!r}, which is no codec class")
    own = getattr(found, "id", None)
    if own != name:
        raise PlanError(f"the entry point {name!r} gives a codec whose id is {own!r}")
    return found
