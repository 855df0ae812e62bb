"""Convert the records of tensors in a manifest to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import FormatError

DIGEST_DIGITS = 16
_ROUNDING = 1e-9
_MAX_NUMBER = 1 << 62


class PlannedTree(NamedTuple):
    """Codec tree of one or more tensors, and the reason for it."""

    tree: str
    reason: str


class BaseRecord(NamedTuple):
    """Base of a file: another that decoding needs, found by its content.

    Parameters
    ----------
    name : str
        Name of its file when the file was written; it may have another since.
    nbytes : int
        Size of that.
    digest : str
        Of the references in it: XXH3-128 of their names and digests, in hexadecimal digits.
    """

    name: str
    nbytes: int
    digest: str


class TensorReference(NamedTuple):
    """Tensor of a base that a tensor is coded against.

    Parameters
    ----------
    base : int
        Index into `Manifest.bases`.
    digest : str
        Of its decoded bytes, as `TensorRecord.digest`; empty for a tensor in a bundle. For a
        bundle, that of the references of its tensors together.
    tensor : str
        Its name in the base; that of the bundle for a bundle.
    """

    base: int
    digest: str
    tensor: str


@dataclass(frozen=True, slots=True)
class PruningRecord:
    """Pruning of a tensor before it was encoded.

    Parameters
    ----------
    score : str
        By which its weights were compared, such as ``snip``.
    granularity : str
        Unit of weights dropped together, such as ``element`` or ``nm(2, 4)``.
    count : int
        Elements that were set to +0.0, those that were zero before among them.
    rel_l2 : float
        Error by that alone: the L2 norm of those elements over that of the tensor; all digits.
        Where it was repaired, the error of all elements.
    repaired : bool
        Whether the elements that were kept make up for the others.
    """

    score: str
    granularity: str
    count: int
    rel_l2: float
    repaired: bool = False


@dataclass(slots=True)  # making a frozen one takes six times as long
class TensorRecord:
    """Dtype, shape, tree and errors of one tensor; never changed once made.

    Parameters
    ----------
    name, dtype, shape, role
        As in the source; the role is the planner's.
    nbytes : int
        Bytes of the decoded tensor.
    tree : int
        Index into `Manifest.trees`; -1 for a duplicate, and for a tensor in a bundle.
    fallback : int or None
        The tree of those chunks that the first tree cannot represent exactly.
    digest : str
        Of the decoded bytes: the first 16 hexadecimal digits of XXH3-128; empty for a duplicate,
        and for a tensor in a bundle, which has one.
    same_as : str or None
        The tensor, stored under its own name, that this one equals bit for bit.
    rel_l2, max_abs_error : float
        Measured errors, in six significant digits; 0 if exact.
    row_error : float
        The largest rel-L2 of a row, where that row lost half of its norm or more and the tensor far
        less; else 0.
    output_error : float
        Measured relative error of what the layer returns, in six digits; 0 if exact or not known.
    bound : mapping of str to float
        Limits that the errors keep: ``max_rel_l2``, ``max_abs_error`` or ``max_output_error``.
    chunk_elements : int
        Elements of a chunk at most; 0 where the manifest's own number counts.
    pruned : PruningRecord or None
        Record of its pruning, if it was selected for that.
    bundle : str or None
        The bundle that holds it, which has the trees (see `bundles`).
    reference : TensorReference or None
        What its chunks are coded against.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    nbytes: int
    tree: int = -1
    fallback: int | None = None
    digest: str = ""
    same_as: str | None = None
    rel_l2: float = 0.0
    max_abs_error: float = 0.0
    row_error: float = 0.0
    output_error: float = 0.0
    bound: Mapping[str, float] = field(default_factory=dict)
    chunk_elements: int = 0
    pruned: PruningRecord | None = None
    bundle: str | None = None
    reference: TensorReference | None = None

    @property
    def has_blob(self) -> bool:
        """Whether the file has a blob of this name."""
        return self.same_as is None and self.bundle is None

    @property
    def blob(self) -> str:
        """Name of the blob that holds it, unless it is a duplicate."""
        return self.name if self.bundle is None else self.bundle


def record_to_json(record: TensorRecord) -> dict[str, Any]:
    """Return the JSON object of a record."""
    value: dict[str, Any] = {"dtype": record.dtype, "shape": record.shape, "role": record.role}
    if record.same_as is not None:
        return value | {"same_as": record.same_as}
    if record.reference is not None:
        value["reference"] = _reference_to_json(record)
    if record.bundle is not None:
        return value | {"bundle": record.bundle}
    if dtype_bits(record.dtype) is None:  # an unknown type's size does not follow from its shape
        value["nbytes"] = record.nbytes
    value["tree"] = record.tree
    if record.fallback is not None:
        value["fallback"] = record.fallback
    if record.chunk_elements:
        value["chunk_elements"] = record.chunk_elements
    if record.rel_l2 or record.max_abs_error:
        value["error"] = [record.rel_l2, record.max_abs_error]
    if record.row_error:
        value["row_error"] = record.row_error
    if record.output_error:
        value["output_error"] = record.output_error
    if record.bound:
        value["bound"] = dict(record.bound)
    if record.pruned is not None:
        value["pruned"] = {key: v for key, v in asdict(record.pruned).items() if v is not False}
    value["digest"] = record.digest
    return value


