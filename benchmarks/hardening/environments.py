"""Run every verb in hostile environments, each in a process and a folder of its own.

Verbs come from the command line's own table. A run must end in time, with a status that the
environment allows and without a traceback; leave its inputs as they were and nothing behind but its
output, with the permissions of any new file; and print nothing that moves the cursor or turns the
direction of text. `python -m benchmarks.hardening.environments` prints a row an environment.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product, repeat
from pathlib import Path
from typing import Annotated

import click
import numpy as np
import typer
from safetensors.numpy import save_file

from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, end, note
from benchmarks.hardening.surroundings import NAMES, Environment, environments

ROOT = Path(__file__).parents[2]
RUN = "\nimport sys; from tensorcomp_cli.entry import run; run()"
LIMIT = 120  # seconds of a run
NET = """import torch
model = torch.nn.Linear(3, 2)
data = [(torch.ones(4, 3), torch.zeros(4, dtype=torch.long))]
"""
# What a verb is given in place of MODEL, and -o OUT if it has that option.
ARGUMENTS: Mapping[str, Sequence[str]] = {
    "compress": (
        *("MODEL -o OUT", "FOLDER -o OUT"),
        "MODEL -o OUT --min-snr 30 --prune magnitude --sparsity 0.5",
    ),
    "decompress": ("PACKED -o OUT",),
    "verify": ("PACKED --against MODEL",),
    "compare": ("MODEL PACKED",),
    "calibrate": ("--model net.py:model --data net.py:data -o OUT",),
    "sparsity": ("MODEL --all --keep-indices OUT",),
    "bench": ("MODEL --codec kmeans(4)",),
    "gradients estimate": ("--parameters 1e5 --world 2 --bandwidth 1gbit --compressor int8",),
    "completion": ("bash",),
}


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Yield every verb of the command line, those of groups among them, by its words."""
    from tensorcomp_cli.main import app

    groups: list[tuple[str, click.Group]] = [("", app)]
    for words, group in groups:
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            if isinstance(found, click.Group):
                groups.append((f"{words}{name} ", found))
            elif found is not None:
                yield f"{words}{name}", found


def command_lines(forms: Iterable[str]) -> Iterator[str]:
    """Yield command lines of every verb, in every form of output that it has."""
    for verb, command in verbs():
        options = {option for param in command.params for option in param.opts}
        usual = "MODEL -o OUT" if "-o" in options else "MODEL"
        for given, form in product(ARGUMENTS.get(verb, (usual,)), forms):
            if not form or {form, form[:2]} & options:
                yield f"{verb} {given} {form}".strip()


