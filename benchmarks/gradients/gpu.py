"""Compressors on a GPU: GB/s of encoding and decoding, beside casts and the memory's bandwidth.

Run it as `python -m benchmarks.gradients.gpu` on a machine with CUDA; without it, it says so and
ends well. It takes less than five minutes. `--device cpu` runs the same on the CPU, for tests.

Gradients are drawn from Student's t of three degrees on the device. What is timed begins and ends
with an idle device, transfers and the host's coding included; `on the device` are the parts alone
that go to the host. Payloads are compared with those that the host makes of the same gradient.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import torch
import typer

from benchmarks.common.reporting import (
    ABSENT,
    Columns,
    Found,
    JsonPath,
    Markdown,
    Sheet,
    number,
    report,
)
from benchmarks.gradients.speed import summed_alone
from tensorcomp.gradients import Compressor, ErrorFeedback, GradientSpec, Payload, TreeCompressor
from tensorcomp.gradients.compressors.powersgd import PowerSgd
from tensorcomp.gradients.compressors.randomk import RandomK
from tensorcomp.gradients.cuda.blobs import positions_of
from tensorcomp.gradients.cuda.on_device import on_device
from tensorcomp.gradients.cuda.transforms import parts_of
from tensorcomp.gradients.payload.sparse_blobs import is_sparse

PACKAGES = ("tensorcomp", "torch", "numpy")
TREES = (
    "topk(0.01, values=affine(8))",
    "topk(0.001, values=affine(8))",
    "threshold(5.0, values=affine(8))",
    "affine(8)",
    "affine(4)",
    "sign(128)",
    'cast("F16", values=raw)',
    'cast("BF16", values=raw)',
)
ELEMENTS = 1 << 26
CHECKED = 1 << 21  # elements whose payloads are compared: two chunks
COLUMNS = 1 << 12
ROUNDS = 7
SECONDS = 6.0  # of a compressor, after which no more rounds are begun


@dataclass(frozen=True)
class GpuRow:
    """Figures of a compressor on a GPU.

    Speeds are medians of bytes of the uncompressed gradient by seconds; NaN for what it has not.

    Parameters
    ----------
    name : str
    device : float
        Computing the parts and copying them to the host.
    encode, decode : float
        Whole.
    bits : float
        Of what is sent, an element.
    same : str
        Whether the payload is the one that the host makes.
    """

    name: str
    device: float = math.nan
    encode: float = math.nan
    decode: float = math.nan
    bits: float = math.nan
    same: str = ABSENT


@dataclass(frozen=True)
class Bench:
    """Where and on what is measured."""

    device: torch.device
    gradient: torch.Tensor
    rounds: int

    def gbps(self, call: Callable[[], Any]) -> float:
        """Return GB/s of a call on the whole gradient, its first run not counted."""
        call()
        taken: list[float] = []
        started = time.perf_counter()
        while len(taken) < self.rounds and (
            not taken or time.perf_counter() - started < SECONDS / 3
        ):
            self._wait()
            begin = time.perf_counter()
            call()
            self._wait()
            taken.append(time.perf_counter() - begin)
        return self.gradient.numel() * 4 / median(taken) / 1e9

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def student(elements: int, device: torch.device) -> torch.Tensor:
    """Draw a matrix of gradients with heavy tails on a device."""
    random = torch.Generator(device).manual_seed(0)
    normal = torch.randn(elements, generator=random, device=device)
    spread = torch.zeros(elements, device=device)
    for _ in range(3):
        spread += torch.randn(elements, generator=random, device=device).square_()
    return (normal / (spread / 3).sqrt_()).reshape(-1, min(COLUMNS, elements))


def reference_rows(bench: Bench) -> list[GpuRow]:
    """Measure what a device does at best: copy, cast, and select with torch."""
    gradient = bench.gradient
    other = torch.empty_like(gradient)
    half = gradient.half()
    flat = gradient.reshape(-1)
    keep = max(1, flat.numel() // 100)
    cast, back = bench.gbps(gradient.half), bench.gbps(half.float)
    top = bench.gbps(lambda: torch.topk(flat.abs(), keep, sorted=False))
    return [
        GpuRow("memory copied", bench.gbps(lambda: other.copy_(gradient)), bits=32.0),
        GpuRow("fp16 cast, left on the device", cast, decode=back, bits=16.0),
        GpuRow("torch.topk of 1 %, left on the device", top),
        GpuRow("fp32 to the host", encode=bench.gbps(gradient.cpu), bits=32.0),
    ]


def tree_row(bench: Bench, text: str) -> GpuRow:
    """Measure a tree."""
    plain = TreeCompressor.of(text)
    compressor = counterpart(plain, bench.device)
    spec = GradientSpec("w", tuple(bench.gradient.shape))
    state = compressor.init(spec)
    gradient: Any = bench.gradient
    payload, _ = compressor.step(gradient, state)
    received = Payload(payload.data, spec)
    out: Any = torch.zeros(spec.size, device=bench.device)
    return GpuRow(
        text,
        bench.gbps(lambda: _parts_to_host(plain, bench.gradient)),
        bench.gbps(lambda: compressor.step(gradient, state)),
        bench.gbps(lambda: compressor.receive(received).add_to(out, 0.5)),
        8 * len(payload.data) / spec.size,
        _compared(plain, bench),
    )


def _parts_to_host(plain: TreeCompressor, gradient: torch.Tensor) -> list[torch.Tensor]:
    if is_sparse(plain.tree):
        flat = gradient.reshape(-1)
        positions = positions_of(plain.tree.codec, flat)
        return [positions.cpu(), flat[positions].cpu()]
    return [part.cpu() for part in parts_of(plain.tree.codec, gradient).values()]


def _compared(plain: Compressor, bench: Bench) -> str:
    rows = max(1, min(CHECKED, bench.gradient.numel()) // bench.gradient.shape[1])
    gradient: Any = bench.gradient[:rows].contiguous()
    spec = GradientSpec("w", tuple(gradient.shape))
    compressor = counterpart(plain, bench.device)
    found, _ = compressor.step(gradient, compressor.init(spec))
    expected, _ = plain.step(gradient.cpu().numpy(), plain.init(spec))
    return "yes" if found.data == expected.data else "NO"


def feedback_row(bench: Bench, text: str) -> GpuRow:
    """Measure a tree with error feedback, states going on."""
    compressor = counterpart(ErrorFeedback(TreeCompressor.of(text)), bench.device)
    spec = GradientSpec("w", tuple(bench.gradient.shape))
    gradient: Any = bench.gradient
    state = compressor.init(spec)
    sizes = []

    def step() -> None:
        nonlocal state
        payload, state = compressor.step(gradient, state)
        sizes.append(len(payload.data))

    speed = bench.gbps(step)
    return GpuRow(f"{text}, with residual", encode=speed, bits=8 * sizes[-1] / spec.size)


def summed_row(bench: Bench, plain: Compressor) -> GpuRow:
    """Measure a compressor whose arrays are summed: all its phases, by one worker."""
    compressor = counterpart(plain, bench.device)
    spec = GradientSpec("w", tuple(bench.gradient.shape))
    gradient: Any = bench.gradient
    state = compressor.init(spec)
    sent = [0]

    def step() -> None:
        nonlocal state
        sent[0], state = summed_alone(compressor, gradient, state)

    speed = bench.gbps(step)
    return GpuRow(f"{plain.text()}, both ways", encode=speed, bits=8 * sent[0] / spec.size)


def counterpart(plain: Compressor, device: torch.device) -> Compressor:
    """Return what compresses on a device."""
    found = on_device(plain, device)
    if found is None:
        raise ValueError(f"{plain.text()} has no counterpart on {device}")
    return found


def gpu_sheet(rows: Sequence[GpuRow], bench: Bench) -> Sheet:
    """Tabulate speeds."""
    title = f"{bench.gradient.numel() / 1e6:.0f} M fp32 gradients on {device_name(bench.device)}"
    columns: Columns = {
        "compressor": lambda row: row.name,
        "on the device": lambda row: number(row.device, 1),
        "encode, GB/s": lambda row: number(row.encode, 1),
        "decode, GB/s": lambda row: number(row.decode, 1),
        "bits": lambda row: number(row.bits, 3),
        "same bytes": lambda row: row.same,
    }
    return Sheet.of(title, rows, columns)


def device_name(device: torch.device) -> str:
    """Return what a device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def main(
    device: Annotated[str, typer.Option(help="Of torch.")] = "cuda",
    elements: Annotated[int, typer.Option(min=1 << 12, help="Of the gradient.")] = ELEMENTS,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds, at most.")] = ROUNDS,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Time compressors on a device."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        print("skipped: torch finds no CUDA device here; --device cpu runs the same on the CPU")
        return
    where = torch.device(device)
    bench = Bench(where, student(elements - elements % COLUMNS, where), rounds)
    rows = reference_rows(bench)
    rows += [tree_row(bench, text) for text in TREES]
    rows.append(feedback_row(bench, TREES[0]))
    rows += [summed_row(bench, plain) for plain in (RandomK(0.01), PowerSgd(4))]
    found = Found([gpu_sheet(rows, bench)], rows={"gpu": rows})
    about = {"device": device_name(where)}
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
