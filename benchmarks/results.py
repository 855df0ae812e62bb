"""Rewrite sections of RESULTS.md by the commands that stand in their markers.

`python -m benchmarks.results` lists sections and commands; `python -m benchmarks.results lossless`
runs one and replaces its section.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path(__file__).with_name("RESULTS.md")
_SECTION = re.compile(
    r"(?P<begin><!-- begin (?P<name>\S+): (?P<command>.+) -->\n)"
    r"(?P<body>.*?)(?P<end><!-- end (?P=name) -->)",
    re.DOTALL,
)


def commands(text: str) -> dict[str, str]:
    """Return the command of each section, by the section's name."""
    return {found["name"]: found["command"] for found in _SECTION.finditer(text)}


def replaced(text: str, name: str, body: str) -> str:
    """Return the text with another body in one section."""

    def section(found: re.Match[str]) -> str:
        if found["name"] != name:
            return found[0]
        return f"{found['begin']}\n{body.strip()}\n\n{found['end']}"

    return _SECTION.sub(section, text)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Sections; none lists them.")] = None,
) -> None:
    """Run the commands of sections, one after the other, and replace what they printed before."""
    known = commands(RESULTS.read_text())
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"expected one of {', '.join(known)}, got {name!r}")
    for name, command in known.items():
        if not names:
            print(f"{name}: {command}")
        elif name in names:
            arguments = [sys.executable, *shlex.split(command)[1:]]
            printed = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
            RESULTS.write_text(replaced(RESULTS.read_text(), name, printed.stdout))


if __name__ == "__main__":
    typer.run(main)
