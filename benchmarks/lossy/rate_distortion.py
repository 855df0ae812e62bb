"""Bits a weight at equal error: tensorcomp beside GGUF's formats, NNCodec and the limit R(D).

Run it as `python -m benchmarks.rate_distortion` after `pip install -e '.[bench]'`,
`pip install --no-deps pywhispercpp==1.5.1` (which carries ggml), and
`pip install pybind11 && pip install --no-deps nncodec==2.1.3`. Peers and tensorcomp run in the same
process, in turns. SNR is measured on what each decodes.
"""

from typing import Annotated

import typer

from benchmarks.common import ggml
from benchmarks.common import nncodec as nncodec_peer
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
from benchmarks.lossy.rates import (
    EFFORTS,
    SOURCE_BITS,
    DecodeRow,
    GgufRow,
    NncodecRow,
    SourceRow,
    decode_rows,
    gguf_rows,
    nncodec_rows,
    source_rows,
)

GGUF_LIMITS = {  # bits a weight of the whole file, by default and at most effort
    "q8_0": (7.50, 7.46),
    "q6_K": (5.79, 5.75),
    "q4_K": (3.74, 3.70),
    "q3_K": (2.74, 2.70),
    "q2_K": (1.86, 1.82),
}
ABOVE_LIMITS = {"default": 0.11, "max": 0.09}
LEAST_JUDGED_BITS = 1.99
TIMES_NNCODEC = {"default": {"encode": 200, "decode": 50}, "max": {"encode": 30, "decode": 30}}
DECODE_BITS = 4.0
DECODE_LIMIT = 150.0
THREADS = 2
QUICK_KINDS = ("q4_K",)
PACKAGES = ("tensorcomp", "numpy", "pywhispercpp", "nncodec")


def gguf_sheet(rows: list[GgufRow]) -> Sheet:
    """Tabulate MiniLM beside GGUF."""
    body = []
    for row in rows:
        limits = GGUF_LIMITS.get(row.kind, (None, None))
        cells = [
            f"{number(row.bits.get(effort), 3)} ({number(limit)})"
            for effort, limit in zip(EFFORTS, limits, strict=True)
        ]
        snr = f"{row.mean_snr:.2f} ({row.lowest_snr:.2f})"
        body.append((row.kind, snr, f"{row.gguf_bits:.3f}", f"{row.gguf_file_bits:.3f}", *cells))
    columns = ("format", "SNR dB, mean (lowest)", "GGUF bpw", "GGUF file bpw")
    ours = tuple(f"tensorcomp {effort} (limit)" for effort in EFFORTS)
    title = (
        "MiniLM at the SNR of each GGUF format on every matrix: bits a weight"
        " (GGUF: of the matrices, and of a file with the rest in fp32; tensorcomp: of the whole"
        " file)"
    )
    return Sheet(title, columns + ours, tuple(body))


def source_sheet(rows: list[SourceRow]) -> Sheet:
    """Tabulate independent weights beside R(D)."""
    body = []
    for row in rows:
        cells = [
            cell
            for effort in EFFORTS
            for cell in (number(row.bits.get(effort), 3), number(row.above.get(effort), 3))
        ]
        body.append((row.source, f"{row.snr:.2f}", *cells))
    ours = tuple(column for effort in EFFORTS for column in (f"{effort} bpw", "above R(D)"))
    title = "Independent weights, 1024 × 1024: bits a weight of the whole file, Gaussian R(D)"
    return Sheet(title, ("source", "SNR dB", *ours), tuple(body))


def nncodec_sheet(rows: list[NncodecRow]) -> Sheet:
    """Tabulate NNCodec's bytes and speeds, and tensorcomp's over them."""
    body = []
    for row in rows:
        speeds = f"{row.speed('encode'):.1f} / {row.speed('decode'):.1f}"
        cells = [
            cell
            for effort in EFFORTS
            for cell in (
                (
                    f"{row.ratio(effort):.3f}",
                    f"{row.times(effort, 'encode'):.0f}× / {row.times(effort, 'decode'):.0f}×",
                )
                if effort in row.tensorcomp
                else ("-", "-")
            )
        ]
        name = row.tensor.removeprefix("encoder.").removesuffix(".weight")
        body.append((name, f"{row.snr:.2f}", f"{row.nncodec_bits:.3f}", speeds, *cells))
    ours = tuple(column for effort in EFFORTS for column in (f"{effort} bytes", f"{effort} speed"))
    title = (
        "At NNCodec's SNR: tensorcomp's payload over NNCodec's bitstream, and how many times as"
        " fast it encodes / decodes, one thread each; steps are given to both"
    )
    columns = ("tensor", "SNR dB", "NNCodec bpw", "encode / decode M weights/s")
    return Sheet(title, columns + ours, tuple(body))


