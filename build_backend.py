"""setuptools as build backend, with a C compiler from the package index where there is none."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ZIG = "ziglang==0.17.1"


def has_compiler() -> bool:
    """Return whether a compiler that knows GNU C is installed; on Windows only if CC names it."""
    if "CC" in os.environ or sys.platform == "win32":
        return "CC" in os.environ
    command = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(command) is not None


def _with_compiler(requirements: list[str]) -> list[str]:
    return requirements if has_compiler() else [*requirements, ZIG]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what building a wheel needs."""
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what an editable installation needs."""
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
