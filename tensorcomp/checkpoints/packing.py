"""Small compressed texts for the attachments of a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import zstandard

from tensorcomp.checkpoints.checkpoint import Recipe
from tensorcomp.errors import FormatError

MAX_UNPACKED_BYTES = 1 << 30  # no structure comes near it; a damaged claim may
_INLINE_CHARACTERS = 1024
_LEVEL = 19
_FRAME = "structure"


def pack(data: bytes, *, like: bytes = b"") -> bytes:
    """Compress `data` with zstd, given `like`, a similar text that the reader also has."""
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=_dictionary(like)).compress(data)


def unpack(packed: bytes, *, limit: int, like: bytes = b"") -> bytes:
    """Undo `pack`.

    Raises
    ------
    FormatError
        If the bytes are damaged or claim to unpack to more than `limit` bytes.
    """
    try:
        size = zstandard.frame_content_size(packed)
        if not 0 <= size <= limit:
            raise FormatError(f"a recipe's attachment claims {size} bytes; at most {limit} may be")
        return zstandard.ZstdDecompressor(dict_data=_dictionary(like)).decompress(packed)
    except zstandard.ZstdError as error:
        raise FormatError(f"a recipe's attachment is damaged: {error}") from error


def pack_recipe(
    kind: str, structure: Mapping[str, Any], attachments: Mapping[str, bytes] | None = None
) -> Recipe:
    """Make a recipe whose structure is an attachment of its own where that saves space."""
    text = json.dumps(structure, separators=(",", ":"))
    if len(text) <= _INLINE_CHARACTERS:
        return Recipe(kind, structure, attachments or {})
    return Recipe(kind, {}, {_FRAME: pack(text.encode()), **(attachments or {})})


def unpack_structure(recipe: Recipe) -> Mapping[str, Any]:
    """Return the structure that `pack_recipe` was given.

    Raises
    ------
    FormatError
        If the attachment that holds it is damaged.
    """
    if _FRAME not in recipe.attachments:
        return recipe.structure
    try:
        structure = json.loads(unpack(recipe.attachments[_FRAME], limit=MAX_UNPACKED_BYTES))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a recipe's structure is not valid JSON: {error}") from error
    if not isinstance(structure, dict):
        raise FormatError("a recipe's structure is not a JSON object")
    return structure


def _dictionary(content: bytes) -> zstandard.ZstdCompressionDict | None:
    # Below 8 bytes zstd takes no dictionary.
    if len(content) < 8:
        return None
    return zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
