"""Errors that tensorcomp raises, one class per area.

Every message says what is wrong, where (file, tensor, chunk) and what to do about it, in one line.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Self

from tensorcomp._formatting import escaped, shown

_MAX_MESSAGE = 4000  # characters
_LONG_WORD = re.compile(r"\S{400,}")  # as hostile files hold
# Exceptions by which conversions of untrusted input show that it is malformed.
PARSING_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class TensorcompError(Exception):
    """Base class of every error that tensorcomp raises on purpose.

    Parameters
    ----------
    message : str
        The fault and its remedy, without the place; `str` puts the place in front.
    path : str or path-like, optional
        The file.
    tensor : str, optional
        The tensor's name.
    chunk : int, optional
        The chunk's number in the tensor.

    Examples
    --------
    >>> print(FormatError("is damaged", path="a.tc.safetensors", tensor="w", chunk=2))
    a.tc.safetensors: tensor 'w', chunk 2: is damaged
    """

    def __init__(
        self,
        message: str = "",
        *,
        path: str | os.PathLike[str] | None = None,
        tensor: str | None = None,
        chunk: int | None = None,
    ) -> None:
        message = _LONG_WORD.sub(lambda word: f"{word[0][:200]}… ({len(word[0]):,})", message)
        if len(message) > _MAX_MESSAGE:
            message = f"{message[:_MAX_MESSAGE]}… ({len(message):,} characters)"
        self.message = escaped(" ".join(message.splitlines()))  # names may hold newlines
        super().__init__(self.message)
        self.path = None if path is None else str(path)
        self.tensor = tensor
        self.chunk = chunk

    def at(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        tensor: str | None = None,
        chunk: int | None = None,
    ) -> Self:
        """Fill in the fields that are not known yet, and return the error."""
        if self.path is None and path is not None:
            self.path = str(path)
        if self.tensor is None:
            self.tensor = tensor
        if self.chunk is None:
            self.chunk = chunk
        return self

    def __str__(self) -> str:
        tensor = [] if self.tensor is None else [f"tensor {shown(self.tensor)}"]
        chunk = [] if self.chunk is None else [f"chunk {self.chunk}"]
        places = [] if self.path is None else [self.path]
        if tensor or chunk:
            places.append(", ".join(tensor + chunk))
        return ": ".join([*places, self.message])


@contextlib.contextmanager
def located(*, path: str | os.PathLike[str], tensor: str | None = None) -> Iterator[None]:
    """Fill in the unknown fields of an error that the block raises."""
    try:
        yield
    except TensorcompError as error:
        error.at(path=path, tensor=tensor)
        raise


@contextlib.contextmanager
def needing(extra: str, error: type[TensorcompError], what: str) -> Iterator[None]:
    """Raise an error that says what to install where an import fails."""
    try:
        yield
    except ImportError as missing:
        raise error(f"{what}; run `pip install 'tensorcomp[{extra}]'`") from missing


class CodecError(TensorcompError):
    """A payload is damaged, or a codec cannot take an array or an argument."""


class NotRepresentable(CodecError):
    """A transform cannot represent an array; the planner takes its next choice."""


class FormatError(TensorcompError):
    """A compressed checkpoint breaks the file format."""


class PlanError(TensorcompError):
    """No tree fits a tensor under its budget, or a tree's text is invalid."""


class OptionError(TensorcompError, ValueError):
    """An option of a function is out of range."""


class UnknownCodecError(PlanError, CodecError):
    """Neither tensorcomp nor an installed package has a codec of this id.

    Parameters
    ----------
    message : str
    codec : str
        The id.
    known : tuple of str
        Ids of all codecs.
    """

    def __init__(self, message: str = "", *, codec: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.codec = codec
        self.known = known


class InfeasibleBudgetError(PlanError):
    """A file cannot be as small as its budget asks for.

    Parameters
    ----------
    message : str
    requested_bytes : int
        Largest size that the budget allows.
    least_bytes : int
        Size of the smallest file that was found, or about that.
    protected_bytes : int, optional
        Bytes of it that no smaller budget changes: tensors stored exactly, and the header.
    """

    def __init__(
        self,
        message: str = "",
        *,
        requested_bytes: int = 0,
        least_bytes: int = 0,
        protected_bytes: int | None = None,
    ) -> None:
        super().__init__(message)
        self.requested_bytes = requested_bytes
        self.least_bytes = least_bytes
        self.protected_bytes = protected_bytes


class CheckpointError(TensorcompError):
    """A source checkpoint cannot be read, or an output cannot be written."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """A file to be read is not there."""


class MissingBaseError(CheckpointError):
    """Base of a compressed file that is not found, or another one."""


class InputTypeError(TensorcompError, TypeError):
    """A tensor, or the index of a slice, is of a type that has no meaning there."""


class SliceError(TensorcompError, IndexError):
    """The index of a slice goes beyond the tensor."""


class PruningError(TensorcompError):
    """Weights cannot be scored or selected, or masks do not fit the model."""


class GradientError(TensorcompError):
    """Gradients cannot be compressed or exchanged; raised on all ranks alike."""


class VerificationError(TensorcompError):
    """Decoded bytes differ from what the manifest, or the original, says."""
