"""Repeat requests to object stores; explain those that fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from tensorcomp._formatting import counted
from tensorcomp._log import LOGGER
from tensorcomp.errors import CheckpointError, MissingFileError, TensorcompError

Result = TypeVar("Result")
TRIES = 4
FIRST_WAIT = 1.0  # seconds; each further one is twice as long
PATIENCE = 40.0  # seconds after which nothing is asked again: whoever waits is told
CHANGED = "was changed while it was read; run again when nothing writes it"

# Names, of classes or their bases: what raises them is imported only with its store.
_TRANSIENT = frozenset(
    ("ConnectionError", "TimeoutError", "EOFError", "ClientConnectionError", "ClientPayloadError")
).union(("HTTPClientError", "IncompleteRead", "IncompleteReadError", "TransportError"))
_NO_CREDENTIALS = frozenset(
    ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")
)
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired", "expired")
_TRANSIENT_STATUS = frozenset((408, 425, 429, 500, 502, 503, 504))


class IncompleteAnswer(ConnectionError):
    """A store's answer that ends early."""


def repeated(where: str, call: Callable[[], Result], *, doing: str = "read") -> Result:
    """Call what asks a store, again after errors that may pass.

    Parameters
    ----------
    where : str
        The object, for error messages.
    call : callable
    doing : str
        What cannot be done if it fails: ``"read"`` or ``"written"``.

    Raises
    ------
    MissingFileError
        If there is no such object.
    CheckpointError
        If the store refuses, or goes on failing.
    """
    begun = time.monotonic()
    for tried in range(1, TRIES + 1):
        try:
            return call()
        except TensorcompError as error:
            raise error.at(path=where) from error.__cause__
        except Exception as error:
            is_last = tried == TRIES or time.monotonic() - begun > PATIENCE
            if is_last or not is_transient(error):
                raise explained(error, where, doing, tried) from error
            LOGGER.debug("%s: asked again after %s", where, type(error).__name__)
            time.sleep(FIRST_WAIT * 2 ** (tried - 1))
    raise AssertionError


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    return _is_one(error, _TRANSIENT) or status_of(error) in _TRANSIENT_STATUS


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status that an error, or what caused it, tells."""
    while error is not None:
        answer: Any = getattr(error, "response", None)
        if isinstance(answer, dict):  # botocore's
            found = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            found = getattr(answer, "status_code", None) or getattr(error, "status", None)
            found = found or getattr(error, "code", None)
        if isinstance(found, int) and 100 <= found < 600:
            return found
        error = error.__cause__
    return None


def _is_one(error: BaseException, names: frozenset[str]) -> bool:
    return not names.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def explained(error: Exception, where: str, doing: str, tries: int = TRIES) -> CheckpointError:
    """Return the error to raise, after so many requests where these may pass.

    A message of a store may hold a signed URL, and is not shown.
    """
    status = status_of(error)
    cannot, later = f"cannot be {doing}", f"{counted(tries, 'request')} failed, try again later"
    if isinstance(error, FileNotFoundError) or status == 404:
        if any("NoSuchBucket" in text or "specified bucket" in text for text in _texts(error)):
            return MissingFileError(f"{cannot}: there is no such bucket", path=where)
        return MissingFileError(f"{cannot}: there is no such file", path=where)
    if status == 412:
        return CheckpointError(CHANGED, path=where)
    if any(word in text for text in _texts(error) for word in _EXPIRED):
        why = "the credentials have expired; sign in again"
    elif _is_one(error, _NO_CREDENTIALS) or status == 401:
        why = "there are no credentials for it; sign in, or set those of the store"
    elif isinstance(error, PermissionError) or status == 403:
        why = "access is denied; check the credentials, and what they may do"
    elif _is_one(error, _TRANSIENT):
        why = f"the server cannot be reached, or breaks off ({type(error).__name__}); {later}"
    elif status is not None:
        again = later if status in _TRANSIENT_STATUS else "check the URL"
        why = f"the server answers with status {status}; {again}"
    elif isinstance(error, OSError) and error.strerror:
        why = error.strerror
    else:
        why = f"the store's client fails with {type(error).__name__}; check the URL"
    return CheckpointError(f"{cannot}: {why}", path=where)


def _texts(error: BaseException | None) -> list[str]:
    """Return the messages of an error and its causes."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return texts
