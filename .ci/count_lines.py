"""Count the lines of each room: code lines without imports, code lines, all lines.

Code lines are those without blank lines, comments and docstrings. The project's budget counts
code lines without import statements, of ``tensorcomp`` and ``cli``, C apart.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("tensorcomp", "cli", "tests", "benchmarks", "examples", ".ci")
TOTALS = (("tensorcomp", "cli"), ("tests",), ("benchmarks",))
KINDS = {".py": "Python", ".c": "C", ".h": "C", ".inc": "C", ".js": "JavaScript", ".css": "CSS"}
COLUMNS = ("code without imports", "code", "all")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_NO_CODE |= {tokenize.ENDMARKER, tokenize.ENCODING}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_lines(text: str) -> Counter[str]:
    """Return the `COLUMNS` of a Python file."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= _lines_of(node)
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code -= _lines_of(node.body[0])
    return _counted(len(code - imports), len(code), text)


def c_lines(text: str) -> Counter[str]:
    """Return the `COLUMNS` of a file in C, whose includes are its imports, or the like."""
    without = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    code = [line for line in without.splitlines() if line.strip() and line.lstrip()[:3] != "// "]
    imports = sum(line.startswith("#include") for line in code)
    return _counted(len(code) - imports, len(code), text)


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _counted(without_imports: int, code: int, text: str) -> Counter[str]:
    return Counter(dict(zip(COLUMNS, (without_imports, code, len(text.splitlines())), strict=True)))


def main() -> None:
    """Print the lines of each room and language, and the totals."""
    rooms: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            kind = KINDS.get(path.suffix)
            if kind:
                room = "/".join(path.relative_to(ROOT).parts[:-1][:2])
                count = python_lines if kind == "Python" else c_lines
                rooms[room, kind] += count(path.read_text("utf-8"))
    print("".join(f"{column:>21}" for column in COLUMNS))
    for (room, kind), lines in sorted(rooms.items()):
        _print(lines, f"{kind:10}  {room}")
    for folders in TOTALS:
        for kind in dict.fromkeys(KINDS.values()):
            total: Counter[str] = Counter()
            for (room, language), lines in rooms.items():
                if language == kind and room.split("/")[0] in folders:
                    total += lines
            if total:
                _print(total, f"{kind:10}  {' + '.join(folders)} in all")


def _print(lines: Counter[str], label: str) -> None:
    print("".join(f"{lines[column]:21,}" for column in COLUMNS), label, sep="  ")


if __name__ == "__main__":
    main()
