"""Build the kernels: one module, with the same sources compiled once for each processor level.

A C compiler is taken if there is one (``CC``, or what Python was built with), else ``ziglang``,
which `build_backend` then asks pip for. ``TENSORCOMP_ZIG_TARGET`` compiles for another machine, as
``.ci/wheels.py`` does. The build with sanitizers is that of ``tests/kernels/checked.py``.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

from build_backend import ZIG, needs_zig, system_compiler

KERNELS = Path("tensorcomp/kernels")
SOURCES = [str(KERNELS / name) for name in ("module.c", "level.c")]
FLAGS = [
    "-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra", "-g0",
]  # fmt: skip
TARGET = os.environ.get("TENSORCOMP_ZIG_TARGET", "")
USES_ZIG = needs_zig()
# Of AVX-512 what pays is masks and conversions; vectors of 64 bytes cost the decoders more than
# they bring.
LEVELS = {
    "1": ["-march=x86-64"],
    "3": ["-march=x86-64-v3"],
    "4": ["-march=x86-64-v4", "-mprefer-vector-width=256"],
}


class BuildKernels(build_ext):
    """Compile ``level.c`` once a processor level, and link all of it into one module.

    The compiler is called directly: what setuptools knows of compilers is another on each platform,
    and zig is the same on all.
    """

    def build_extension(self, ext: Extension) -> None:
        """Compile and link the module."""
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise SystemExit("expected Python with the global interpreter lock, got free threading")
        temp = Path(self.build_temp)
        temp.mkdir(parents=True, exist_ok=True)
        compiler = _zig_compiler(temp) if USES_ZIG else system_compiler()
        machine = TARGET.split("-")[0] or platform.machine().lower()
        levels = LEVELS if machine in ("x86_64", "amd64") else {"1": []}
        module, level_source = SOURCES
        jobs = [(module, "module", [])]
        for level, options in levels.items():
            named = [f"-DTC_TABLE=tc_level_{level}", *map(_spelled, options)]
            jobs.append((level_source, level, named))

        def compile_one(job: tuple[str, str, list[str]]) -> str:
            source, name, options = job
            target = str(temp / f"{name}.o")
            own = shlex.split(os.environ.get("CFLAGS", ""))
            _run([*compiler, *FLAGS, *options, *own, "-c", source, "-o", target])
            return target

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, jobs))
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        link = ["-s", *shlex.split(os.environ.get("LDFLAGS", ""))]
        if "macos" in TARGET or (sys.platform == "darwin" and not TARGET):
            link += ["-undefined", "dynamic_lookup"]
        if "windows" in TARGET or (sys.platform == "win32" and not TARGET):
            link += [str(_import_library(temp))]
        _run([*compiler, "-shared", *objects, *link, "-o", str(path)])

    def get_ext_filename(self, fullname: str) -> str:
        """Return the module's file, with the suffix of the machine that it is compiled for."""
        name: str = super().get_ext_filename(fullname)
        return str(Path(name.split(".")[0]).with_suffix(".pyd")) if "windows" in TARGET else name


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(f"the C compiler failed: {shlex.join(command)}")


def _spelled(option: str) -> str:
    """Return an option as the compiler spells it: zig calls processors x86_64_v3."""
    return option.replace("x86-64", "x86_64").replace("_64-v", "_64_v") if USES_ZIG else option


def _zig_compiler(temp: Path) -> list[str]:
    return [*_zig(temp), "cc", *(["-target", TARGET] if TARGET else [])]


def _zig(temp: Path) -> list[str]:
    if importlib.util.find_spec("ziglang") is None:
        raise SystemExit(f"expected a C compiler, found none; install one, or pip install {ZIG}")
    # Its caches go where the build goes: a home may be read-only, or absent.
    cache = str(temp.absolute() / "zig")
    os.environ |= {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    return [sys.executable, "-m", "ziglang"]


def _import_library(temp: Path) -> Path:
    """Make the library by which a Windows module finds Python's functions, from ``abi3.h``."""
    declared = re.findall(r"^PY_IMPORT (.*);", (KERNELS / "abi3.h").read_text(), re.MULTILINE)
    lines = ["LIBRARY python3.dll", "EXPORTS"]
    for line in declared:
        data = "(" not in line
        lines += [name + " DATA" * data for name in re.findall(r"\b_?Py[A-Z_]\w+(?=[,(]|$)", line)]
    definition, library = temp / "python3.def", temp / "libpython3.a"
    definition.write_text("\n".join(lines) + "\n")
    machine = ["-m", "i386:x86-64", "-d", str(definition), "-l", str(library)]
    subprocess.run([*_zig(temp), "dlltool", *machine], check=True)
    return library


setup(
    packages=[
        *find_packages(include=["tensorcomp", "tensorcomp.*"]),
        *(f"tensorcomp_{name}" for name in find_packages(include=["cli", "cli.*"])),
    ],
    ext_modules=[
        Extension(
            "tensorcomp.kernels.native",
            SOURCES,
            depends=["build_backend.py", *map(str, sorted(KERNELS.glob("*.[chi]*")))],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
