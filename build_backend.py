"""setuptools as build backend, with a C compiler from the package index where there is none."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ZIG = "ziglang==0.17.1"  # its clang knows GNU C on every platform


def system_compiler() -> list[str]:
    """Return the command of the compiler that is named by ``CC``, or that built Python."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def needs_zig() -> bool:
    """Return whether zig compiles: for another machine, or where no compiler will do."""
    if "TENSORCOMP_ZIG_TARGET" in os.environ:
        return True
    if "CC" in os.environ:
        return False
    return sys.platform == "win32" or not _will_do(system_compiler())


def _will_do(command: list[str]) -> bool:
    """Return whether a compiler is there that knows the processor's levels: gcc from 11 on."""
    if shutil.which(command[0]) is None:
        return False
    level = ["-march=x86-64-v4"] if platform.machine().lower() in ("x86_64", "amd64") else []
    tried = [*command, *level, "-E", "-x", "c", os.devnull]
    return subprocess.run(tried, check=False, capture_output=True).returncode == 0


def _with_compiler(requirements: list[str]) -> list[str]:
    return [*requirements, ZIG] if needs_zig() else requirements


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what building a wheel needs."""
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what an editable installation needs."""
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
