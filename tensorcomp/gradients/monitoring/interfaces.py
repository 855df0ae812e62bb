"""Bytes that really leave this host, counted by the system."""

from __future__ import annotations

from pathlib import Path

from tensorcomp.errors import GradientError

_INTERFACES = Path("/sys/class/net")


class InterfaceCounter:
    """Counts the bytes that leave a network interface of this host (Linux).

    Parameters
    ----------
    name : str
        ``"eth0"``, say. Traffic of other programs counts too.
    root : Path, optional
        Where the system shows its interfaces.

    Raises
    ------
    GradientError
        If there is no such interface.
    """

    def __init__(self, name: str, root: Path = _INTERFACES) -> None:
        known = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
        if name not in known:
            listed = ", ".join(known) or "none"
            raise GradientError(f"no network interface is called {name!r}; there are: {listed}")
        self._path = root / name / "statistics" / "tx_bytes"
        self._before = self._read()

    def _read(self) -> int:
        return int(self._path.read_text())

    def sent(self) -> int:
        """Return the bytes that were sent since the last call, at first since it was made."""
        now = self._read()
        before, self._before = self._before, now
        return now - before
