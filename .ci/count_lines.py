"""Count code lines by room; blank lines, comments and docstrings do not count."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("tensorcomp", "cli", "tests", "benchmarks", "examples", ".ci")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_NO_CODE |= {tokenize.ENDMARKER, tokenize.ENCODING}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_lines(text: str) -> int:
    """Return the lines of Python on which a token of code stands."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def c_lines(text: str) -> int:
    """Return the lines of C that hold more than comments."""
    without = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    return sum(bool(line.strip()) for line in without.splitlines())


def main() -> None:
    """Print the code lines of each room, and of each language."""
    rooms: Counter[tuple[str, str]] = Counter()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            kind = {".py": "Python", ".c": "C", ".h": "C", ".inc": "C"}.get(path.suffix)
            if kind:
                parts = path.relative_to(ROOT).parts[:-1]
                count = python_lines if kind == "Python" else c_lines
                rooms["/".join(parts[:2]), kind] += count(path.read_text("utf-8"))
    for (room, kind), lines in sorted(rooms.items()):
        print(f"{lines:7,}  {kind:6}  {room}")
    for kind in ("Python", "C"):
        print(f"{sum(n for (_, k), n in rooms.items() if k == kind):7,}  {kind:6}  in all")


if __name__ == "__main__":
    sys.exit(main())
