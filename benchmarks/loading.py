"""Load models by transformers: compressed or not, each time in a process of its own.

A process imports transformers, loads the model, touches every page of its weights, and tells the
seconds of that and its largest resident memory. The ways take turns. ``again`` is the median of
three further loads in the process. Versions: tests/ecosystem.txt.
"""

import compileall
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

import tensorcomp
from benchmarks.common.checkpoints import MEBIBYTE, MINILM
from benchmarks.common.reporting import (
    Columns,
    Found,
    JsonPath,
    Limit,
    Markdown,
    Sheet,
    note,
    number,
    report,
)

PACKAGES = ("tensorcomp", "safetensors", "torch", "transformers", "z4ai")
MOST_TIME, MOST_MEMORY = 2.5, 1.3  # times those of plain files


def plainly(folder: str) -> Any:
    """Load ordinary files."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder)


def by_hook(folder: str) -> Any:
    """Load compressed files where all of the process reads them."""
    from transformers import AutoModel

    import tensorcomp.hub

    tensorcomp.hub.enable()
    return AutoModel.from_pretrained(folder, variant="tc")


def without_a_patch(folder: str) -> Any:
    """Load compressed files by slices as the state dict."""
    from transformers import AutoModel

    import tensorcomp.hub

    return tensorcomp.hub.from_pretrained(AutoModel, folder)


def by_z4ai(folder: str) -> Any:
    """Load z4ai's files by its hook, which must come before transformers."""
    from z4ai.integrations import enable_hf

    enable_hf()
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder, variant="z4ai")


WAYS: dict[str, tuple[Callable[[str], Any], str]] = {
    "safetensors": (plainly, "plain"),
    "hub.enable": (by_hook, "tc"),
    "hub.from_pretrained": (without_a_patch, "tc"),
    "z4ai enable_hf": (by_z4ai, "z4ai"),
}


@dataclass(frozen=True)
class Loaded:
    """Figures of one way to load a model: medians of the processes."""

    model: str
    way: str
    nbytes: int
    seconds: float
    again: float
    resident: float


def work(way: str, folder: str) -> None:
    """Load a model and print figures, in a process of its own."""
    load, _ = WAYS[way]
    if way.startswith("z4ai"):
        from z4ai.integrations import enable_hf

        enable_hf()
    from transformers import AutoConfig, AutoModel, logging

    logging.disable_progress_bar()
    AutoModel._model_mapping[type(AutoConfig.from_pretrained(folder))]  # imports the architecture
    times, digests = [], set()
    for _ in range(4):
        begun = time.perf_counter()
        model = load(folder)
        for parameter in model.parameters():
            parameter.detach().view(-1)[::512].sum()
        times.append(time.perf_counter() - begun)
        if len(times) == 1:
            resident = peak_resident()
            digests.add(digest(model))
        del model
        gc.collect()
    figures = {"seconds": times[0], "again": median(times[1:]), "resident": resident}
    print(json.dumps(figures | {"digest": digests.pop()}))


def peak_resident() -> int:
    """Return the largest resident bytes of this process since its start.

    `ru_maxrss` begins with that of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def digest(model: Any) -> str:
    """Return the digest of all weights."""
    import xxhash

    from tensorcomp._torch_arrays import torch_to_numpy

    found = xxhash.xxh3_128()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(torch_to_numpy(name, tensor).tobytes())
    return found.hexdigest()


def make_models(scratch: Path) -> dict[str, Path]:
    """Write the models' folders: MiniLM as published, and a Llama of random weights in shards."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    minilm, llama = scratch / "minilm", scratch / "llama"
    shutil.copytree(MINILM.locate().parent, minilm)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16_000,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=2048,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(llama, max_shard_size="80MB")
    return {"MiniLM, fp32, 1 file": minilm, "Llama, bf16, 3 shards": llama}


def compress_all(plain: Path) -> dict[str, Path]:
    """Return the folder of each form of a model."""
    folders = {"plain": plain, "tc": tensorcomp.compress(plain).path}
    try:
        from z4ai.safetensors import compress_file
    except ImportError:
        return folders
    folders["z4ai"] = target = plain.with_name(f"{plain.name}.z4ai")
    shutil.copytree(plain, target)
    for file in target.glob("*.safetensors"):
        compress_file(str(file), str(file.with_suffix(".z4ai.safetensors")))
        file.unlink()
    for index in target.glob("*.index.json"):
        text = index.read_text().replace(".safetensors", ".z4ai.safetensors")
        index.with_name(index.name.replace(".json", ".z4ai.json")).write_text(text)
    return folders


def measure(model: str, plain: Path, rounds: int) -> list[Loaded]:
    """Load a model by every way, in turns."""
    folders = compress_all(plain)
    ways = {way: folders[form] for way, (_, form) in WAYS.items() if form in folders}
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for turn in range(rounds):
        note(f"{model}: turn {turn + 1} of {rounds}")
        for way, folder in ways.items():
            command = [sys.executable, "-m", "benchmarks.loading", "--work", way, str(folder)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                note(f"{way}: {done.stderr.strip().splitlines()[-1]}")
            else:
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
    digests = {run["digest"] for runs in found.values() for run in runs}
    if len(digests) != 1:
        raise ValueError(f"{model}: the ways give other weights")
    rows = []
    for way, runs in found.items():
        if runs:
            middle = {key: median(run[key] for run in runs) for key in runs[0] if key != "digest"}
            nbytes = sum(file.stat().st_size for file in ways[way].glob("*.safetensors"))
            rows.append(Loaded(model, way, nbytes, **middle))
    return rows


COLUMNS: Columns = {
    "model": lambda row: row.model,
    "way": lambda row: row.way,
    "files, MiB": lambda row: number(row.nbytes / MEBIBYTE, 1),
    "load, s": lambda row: number(row.seconds, 3),
    "again, s": lambda row: number(row.again, 3),
    "peak resident, MiB": lambda row: number(row.resident / MEBIBYTE, 0),
}


def main(
    rounds: Annotated[int, typer.Option(help="Processes of each way.")] = 7,
    work_on: Annotated[tuple[str, str] | None, typer.Option("--work", hidden=True)] = None,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Measure time and memory of loading models."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    if work_on is not None:
        work(*work_on)
        return
    compileall.compile_dir(Path(tensorcomp.__file__).parent, quiet=2)  # as an installation does
    rows, limits = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for model, plain in make_models(Path(scratch)).items():
            first, *others = measured = measure(model, plain, rounds)
            rows += measured
            for row in others:
                if row.way.startswith("hub"):
                    what = f"{row.way} / safetensors, {model}"
                    limits += [
                        Limit(f"time of {what}", row.seconds / first.seconds, MOST_TIME),
                        Limit(f"memory of {what}", row.resident / first.resident, MOST_MEMORY),
                    ]
    sheets = [Sheet.of("Load a model by transformers", rows, COLUMNS)]
    about = {"processes": f"{rounds} of each way, in turns; medians. Weights equal bit for bit"}
    report(
        Found(sheets, limits, {"loaded": rows}),
        PACKAGES,
        about,
        markdown=markdown,
        json_path=json_path,
    )


if __name__ == "__main__":
    typer.run(main)
