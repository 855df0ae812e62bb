"""Build the kernels: one module, with the same sources compiled once for each processor level.

A C compiler is taken if there is one (``CC``, or what Python was built with), else ``ziglang``,
which `build_backend` then asks pip for. ``TENSORCOMP_ZIG_TARGET`` compiles for another machine.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from pathlib import Path

from build_backend import has_compiler
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = Path("tensorcomp/kernels")
FLAGS = [
    "-std=gnu11", "-O3", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-Wall", "-Wextra",
]  # fmt: skip
CHECKED = ["-O1", "-g", "-DTC_CHECKED", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TARGET = os.environ.get("TENSORCOMP_ZIG_TARGET", "")
ZIG = bool(TARGET) or not has_compiler()
MACHINE = TARGET.split("-")[0] or platform.machine().lower()
LEVELS = {"1": "x86-64", "3": "x86-64-v3"} if MACHINE in ("x86_64", "amd64") else {"1": ""}


class BuildKernels(build_ext):
    """Compile ``level.c`` once a processor level, and link all of it into one module."""

    def build_extensions(self) -> None:
        """Take the compiler that is there, or zig's."""
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise SystemExit("tensorcomp needs Python with the global interpreter lock (not 3.13t)")
        if ZIG:
            # Its caches go where the build goes: a home may be read-only, or absent.
            cache = Path(self.build_temp).absolute() / "zig"
            os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache))
            os.environ.setdefault("ZIG_LOCAL_CACHE_DIR", str(cache))
            zig = [sys.executable, "-m", "ziglang", "cc", *(["-target", TARGET] if TARGET else [])]
            self.compiler.set_executables(
                compiler=zig, compiler_so=[*zig, "-fPIC"], linker_so=[*zig, "-shared"]
            )
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Compile and link the module."""
        temp = Path(self.build_temp)
        checked = os.environ.get("TENSORCOMP_CHECKED") == "1"
        flags = [*FLAGS, *(CHECKED if checked else ["-g0"])]
        objects = self.compiler.compile(
            [str(KERNELS / "module.c")], str(temp), extra_postargs=flags, depends=ext.depends
        )
        for level, march in LEVELS.items():
            objects += self.compiler.compile(
                [str(KERNELS / "level.c")],
                str(temp / f"level{level}"),
                macros=[("TC_TABLE", f"tc_level_{level}")],
                extra_postargs=[*flags, *([f"-march={_spelled(march)}"] if march else [])],
                depends=ext.depends,
            )
        path = self.get_ext_fullpath(ext.name)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(
            objects, path, extra_postargs=CHECKED[3:4] if checked else ["-s"]
        )


def _spelled(march: str) -> str:
    return march.replace("-", "_") if ZIG else march


sources = [str(KERNELS / name) for name in ("module.c", "level.c")]
depends = sorted(str(path) for kind in ("*.c", "*.h", "*.inc") for path in KERNELS.glob(kind))
setup(
    ext_modules=[
        Extension("tensorcomp.kernels.native", sources, depends=depends, py_limited_api=True)
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
