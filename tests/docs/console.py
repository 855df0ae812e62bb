"""Run the ``console`` blocks of a page and compare their output with what is printed there.

A line ``$ command`` is run by bash; the lines up to the next one are its output, of standard output
and error together. A line ``…`` stands for any number of lines. Times and speeds are not compared.
Without output, only the exit status counts, which must be 0.
"""

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sybil import Example

ROOT = Path(__file__).resolve().parents[2]
_TIME = re.compile(r"\d[\d.,]* (?:[µm]?s|min|[kMG]?B\/s)\b")
_ELISION = "…"


class Console:
    """Evaluate console blocks in a folder; with `regenerate`, collect outputs that differ."""

    def __init__(self, folder: Path, *, regenerate: bool) -> None:
        self.folder = folder
        self.regenerate = regenerate
        self.changes: list[tuple[str, str]] = []

    def __call__(self, example: Example) -> str | None:
        """Run a block and return what is wrong with it, if anything is."""
        old = str(example.parsed)
        new = []
        for command, expected in commands(old):
            status, output = self.run(command.removeprefix("$ ").replace("\n> ", "\n"))
            if status:
                return f"{command}\nexited with {status}:\n" + "\n".join(output)
            if expected and not matches(expected, output):
                if not self.regenerate:
                    return "\n".join(difflib.unified_diff(expected, output, "page", "run", n=1))
                expected = elided(expected, output)
            new += [command, *expected]
        if (text := "\n".join(new) + "\n") != old:
            self.changes.append((old, text))
        return None

    def run(self, command: str) -> tuple[int, list[str]]:
        """Return the exit status and the lines of output of a command."""
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        environment["PYTHONPATH"] = f"{self.folder}{os.pathsep}{ROOT}"
        environment["OMP_NUM_THREADS"] = "1"  # otherwise torchrun warns that it sets it
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=120,
        )
        lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
        return done.returncode, [line for line in lines if line]

    def rewrite(self, page: Path) -> None:
        """Put the collected outputs into the page."""
        text = page.read_text("utf-8")
        for old, new in self.changes:
            assert text.count(old) == 1, f"{page}: expected one block\n{old}"
            text = text.replace(old, new)
        page.write_text(text, "utf-8")


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a block, with its continuation lines, and its lines of output."""
    command, output = "", []
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, output
            command, output = line, []
        elif line.startswith("> ") and not output:
            command += f"\n{line}"
        elif line.strip():
            output.append(line.rstrip())
    assert command, f"expected a line that begins with '$ ', got {block!r}"
    yield command, output


def matches(expected: list[str], output: list[str]) -> bool:
    """Return whether output is as expected but for times and elided lines."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line.strip() == _ELISION else re.escape(_comparable(line) + "\n")
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{_comparable(line)}\n" for line in output)) is not None


def elided(expected: list[str], output: list[str]) -> list[str]:
    """Return output without the lines that an ellipsis stood for before."""
    places = [i for i, line in enumerate(expected) if line.strip() == _ELISION]
    if not places:
        return output
    before, after = places[0], len(expected) - places[-1] - 1
    return [*output[:before], _ELISION, *output[len(output) - after :]]


def _comparable(line: str) -> str:
    return re.sub(r"\s+", " ", _TIME.sub("#", line)).strip()
