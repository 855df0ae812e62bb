"""Import a package's names when they are first used."""

from __future__ import annotations

import _ast  # the parser alone; `ast` takes milliseconds to import
import importlib
import sys
from collections.abc import Callable
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's ``__getattr__``, ``__dir__`` and ``__all__``.

    The stub ``__init__.pyi`` says each name once, for type checkers and for this function:
    ``from module import name as name``.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    """
    module = sys.modules[package]
    stub = f"{module.__path__[0]}/__init__.pyi"  # not by pathlib, which takes milliseconds
    source = module.__spec__.loader.get_data(stub)  # type: ignore[union-attr]
    tree: Any = compile(source, stub, "exec", _ast.PyCF_ONLY_AST)
    homes = {
        alias.asname: (str(statement.module), alias.name)
        for statement in tree.body
        if isinstance(statement, _ast.ImportFrom)
        for alias in statement.names
        if alias.asname
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        if home == package:  # a module of its own
            value = importlib.import_module(f"{home}.{original}")
        else:
            value = getattr(importlib.import_module(home), original)
        setattr(module, name, value)
        return value

    names = sorted(homes)
    return get, lambda: names, names