def record_from_json(
    name: str, value: Any, bundles: Mapping[str, TensorRecord] = MappingProxyType({})
) -> TensorRecord:
    """Return the record of a tensor from its JSON object.

    Parameters
    ----------
    name : str
    value : JSON value
    bundles : mapping of str to TensorRecord, optional
        Those that the tensor may be in.

    Raises
    ------
    FormatError, ValueError, KeyError, TypeError, AttributeError
        If it is not what `record_to_json` writes.
    """
    dtype, role = text_of(value["dtype"]), text_of(value["role"])
    shape = tuple(map(natural, value["shape"]))
    bits = dtype_bits(dtype)
    expected = math.prod(shape) * (bits or 0) // 8
    nbytes = natural(value["nbytes"]) if "nbytes" in value else expected
    if bits is not None and nbytes != expected:
        raise FormatError(
            f"expected {expected:,} bytes for {dtype} {list(shape)}, got {nbytes:,}", tensor=name
        )
    if value.get("same_as") is not None:
        return TensorRecord(name, dtype, shape, role, nbytes, same_as=text_of(value["same_as"]))
    if "bundle" in value:
        bundle = bundles[text_of(value["bundle"])]
        record = TensorRecord(name, dtype, shape, role, nbytes, bundle=bundle.name)
        record.reference = _reference_from_json(name, value)
        return record
    record = TensorRecord(name, dtype, shape, role, nbytes, tree=natural(value["tree"]))
    record.digest = text_of(value["digest"])
    int(record.digest, 16)
    if "fallback" in value:
        record.fallback = natural(value["fallback"])
    if "chunk_elements" in value:
        record.chunk_elements = natural(value["chunk_elements"])
    if "error" in value:
        record.rel_l2, record.max_abs_error = map(_error, value["error"])
    if "row_error" in value:
        record.row_error = _error(value["row_error"])
    if "output_error" in value:
        record.output_error = _error(value["output_error"])
    if "bound" in value:
        record.bound = {text_of(limit): _error(error) for limit, error in value["bound"].items()}
    record.reference = _reference_from_json(name, value)
    if "pruned" in value:
        record.pruned = _pruning_from_json(name, shape, value["pruned"])
    return record


def base_from_json(value: Any) -> BaseRecord:
    """Return the record of a base from its JSON object, as `record_from_json`."""
    name, digest = text_of(value["name"]), text_of(value["digest"])
    name.encode("utf-8", "surrogateescape")
    int(digest, 16)
    if "\0" in name or PurePath(name).is_absolute() or "://" in name:
        raise FormatError(f"expected a relative path of its base, found {name[:40]!r}")
    return BaseRecord(name, natural(value["nbytes"]), digest)


def _reference_to_json(record: TensorRecord) -> list[int | str]:
    """Return a reference as [base, digest, name], short of what is empty or the tensor's own."""
    assert record.reference is not None
    base, digest, tensor = record.reference
    values: list[int | str] = [base, digest, tensor if tensor != record.name else ""]
    while values[-1] == "":
        del values[-1]
    return values


def _reference_from_json(name: str, value: Any) -> TensorReference | None:
    if "reference" not in value:
        return None
    values = list(value["reference"])
    if not 1 <= len(values) <= 3:
        raise FormatError("expected a base, digest and name as its reference", tensor=name)
    base, digest, tensor = [*values, "", ""][:3]
    int(text_of(digest) or "0", 16)
    return TensorReference(natural(base), digest, text_of(tensor) or name)


def _pruning_from_json(name: str, shape: tuple[int, ...], value: Any) -> PruningRecord:
    count, rel_l2 = natural(value["count"]), _error(value["rel_l2"])
    repaired = value.get("repaired", False) is True
    if count > math.prod(shape) or not (repaired or rel_l2 <= 1 + _ROUNDING):
        raise FormatError(
            f"tensor {name!r} of shape {list(shape)} cannot have lost {count:,} elements and "
            f"{rel_l2:g} of its norm"
        )
    score, granularity = text_of(value["score"]), text_of(value["granularity"])
    return PruningRecord(score, granularity, count, rel_l2, repaired)


def text_of(value: Any) -> str:
    """Return a JSON value; raise `FormatError` if it is not a string."""
    if not isinstance(value, str):
        raise FormatError(f"expected text in the manifest, found {str(value)[:40]!r}")
    return value


def _error(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise FormatError(f"expected an error in the manifest, found {str(value)[:40]!r}")
    return float(value)


def natural(value: Any) -> int:
    """Return a JSON value; raise `FormatError` unless it is an integer ≥ 0."""
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:  # a bool is an int, but no size
        raise FormatError(f"expected a size in the manifest, found {str(value)[:40]!r}")
    return value