def decode_sheet(rows: list[DecodeRow]) -> Sheet:
    """Tabulate how fast a file decodes."""
    title = f"MiniLM in {DECODE_BITS:g} bits a weight, decoded to fp32, memory to memory"
    columns: Columns = {
        "effort": lambda row: f"tensorcomp {row.effort}",
        "bpw": lambda row: f"{row.bits:.3f}",
        "threads": lambda row: str(row.threads),
        "M weights/s": lambda row: f"{row.speed:.0f}",
    }
    return Sheet.of(title, rows, columns)


def gguf_limits(rows: list[GgufRow]) -> list[Limit]:
    """Judge the rates on MiniLM, and that no tensor's SNR is below GGUF's."""
    limits = []
    for row in rows:
        for effort, limit in zip(EFFORTS, GGUF_LIMITS.get(row.kind, ()), strict=False):
            if effort in row.bits:
                limits.append(Limit(f"{row.kind} bpw, {effort}", row.bits[effort], limit))
    margins = [margin for row in rows for margin in row.margin.values()]
    if margins:
        limits.append(
            Limit("least SNR of a tensor above GGUF's, dB", min(margins), 0.0, at_most=False)
        )
    return limits


def source_limits(rows: list[SourceRow]) -> list[Limit]:
    """Judge the distance from R(D), and that heavier tails cost no more bits."""
    limits = []
    for effort, limit in ABOVE_LIMITS.items():
        gaussian = {
            row.snr: row.bits[effort]
            for row in rows
            if row.source == "iid Gaussian" and effort in row.bits
        }
        above = [
            row.above[effort]
            for row in rows
            if row.snr in gaussian
            and row.source == "iid Gaussian"
            and row.bits[effort] >= LEAST_JUDGED_BITS
        ]
        more = [
            row.bits[effort] - gaussian[row.snr]
            for row in rows
            if row.source != "iid Gaussian" and row.snr in gaussian
        ]
        if above:
            limits.append(Limit(f"Gaussian, bits above R(D), {effort}", max(above), limit))
        if more:
            limits.append(Limit(f"t(5), bits more than Gaussian, {effort}", max(more), 0.0))
    return limits


def nncodec_limits(rows: list[NncodecRow]) -> list[Limit]:
    """Judge bytes and speeds against NNCodec's, each by its worst row."""
    limits = []
    for effort, speeds in TIMES_NNCODEC.items():
        found = [row for row in rows if effort in row.tensorcomp]
        if not found:
            continue
        worst = max(row.ratio(effort) for row in found)
        limits.append(Limit(f"bytes over NNCodec's, {effort}", worst, 1.0))
        for which, limit in speeds.items():
            slowest = min(row.times(effort, which) for row in found)
            what = f"{which}, times NNCodec's speed, {effort}"
            limits.append(Limit(what, slowest, limit, at_most=False))
    return limits


def decode_limits(rows: list[DecodeRow]) -> list[Limit]:
    """Judge the speed of decoding at the default effort."""
    what = "decoding 4 bits a weight to fp32, M weights/s"
    return [
        Limit(what, row.speed, DECODE_LIMIT, at_most=False)
        for row in rows
        if row.effort == "default"
    ]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="One format, one step a tensor, one round, default effort."),
    ] = False,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Compare rates at equal error, and speeds."""
    efforts = ("default",) if quick else tuple(EFFORTS)
    rounds = 1 if quick else rounds
    gguf: list[GgufRow] = []
    try:
        gguf = list(gguf_rows(QUICK_KINDS if quick else ggml.KINDS, efforts))
    except ggml.MissingGgmlError as error:
        note(f"GGUF is left out: {error}")
    sources = list(source_rows(SOURCE_BITS[3:4] if quick else SOURCE_BITS, efforts))
    reason = nncodec_peer.unavailable()
    nncodec: list[NncodecRow] = []
    if reason is None:
        nncodec = list(nncodec_rows(rounds, efforts, points=1 if quick else 4))
    else:
        note(f"NNCodec is left out: {reason}")
    decode = list(decode_rows(DECODE_BITS, rounds, efforts, THREADS))
    sheets = [gguf_sheet(gguf), source_sheet(sources), nncodec_sheet(nncodec), decode_sheet(decode)]
    limits = [
        *gguf_limits(gguf),
        *source_limits(sources),
        *nncodec_limits(nncodec),
        *decode_limits(decode),
    ]
    rows = {
        "gguf": gguf,
        "sources": sources,
        "nncodec": nncodec,
        "decode": decode,
    }
    found = Found(sheets, limits, dict(rows))
    about = {"rounds": f"median of {rounds}, in turns"}
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
