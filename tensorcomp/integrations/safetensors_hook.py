"""Let all that reads safetensors files read compressed ones too.

Two functions of safetensors are replaced, by every name that a module has for them: `safe_open` and
`deserialize`. `safetensors.torch.load_file` and `load`, and through those all hosts, look them up
when they are called, so the order of imports does not matter. What others have kept elsewhere works
as before once the hook is off.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass
class _Hook:
    """State of the hook: who wants it, and what it stands for."""

    enabled: bool = False
    blocks: int = 0
    originals: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_wanted(self) -> bool:
        return self.enabled or self.blocks > 0


_HOOK = _Hook()


def enable() -> None:
    """Let all libraries of this process read compressed files as safetensors.

    Files are known by their metadata; ordinary ones go to safetensors, unchanged. It does not
    matter what was imported before. A second call does nothing.

    Examples
    --------
    >>> import tensorcomp.hub
    >>> tensorcomp.hub.enable()
    >>> tensorcomp.hub.disable()
    """
    with _HOOK.lock:
        _HOOK.enabled = True
        _put_in_place()


def disable() -> None:
    """Undo `enable`, but for blocks of `enabled` that are under way."""
    with _HOOK.lock:
        _HOOK.enabled = False
        _take_away()


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Read compressed files as `enable` does, within a block and in all threads."""
    with _HOOK.lock:
        _HOOK.blocks += 1
        _put_in_place()
    try:
        yield
    finally:
        with _HOOK.lock:
            _HOOK.blocks -= 1
            _take_away()


def is_enabled() -> bool:
    """Return whether all libraries read compressed files now."""
    return _HOOK.is_wanted


def _put_in_place() -> None:
    if not _HOOK.originals:
        import safetensors

        originals = {name: getattr(safetensors, name) for name in _STAND_INS}
        _HOOK.originals = originals
        safe_open.__doc__ = originals["safe_open"].__doc__
        _rename({id(originals[name]): stand_in for name, stand_in in _STAND_INS.items()})


def _take_away() -> None:
    if _HOOK.originals and not _HOOK.is_wanted:
        _rename({id(stand_in): _HOOK.originals[name] for name, stand_in in _STAND_INS.items()})
        _HOOK.originals = {}


def _rename(replaced: Mapping[int, Any]) -> None:
    """Let every module's name of an object, told by its `id`, be that of another."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and module is not sys.modules[__name__]:
            for name, value in list(vars(module).items()):
                if id(value) in replaced:
                    setattr(module, name, replaced[id(value)])


def _original(name: str) -> Any:
    """Return safetensors' own function, whether the hook is on or off."""
    import safetensors

    return _HOOK.originals.get(name) or getattr(safetensors, name)


class _SafeOpen(type):
    """Class of a class that opens files by one of two others, and is the type of both."""

    def __call__(cls, filename: Any, *args: Any, **keywords: Any) -> Any:
        if _HOOK.is_wanted and _is_compressed_file(filename):
            from tensorcomp.api.load import safe_open as compressed

            return compressed(filename, *args, **keywords)
        return _original("safe_open")(filename, *args, **keywords)

    def __instancecheck__(cls, instance: Any) -> bool:
        from tensorcomp.api.load import safe_open as compressed

        return isinstance(instance, (_original("safe_open"), compressed))


class safe_open(metaclass=_SafeOpen):
    """Stand-in for safetensors' class of this name."""


def deserialize(data: Any) -> Any:
    """Return the tensors of a file's bytes, as safetensors' own function does."""
    import numpy as np

    from tensorcomp.api.load import load
    from tensorcomp.container.compressed_folder import is_compressed_data
    from tensorcomp.container.reader import CompressedFile

    if not (_HOOK.is_wanted and isinstance(data, bytes) and is_compressed_data(data)):
        return _original("deserialize")(data)
    with CompressedFile(data) as file:
        records = {name: file.record(name) for name in (*file.manifest.tensors, *file.aliases)}
    return [
        (
            name,
            {
                "dtype": records[name].dtype,
                "shape": list(records[name].shape),
                "data": memoryview(array.reshape(-1).view(np.uint8)),
            },
        )
        for name, array in load(data).items()
    ]


_STAND_INS: dict[str, Any] = {"safe_open": safe_open, "deserialize": deserialize}


def _is_compressed_file(filename: Any) -> bool:
    from pathlib import Path

    from tensorcomp.container.compressed_folder import is_compressed_file

    try:
        return is_compressed_file(Path(filename))
    except TypeError:
        return False  # safetensors says what is wrong with it
