"""Classes that installed packages announce by entry points, by their ids."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorcomp.errors import TensorcompError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Plugins(NamedTuple):
    """The classes of an entry point group.

    Parameters
    ----------
    group : str
    noun : str
        Name of such a class in messages.
    bases : tuple of type
        One of which it is a subclass of.
    error : type
        The exception to raise.
    """

    group: str
    noun: str
    bases: tuple[type, ...]
    error: type[TensorcompError]

    def names(self) -> set[str]:
        """Return all ids, without importing anybody's code."""
        return {entry.name for entry in self._entries()}

    def load(self, name: str) -> Any:
        """Return the class with this id, None if no package has one.

        Raises
        ------
        TensorcompError
            If several packages have one, or the object cannot be imported or is no such class.
        """
        entries = [entry for entry in self._entries() if entry.name == name]
        if not entries:
            return None
        if len({entry.value for entry in entries}) > 1:
            homes = ", ".join(sorted(entry.value for entry in entries))
            raise self.error(f"several packages have a {self.noun} {name!r} ({homes}); keep one")
        try:
            found = entries[0].load()
        except (ImportError, AttributeError) as error:
            raise self.error(f"the {self.noun} {name!r} cannot be imported: {error}") from error
        if not (isinstance(found, type) and issubclass(found, self.bases)):
            raise self.error(f"the entry point {name!r} gives {found!r}, not a {self.noun} class")
        own = getattr(found, "id", None)
        if own != name:
            raise self.error(f"the entry point {name!r} gives a {self.noun} whose id is {own!r}")
        return found

    def _entries(self) -> Collection[EntryPoint]:
        if not _is_announced(self.group, tuple(sys.path)):
            return ()
        from importlib.metadata import entry_points

        return entry_points(group=self.group)


@functools.cache
def _is_announced(group: str, path: tuple[str, ...]) -> bool:
    """Return whether any installed package may have entry points in a group.

    `importlib.metadata` imports packages for mail and archives: reading what they announce takes
    longer than compressing a small file, and hardly anybody has such a package.
    """
    for folder in path:
        if os.path.isfile(folder):  # noqa: PTH113 - a zip file on the path
            return True
        for file in Path(folder or ".").glob("*.*-info/entry_points.txt"):
            if f"[{group}]" in file.read_text("utf-8", "replace"):
                return True
    return False
