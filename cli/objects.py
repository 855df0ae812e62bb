"""Load objects by ``module:name`` or ``path/to/file.py:name``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from tensorcomp.errors import PruningError, TensorcompError


def object_text(text: str) -> str:
    """Take the name of an object, as an option gives it."""
    module, _, name = text.rpartition(":")
    if not module or not all(part.isidentifier() for part in name.split(".")):
        raise click.BadParameter(f"{text!r} is not MODULE:NAME or path/to/file.py:NAME")
    return text


@contextlib.contextmanager
def importable(*texts: str | None) -> Iterator[None]:
    """Make the current folder and those of the given files importable.

    What a user's code prints there goes to stderr: stdout is for results.
    """
    places = [Path(text.rpartition(":")[0]) for text in texts if text is not None]
    files = [place.resolve() for place in places if place.suffix == ".py"]
    before = list(sys.path)
    sys.path[:0] = map(str, [Path.cwd(), *(file.parent for file in files)])
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def naming(text: str, doing: str = "") -> Iterator[None]:
    """Turn an error of a user's code into one that names their object."""
    try:
        yield
    except TensorcompError:
        raise
    except (Exception, SystemExit) as error:
        message = f": {error}" if str(error) else ""
        raise PruningError(f"{text} failed{doing}: {type(error).__name__}{message}") from error


def load_object(text: str) -> Any:
    """Return the object that ``module:name`` or ``path/to/file.py:name`` names.

    Modules are imported as they would be in the current folder, see `importable`. A file is run
    once, however many objects of it are named.
    """
    place, _, name = text.rpartition(":")
    with naming(text, " at import"):
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        raise PruningError(f"{text}: {place} has no {name!r}") from None


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise PruningError(
            f"there is no module {error.name!r}; the current folder is searched, too, and a file "
            "is named path/to/file.py:NAME"
        ) from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PruningError(f"{path}: there is no such file")
    path = path.resolve()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    name = path.stem if path.stem not in sys.modules else str(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as for an import, so that its classes can be pickled
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def made(text: str, kind: Any, noun: str) -> Any:
    """Return the object of a kind, or what makes one, that a text names."""
    found = load_object(text)
    if callable(found) and (isinstance(found, type) or not isinstance(found, kind)):
        with naming(text):
            found = found()
    if not isinstance(found, kind):
        raise PruningError(f"{text}: gives {type(found).__name__}, not {noun}")
    return found
