"""setuptools as build backend, with a C compiler from the package index where there is none."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ZIG = "ziglang==0.17.1"  # its clang knows GNU C on every platform


def needs_zig() -> bool:
    """Return whether zig compiles: for another machine, or where no compiler knows GNU C."""
    if "TENSORCOMP_ZIG_TARGET" in os.environ:
        return True
    if "CC" in os.environ or sys.platform == "win32":
        return "CC" not in os.environ
    command = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(command) is None


def _with_compiler(requirements: list[str]) -> list[str]:
    return [*requirements, ZIG] if needs_zig() else requirements


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what building a wheel needs."""
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what an editable installation needs."""
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
