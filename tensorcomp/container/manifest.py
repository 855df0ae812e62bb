"""Read and write the manifest: how blobs decode and the file is rebuilt.

In the file it is the string ``__metadata__["tensorcomp"]``, itself a JSON object of two members:
``format``, the version of everything in the file, and ``manifest``, the JSON below compressed by
zstd, with a checksum, in base64. (Plain JSON, with its quotes escaped, took 1 part in 1,500 of a
bf16 model.)

::

    {"chunk_elements": 1048576,
     "trees": [{"tree": "fields(…)", "why": "…"}, …],
     "tensors": {name: {"dtype": "F32", "shape": [384, 384], "role": "attention",
                        "tree": 0, "fallback": 1,
                        "digest": "<of the decoded bytes>"}
                 or     {"dtype": …, "shape": …, "role": …, "same_as": name}
                 or     {"dtype": …, "shape": …, "role": …, "bundle": name}, …},
     "bases": [{"name": "base.safetensors", "nbytes": …, "digest": "…"}, …],
     "bundles": {name: {"dtype": "F32", "shape": [707, 128], "role": "", "tree": …,
                        "fallback": …, "digest": …}, …},
     "aliases": {name: name, …},
     "source": {"kind": "safetensors", "nbytes": …, "structure": {…}, "attachments": {…}}}

``tensors`` has the source's order. A digest is the first 16 hexadecimal digits of XXH3-128.
``attachments`` are base64.

A tensor that lost anything has ``"error": [rel-L2, max |x - x̂|]`` too, measured on what is
decoded, ``"row_error"``, the largest rel-L2 of a row, if that row lost half of its norm or more and
at least twice the share that the tensor lost, ``"output_error"``, the relative error of what its
layer returns, if that was measured, and ``"bound": {"max_rel_l2": …}`` where one was promised; its
digest is that of the decoded bytes. A tensor whose chunks have another length says so
by ``"chunk_elements"``.

A tensor that was pruned has ``"pruned": {"score": "snip", "granularity": "element", "count": …,
"rel_l2": …}`` (see `PruningRecord`). Its errors then are those against the tensor as it was before
that; a bound holds for the weights that were kept, relative to the pruned tensor.

A small tensor may be part of a bundle, whose trees and digest are its own (see `bundles`).

A tensor whose chunks are coded against those of a tensor in another file, its base, has
``"reference": [base, "<digest of that tensor's decoded bytes>", name]``: the index of the base and
that tensor's name there, left out where it is the same. In a bundle, which has one digest for the
references of its tensors together, that is ``[base, "", name]``. A reference of another float type
is cast first, by way of float32 but for float64; where it has fewer rows, zeros follow.

Format 2 brought the codec ``floats``, and short indices of blobs of one chunk (see `blob`); format
3, lossy codecs, errors and bounds; format 4, pruned tensors, and the codecs ``live`` and
``packed``; format 5, the codec ``groupfloats``; format 6, bundles; format 7, the codec
``outliers``; format 8, files as arrays at known places (see `layouts`), and the codec ``ggml``;
format 9, the codec ``scales``; format 10, bases. Files without what format 10 brought are written
in format 9.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorcomp._zstd_frames import ZstdError, compress, decompress
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.safetensors.header import json_object, json_text
from tensorcomp.codecs.text import parse_text
from tensorcomp.container.bundles import BundleLayout, check_bundles
from tensorcomp.container.chunk_grid import MAX_CHUNK_ELEMENTS
from tensorcomp.container.records import (
    BaseRecord,
    PlannedTree,
    TensorRecord,
    base_from_json,
    natural,
    record_from_json,
    record_to_json,
    text_of,
)
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import PARSING_ERRORS, FormatError

FORMAT_VERSION = 9  # of files that need no later one
LATEST_VERSION = 10  # that is read
METADATA_KEY = "tensorcomp"
# Of files of weights it is "pt": hosts that look for that refuse blobs as weights.
MARK = {"format": METADATA_KEY}
_BUNDLES_SINCE = 6  # format version
_MAX_BYTES = 1 << 30  # bytes of manifest JSON; a header is at most 100 MB
_GROWTH = 1 << 10  # times that honest JSON may shrink


@dataclass(frozen=True)
class Manifest:
    """Contents of the manifest of a compressed file.

    Parameters
    ----------
    chunk_elements : int
        Elements of a chunk at most.
    trees : tuple of PlannedTree
    tensors : mapping of str to TensorRecord
        In the source's order.
    aliases : mapping of str to str
        Further names of tensors: tied weights of a torch file.
    template : SourceTemplate
        Structure that rebuilds the source file.
    source_bytes : int
        Size of the source file.
    version : int
        Of the format in which the file was written.
    bundles : mapping of str to TensorRecord
        Blobs that hold several tensors.
    bases : tuple of BaseRecord
        Files against which tensors are coded.
    """

    chunk_elements: int
    trees: tuple[PlannedTree, ...]
    tensors: Mapping[str, TensorRecord]
    template: SourceTemplate
    source_bytes: int
    aliases: Mapping[str, str] = field(default_factory=dict)
    version: int = FORMAT_VERSION
    bundles: Mapping[str, TensorRecord] = field(default_factory=dict)
    bases: tuple[BaseRecord, ...] = ()

    @functools.cached_property
    def infos(self) -> tuple[TensorInfo, ...]:
        """Decoded tensors, in the source's order."""
        return tuple(
            TensorInfo(record.name, record.dtype, record.shape, record.nbytes)
            for record in self.tensors.values()
        )

    @functools.cached_property
    def layout(self) -> BundleLayout:
        """Range of each bundled tensor in its bundle."""
        return BundleLayout.of(self.tensors)

    @functools.cached_property
    def blobs(self) -> Mapping[str, TensorRecord]:
        """Records that own a blob: tensors in the source's order, then bundles."""
        alone = {name: record for name, record in self.tensors.items() if record.has_blob}
        return {**alone, **self.bundles}

    @functools.cached_property
    def hidden(self) -> frozenset[str]:
        """Tensors that hold the rest of a file that had another format."""
        if self.template.kind != "layout":
            return frozenset()
        from tensorcomp.checkpoints.layouts.restore import hidden_tensors

        return hidden_tensors(self.template)

    def planned(self, record: TensorRecord) -> PlannedTree | None:
        """Return the tree of a tensor, or of its bundle; None for a duplicate."""
        if record.same_as is not None:
            return None
        blob = record if record.bundle is None else self.bundles[record.bundle]
        return self.trees[blob.tree]

    def stored(self, name: str) -> TensorRecord:
        """Return the record of the tensor that stores the data of a name."""
        record = self.tensors[self.aliases.get(name, name)]
        return record if record.same_as is None else self.tensors[record.same_as]

    def stored_bytes(self, record: TensorRecord, blobs: Mapping[str, int]) -> int:
        """Return a tensor's part of the bytes of its blob; a duplicate takes none.

        `blobs` are the bytes of each blob.
        """
        if record.same_as is not None:
            return 0
        size = blobs[record.blob]
        return size if record.bundle is None else self.layout.share(record, size)


