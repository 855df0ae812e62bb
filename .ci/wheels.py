"""Build the release wheels of all platforms on one machine: ``python .ci/wheels.py [FOLDER]``.

zig compiles for each of them; ``pip install setuptools ziglang`` goes before. Every wheel's names,
tags and size are checked; whether it works is checked by the workflow, on machines of its kind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TARGETS = {  # what zig calls a machine: what a wheel calls it
    "x86_64-linux-gnu.2.17": "manylinux2014_x86_64",
    "aarch64-linux-gnu.2.17": "manylinux2014_aarch64",
    "x86_64-linux-musl": "musllinux_1_2_x86_64",
    "aarch64-linux-musl": "musllinux_1_2_aarch64",
    "x86_64-macos.11.0": "macosx_11_0_x86_64",
    "aarch64-macos.11.0": "macosx_11_0_arm64",
    "x86_64-windows-gnu": "win_amd64",
}
MAX_BYTES = 4_000_000
ROOT = Path(__file__).parent.parent


def build(target: str, tag: str, folder: Path) -> Path:
    """Build the wheel of one platform and return where it is."""
    with tempfile.TemporaryDirectory() as temp:
        source = Path(temp) / "source"  # of its own: what was built for others stays out of it
        skip = shutil.ignore_patterns(
            ".*", "build", "dist", "*.so", "*.pyd", "*.egg-info", "tests", "venv*"
        )
        shutil.copytree(ROOT, source, ignore=skip)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        options = [f"--wheel-dir={temp}", f"--config-settings=--build-option=--plat-name={tag}"]
        environment = {**os.environ, "TENSORCOMP_ZIG_TARGET": target}
        subprocess.run([*pip, *options, "./source"], check=True, cwd=temp, env=environment)
        (built,) = Path(temp).glob("*.whl")
        return Path(shutil.move(built, folder / built.name))


def check(wheel: Path, tag: str) -> None:
    """Raise ValueError if a wheel's tag, module or size is not what it should be."""
    if not wheel.stem.endswith(f"-cp311-abi3-{tag}"):
        raise ValueError(f"{wheel.name}: expected the tag cp311-abi3-{tag}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    module = f"tensorcomp/kernels/native.{'pyd' if 'win_' in tag else 'abi3.so'}"
    found = [name for name in names if name.endswith((".so", ".pyd"))]
    if found != [module]:
        raise ValueError(f"{wheel.name}: expected {module} alone, got {found}")
    if wheel.stat().st_size > MAX_BYTES:
        raise ValueError(f"{wheel.name}: expected at most {MAX_BYTES} bytes")


def main() -> None:
    """Build and check all wheels, or those whose target contains the second argument."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    for target, tag in TARGETS.items():
        if wanted in target:
            wheel = build(target, tag, folder)
            check(wheel, tag)
            print(f"{wheel.stat().st_size:9,} {wheel.name}", flush=True)


if __name__ == "__main__":
    main()
