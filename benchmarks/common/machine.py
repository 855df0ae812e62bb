"""Describe the machine that figures were taken on."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cpu_model() -> str:
    """Return the processor's name, as well as the system reports it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def described(packages: Iterable[str]) -> dict[str, str]:
    """Tell the machine and the versions of packages."""
    return {
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version_of(name)}" for name in packages),
    }


def version_of(package: str) -> str:
    """Return the installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous resident bytes of a process; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
