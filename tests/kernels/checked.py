"""The checked build of the kernels: arrays of exactly their size, AddressSanitizer and UBSan.

`build` compiles them; a Python run in `environment` with `use_checked` called first has them in
place of the others. A mistake of a kernel then ends the process, with a report on stderr.
"""

import getpass
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "tensorcomp" / "kernels"
CACHE = (
    Path(os.environ.get("TENSORCOMP_CHECKED_CACHE", tempfile.gettempdir()))
    / f"tc-checked-{getpass.getuser()}"
)
MODULE = "TENSORCOMP_CHECKED_MODULE"  # the variable that names the built file
FLAGS = [
    "-std=gnu11", "-O1", "-g1", "-fPIC", "-shared", "-w", "-fvisibility=hidden", "-fwrapv",
    "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fno-sanitize-recover=all", "-DTC_CHECKED", "-DTC_ONE_LEVEL", "-DTC_TABLE=tc_level_1",
]  # fmt: skip
MEMORY_MB = 1024  # an allocation above this fails


def missing() -> str | None:
    """Return why there can be no checked build here, None if there can."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        return "no gcc"
    return None if _library("libasan.so").is_absolute() else "gcc without AddressSanitizer"


def build(changes: Mapping[tuple[str, str], str] | None = None, sanitize: str = "") -> Path:
    """Return the checked module, built unless there is one of the same sources.

    Parameters
    ----------
    changes : mapping of (str, str) to str, optional
        For a file and a text in it that occurs once, the text to put in its place.
    sanitize : str
        Which sanitizers; by default AddressSanitizer and UBSan.
    """
    sanitize = sanitize or "address,undefined"
    sources = {path.name: path.read_text() for path in sorted(KERNELS.glob("*.[chi]*"))}
    for (name, old), new in (changes or {}).items():
        if sources[name].count(old) != 1:
            raise ValueError(f"{name} has {old!r} {sources[name].count(old)} times, not once")
        sources[name] = sources[name].replace(old, new)
    digest = hashlib.sha256(repr((sources, FLAGS, sanitize)).encode()).hexdigest()[:16]
    built = CACHE / digest / "native.abi3.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            folder = Path(scratch)
            for name, text in sources.items():
                (folder / name).write_text(text)
            command = ["gcc", *FLAGS, f"-fsanitize={sanitize}", "module.c", "level.c"]
            subprocess.run([*command, "-o", "native.so"], cwd=folder, check=True)
            (folder / "native.so").rename(built)
    return built


def environment(module: Path) -> dict[str, str]:
    """Return the environment of a Python that can load a checked module."""
    options = "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16"
    return {
        **os.environ,
        MODULE: str(module),
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libubsan.so')}",
        "ASAN_OPTIONS": f"{options}:max_allocation_size_mb={MEMORY_MB}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
        "OPENBLAS_NUM_THREADS": "1",
    }


def use_checked() -> None:
    """Put the module that the environment names in the kernels' place, before they are imported."""
    name = "tensorcomp.kernels.native"
    if name in sys.modules:
        raise RuntimeError("the kernels are imported already")
    spec = importlib.util.spec_from_file_location(name, os.environ[MODULE])
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def _library(name: str) -> Path:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
    return Path(found.stdout.strip())
