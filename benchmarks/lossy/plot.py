"""Plot the SNR of MiniLM's matrices against bits a weight, beside GGUF and NNCodec.

Run it as `python -m benchmarks.lossy.plot docs/assets/rate_distortion.svg` with the packages that
`benchmarks.rate_distortion` names. SNR is the mean over the matrices, weighted by their elements;
bits of tensorcomp and NNCodec count every byte of their files, those of GGUF its blocks alone.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import ggml, nncodec
from benchmarks.common.checkpoints import Tensors, is_weight, minilm
from benchmarks.common.distortion import DB_A_BIT, mean_snr, snr_by_tensor
from benchmarks.common.reporting import Columns, Found, JsonPath, Markdown, Sheet, note, report
from benchmarks.lossy import budgets

OURS, GGUF, NNCODEC = "tensorcomp", "GGUF, no importance matrix", "NNCodec"
SNRS = (7.0, 10.44, 16.28, 22.78, 28.69, 34.82, 40.0, 45.15, 48.0)
STEPS = (-16, -20, -24, -28, -32, -36, -40)  # four `qp` less halve NNCodec's step
PACKAGES = ("tensorcomp", "numpy", "pywhispercpp", "nncodec", "matplotlib")

# Read well on white and on black: the picture has no background of its own.
_COLOURS = {OURS: "#2f81f7", GGUF: "#db6d28", NNCODEC: "#8957e5", "grey": "#7d8590"}
_MARKS = {OURS: "o", GGUF: "s", NNCODEC: "^"}


@dataclass(frozen=True)
class Point:
    """A format at one of its rates: bits a weight, and mean SNR in dB."""

    format: str
    setting: str
    bits: float
    snr: float


def points(matrices: Tensors) -> Iterator[Point]:
    """Store matrices in every format that is installed, at every rate."""

    def point(name: str, setting: str, nbytes: int, decoded: Tensors) -> Point:
        snr = mean_snr(snr_by_tensor(matrices, decoded), matrices)
        return Point(name, setting, budgets.bits(nbytes, matrices), snr)

    for snr in SNRS:
        coded = budgets.at_snr(matrices, dict.fromkeys(matrices, snr), "balanced")
        yield point(OURS, f"{snr:g} dB", coded.nbytes, coded.decoded)
    try:
        for kind in ggml.KINDS:
            blocks = {name: ggml.quantized(kind, matrix) for name, matrix in matrices.items()}
            size = sum(nbytes for nbytes, _ in blocks.values())
            yield point(
                GGUF, kind.upper(), size, {name: back for name, (_, back) in blocks.items()}
            )
    except ggml.MissingGgmlError as error:
        note(f"GGUF is left out: {error}")
    reason = nncodec.unavailable()
    if reason is not None:
        note(f"NNCodec is left out: {reason}")
        return
    for qp in STEPS:
        streams = {name: nncodec.encode(matrix, qp) for name, matrix in matrices.items()}
        back = {name: nncodec.decode(stream) for name, stream in streams.items()}
        yield point(NNCODEC, f"qp {qp}", sum(map(len, streams.values())), back)


def sheet(found: Iterable[Point]) -> Sheet:
    """Tabulate the points."""
    columns: Columns = {
        "format": lambda p: p.format,
        "setting": lambda p: p.setting,
        "bits a weight": lambda p: f"{p.bits:.3f}",
        "SNR dB": lambda p: f"{p.snr:.2f}",
    }
    return Sheet.of("MiniLM, the 39 matrices of at least 4,096 weights", found, columns)


def draw(found: Iterable[Point], path: Path) -> None:
    """Draw the points, and the limit of a Gaussian; the same points give the same file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    grey = _COLOURS["grey"]
    style: dict[Any, Any] = {"svg.hashsalt": "tensorcomp", "font.size": 11, "text.color": grey}
    style |= {f"{where}color": grey for where in ("axes.label", "axes.edge", "xtick.", "ytick.")}
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        by_format: dict[str, list[Point]] = {}
        for point in found:
            by_format.setdefault(point.format, []).append(point)
        for name, own in by_format.items():
            own.sort(key=lambda point: point.bits)
            line = "none" if name == GGUF else "-"  # separate formats, not one that is tuned
            axes.plot(
                [point.bits for point in own],
                [point.snr for point in own],
                color=_COLOURS[name],
                linestyle=line,
                marker=_MARKS[name],
                label=name,
            )
        for point in by_format.get(GGUF, []):
            place = (point.bits, point.snr)
            axes.annotate(point.setting, place, (7, -4), textcoords="offset points", size=9)
        top = math.ceil(max(point.bits for own in by_format.values() for point in own))
        axes.plot(
            (1, top),
            (DB_A_BIT, top * DB_A_BIT),
            ":",
            color=grey,
            label="R(D), independent Gaussian",
        )
        axes.set(xlabel="bits per weight", ylabel="SNR, dB", xlim=(1, top), ylim=(5, 50))
        axes.grid(color=grey, alpha=0.25)
        axes.legend(frameon=False, loc="upper left")
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def main(
    path: Annotated[Path, typer.Argument(help="Where the picture goes: .svg, .png or .pdf.")],
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Measure rates and SNR, and draw them."""
    large = {name: tensor for name, tensor in minilm().items() if tensor.size >= budgets.SMALLEST}
    matrices = {name: tensor for name, tensor in large.items() if is_weight(tensor)}
    found = list(points(matrices))
    draw(found, path)
    report(
        Found([sheet(found)], rows={"points": found}),
        PACKAGES,
        markdown=markdown,
        json_path=json_path,
    )


if __name__ == "__main__":
    typer.run(main)
