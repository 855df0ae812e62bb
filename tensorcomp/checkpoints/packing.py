"""Small compressed texts for the attachments of a template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tensorcomp._zstd_frames import ZstdError, compress, decompress
from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.errors import FormatError

MAX_UNPACKED_BYTES = 1 << 30  # no structure comes near it; a damaged claim may
_INLINE_CHARACTERS = 1024
_LEVEL = 19
_FRAME = "structure"


def pack(data: bytes, *, like: bytes = b"") -> bytes:
    """Compress bytes, given `like`, a similar text that the reader has."""
    return compress(data, _LEVEL, like=like)


def unpack(packed: bytes, *, limit: int, like: bytes = b"") -> bytes:
    """Undo `pack`.

    Raises `FormatError` if the bytes are damaged or claim to unpack to more than `limit` bytes.
    """
    try:
        return decompress(packed, limit, like=like)
    except ZstdError as error:
        raise FormatError(f"a template's attachment is damaged: {error}") from error


def pack_template(
    kind: str, structure: Mapping[str, Any], inline: Mapping[str, Any] = MappingProxyType({})
) -> SourceTemplate:
    """Make a template; a long structure becomes an attachment.

    What is `inline` does not.
    """
    text = json.dumps(structure, separators=(",", ":"))
    if len(text) <= _INLINE_CHARACTERS:
        return SourceTemplate(kind, {**inline, **structure})
    return SourceTemplate(kind, inline, {_FRAME: pack(text.encode())})


def unpack_structure(template: SourceTemplate) -> Mapping[str, Any]:
    """Return a template's structure, unpacked if it is an attachment."""
    if _FRAME not in template.attachments:
        return template.structure
    try:
        structure = json.loads(unpack(template.attachments[_FRAME], limit=MAX_UNPACKED_BYTES))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a template's structure is not valid JSON: {error}") from error
    if not isinstance(structure, dict):
        raise FormatError("a template's structure is not a JSON object")
    return structure