def is_compressed(checkpoint: Checkpoint) -> bool:
    """Return whether a safetensors file is one that `compress` wrote."""
    return is_manifest((checkpoint.metadata or {}).get(METADATA_KEY))


def is_manifest(text: str | None) -> bool:
    """Return whether a metadata string is a manifest, maybe a damaged one."""
    try:
        envelope = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    return isinstance(envelope, dict) and envelope.keys() >= {"format", "manifest"}


def manifest_to_text(manifest: Manifest) -> str:
    """Return the metadata string of a manifest."""
    packed = compress(_plain(manifest), 9, checksum=True)
    text = base64.b64encode(packed).decode("ascii")
    version = written_version(manifest)
    return json.dumps({"format": version, "manifest": text}, separators=(",", ":"))


def written_version(manifest: Manifest) -> int:
    """Return the lowest format version whose readers read a manifest."""
    least = LATEST_VERSION if manifest.bases else FORMAT_VERSION
    return max([least, *(_version_of(planned.tree) for planned in manifest.trees)])


@functools.cache
def _version_of(tree: str) -> int:
    """Return the first format version whose readers have all codecs of a tree."""
    return max(codec.since_format for codec in parse_text(tree).walk())


def _plain(manifest: Manifest) -> bytes:
    """Return the JSON of a manifest."""
    template = manifest.template
    plain = template.attachments.items()
    attachments = {name: base64.b64encode(data).decode("ascii") for name, data in plain}
    members = {
        "chunk_elements": json_text(manifest.chunk_elements),
        "trees": json_text([{"tree": tree.tree, "why": tree.reason} for tree in manifest.trees]),
        "tensors": _records(manifest.tensors),
        "bundles": _records(manifest.bundles),
        "aliases": json_text(dict(manifest.aliases)),
        "source": json_text(
            {
                "kind": template.kind,
                "nbytes": manifest.source_bytes,
                "structure": dict(template.structure),
                "attachments": attachments,
            }
        ),
    }
    if manifest.bases:
        members["bases"] = json_text([base._asdict() for base in manifest.bases])
    return json_object(members).encode()