def make_inputs(folder: Path) -> None:
    """Make a checkpoint, the same compressed and in a folder, and a network."""
    import tensorcomp

    random = np.random.default_rng(0)
    shapes = {name: (64, 80) if "weight" in name else (3, 5) for name in NAMES}
    tensors = {name: random.normal(0, 0.02, shapes[name]).astype(np.float32) for name in NAMES}
    (folder / "several").mkdir(parents=True)
    save_file(tensors, folder / "sound")
    tensorcomp.compress(folder / "sound", folder / "packed.tc.safetensors", threads=1)
    shutil.copy(folder / "sound", folder / "several" / "a.safetensors")
    (folder / "net.py").write_text(NET)


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and content of everything in a folder, links not followed."""
    found = {}
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            plain = path.is_file() and not path.is_symlink()
            found[str(path)] = path.lstat().st_mode, path.read_bytes() if plain else b""
    return found


def run(environment: Environment, line: str, made: Path) -> list[str]:
    """Return what is wrong with a run of a command line; `made` has what `main` prepares."""
    with tempfile.TemporaryDirectory(prefix="environments-") as name:
        folder = Path(name, "work")
        shutil.copytree(made / "inputs", folder)
        (folder / environment.model).parent.mkdir(parents=True, exist_ok=True)
        places = {
            "MODEL": (folder / "sound").rename(folder / environment.model),
            "PACKED": folder / "packed.tc.safetensors",
            "FOLDER": folder / "several",
            "OUT": folder / environment.output,
            "INSTALLED": made / "installed",
        }
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        variables |= {key: str(path) for key, path in places.items()}
        for key, value in environment.variables.items():
            variables[key] = str(places.get(value, value))
        before = listing(folder)
        start = ["bash", "-c", environment.shell, "bash", sys.executable, "-c"]
        arguments = [str(places.get(word, word)) for word in line.split()]
        try:
            done = subprocess.run(
                [*start, environment.python + RUN, *arguments],
                cwd=folder,
                env=variables,
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [f"not done in {LIMIT} s"]
        new = {path: what for path, what in listing(folder).items() if before.get(path) != what}
        faults = [*faults_of_text(done, line), *faults_of_files(new, places["OUT"], environment)]
        if done.returncode not in environment.statuses:
            faults.append(f"status {done.returncode}: {done.stderr[-300:]!r}")
        return faults


def faults_of_text(done: subprocess.CompletedProcess[bytes], line: str) -> Iterator[str]:
    """Yield what is wrong with what a run has printed."""
    text, said = (stream.decode(errors="surrogateescape") for stream in (done.stdout, done.stderr))
    for row in (*text.split("\n"), *said.split("\n")):
        if not row.isprintable():
            yield f"raw {row[:120]!a}"
    if "Traceback" in said or "unexpected" in said:
        yield said[-300:]
    if len(said.splitlines()) > 1 and "-vv" not in line:
        yield f"more than a line on stderr: {said[:200]!a}"
    if re.search(r"-\d[\d.]* (?:ms|s)\b|_?seconds\": -", text):
        yield "a negative time"
    if line.endswith("--json") and text:
        try:
            tensors = json.loads(text).get("tensors", [])
        except ValueError as error:
            yield f"no JSON: {error}"
            return
        names = {tensor if isinstance(tensor, str) else tensor["name"] for tensor in tensors}
        if "net.py" not in line and not names <= set(NAMES):
            yield f"names {sorted(names - set(NAMES))!a} in JSON"


def faults_of_files(
    new: Mapping[str, tuple[int, bytes]], out: Path, environment: Environment
) -> Iterator[str]:
    """Yield what is wrong with what a run has left behind."""
    mask = 0o022
    if environment.name.startswith("umask"):
        mask = int(environment.name.removeprefix("umask "), 8)
    for path, (mode, _) in new.items():
        if stat.S_ISLNK(mode) or "nowhere" in path:  # what the environment has made, or leads to
            continue
        usual = 0o777 if stat.S_ISDIR(mode) else 0o666
        if path != str(out) and not path.startswith(f"{out}/"):
            yield f"left {path!a}"
        elif stat.S_IMODE(mode) != usual & ~mask:
            yield f"mode {mode:o} of {path!a}"


def main(
    only: Annotated[str, typer.Option(help="Environments whose names hold this text.")] = "",
    skip: Annotated[str, typer.Option(help="Verbs that are not run.")] = "",
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Run every verb in every environment."""
    rows: list[tuple[str, ...]] = []
    failed = 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        made = Path(name)
        make_inputs(made / "inputs")
        for package, source in {"tensorcomp": "tensorcomp", "tensorcomp_cli": "cli"}.items():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, made / "installed" / package, ignore=ignored)
        subprocess.run(["chmod", "-R", "a-w", made / "installed"], check=True)
        for environment in environments():
            if only not in environment.name:
                continue
            lines = [*command_lines(environment.forms)]
            lines = [line for line in lines if line.split()[0] not in skip.split()]
            ended = list(pool.map(run, repeat(environment), lines, repeat(made)))
            for line, faults in zip(lines, ended, strict=True):
                if faults:
                    note(f"{environment.name}: {line}: {'; '.join(faults)}")
            bad = sum(map(bool, ended))
            rows.append((environment.name, str(len(lines)), str(bad)))
            failed += bad
            note(" ".join(rows[-1]))
        subprocess.run(["chmod", "-R", "u+w", made / "installed"], check=True)
    sheet = Sheet("Verbs in hostile environments", ("environment", "runs", "faults"), tuple(rows))
    found = Found([sheet], [Limit("runs with a fault", failed, 0)])
    end(found, ["tensorcomp", "click"], markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