def _records(records: Mapping[str, TensorRecord]) -> str:
    """Return the JSON of records; all their objects at once would take a kilobyte a tensor."""
    return json_object({name: json_text(record_to_json(one)) for name, one in records.items()})


def manifest_from_text(text: str, where: str) -> Manifest:
    """Read a metadata string.

    Raises `FormatError` if it is damaged, or of a newer format version.
    """
    try:
        envelope = json.loads(text)
        plain = _unpacked(envelope)
        return _from_json(json.loads(plain), envelope["format"])
    except FormatError as error:
        error.at(path=where)
        raise
    except (*PARSING_ERRORS, ZstdError) as error:
        raise FormatError(
            f"its manifest is damaged ({type(error).__name__}: {error})", path=where
        ) from error


def _unpacked(envelope: Any) -> bytes:
    version = envelope["format"]
    if not isinstance(version, int) or version < 1:
        raise FormatError(f"its format version is {version!r}")
    if version > LATEST_VERSION:
        raise FormatError(
            f"written in format {version}, this tensorcomp reads up to {LATEST_VERSION}; "
            "install a newer one"
        )
    packed = base64.b64decode(envelope["manifest"], validate=True)
    return decompress(packed, min(_MAX_BYTES, _GROWTH * len(packed) + 4096))


def _from_json(value: Any, version: int) -> Manifest:
    source = value["source"]
    stored = value["bundles"] if version >= _BUNDLES_SINCE else {}
    bundles = {name: record_from_json(name, item) for name, item in stored.items()}
    tensors = {
        name: record_from_json(name, item, bundles) for name, item in value["tensors"].items()
    }
    packed = source["attachments"].items()
    attachments = {name: base64.b64decode(data, validate=True) for name, data in packed}
    manifest = Manifest(
        chunk_elements=natural(value["chunk_elements"]),
        trees=tuple(PlannedTree(text_of(i["tree"]), text_of(i["why"])) for i in value["trees"]),
        tensors=tensors,
        aliases={text_of(name): text_of(target) for name, target in value["aliases"].items()},
        template=SourceTemplate(text_of(source["kind"]), dict(source["structure"]), attachments),
        source_bytes=natural(source["nbytes"]),
        version=version,
        bundles=bundles,
        bases=tuple(map(base_from_json, value.get("bases", ()))),
    )
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    records = (*manifest.tensors.values(), *manifest.bundles.values())
    elements = max([manifest.chunk_elements, *(record.chunk_elements for record in records)])
    if manifest.chunk_elements < 1 or elements > MAX_CHUNK_ELEMENTS:
        raise FormatError(
            f"expected chunks of 1 to {MAX_CHUNK_ELEMENTS:,} elements, got {elements:,}"
        )
    for record in records:
        if record.has_blob and max(record.tree, record.fallback or 0) >= len(manifest.trees):
            raise FormatError(f"tensor {record.name!r} names a tree that is not there")
        if record.reference is not None and record.reference.base >= len(manifest.bases):
            raise FormatError(f"tensor {record.name!r} names a base that is not there")
        if record.same_as is None:
            continue
        target = manifest.tensors.get(record.same_as)
        if target is None or target.same_as is not None:
            raise FormatError(
                f"tensor {record.name!r} equals {record.same_as!r}, which has no blob"
            )
        sized = dtype_bits(record.dtype) is not None
        if target.dtype != record.dtype or (sized and target.nbytes != record.nbytes):
            raise FormatError(f"tensor {record.name!r} and {target.name!r} differ in type or size")
    if manifest.bundles:
        check_bundles(manifest.tensors, manifest.bundles, manifest.layout)
    for name, target_name in manifest.aliases.items():
        if name in manifest.tensors:
            raise FormatError(f"{name!r} is a tensor and tied to {target_name!r} as well")
        if target_name not in manifest.tensors:
            raise FormatError(f"{name!r} is tied to {target_name!r}, which is not there")
