"""Bits a weight at equal error: tensorcomp beside GGUF's formats, NNCodec and the limit R(D).

Run it as `python -m benchmarks.rate_distortion` after `pip install -e '.[bench]'`,
`pip install --no-deps pywhispercpp==1.5.1` (which carries ggml), and
`pip install pybind11 && pip install --no-deps nncodec==2.1.3`. Peers and tensorcomp run in the same
process, in turns. SNR is measured on what each decodes.
"""

from typing import Annotated

import typer

from benchmarks.common import ggml, nncodec
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
TIMES_NNCODEC = {"default": (200, 50), "max": (30, 30)}  # encoding, decoding
DECODE_BITS = 4.0
DECODE_LIMIT = 150.0
THREADS = 2
PACKAGES = ("tensorcomp", "numpy", "pywhispercpp", "nncodec")


def gguf_sheet(rows: list[GgufRow]) -> Sheet:
    """Tabulate MiniLM beside GGUF."""
    title = (
        "MiniLM at the SNR of each GGUF format on every matrix: bits a weight"
        " (GGUF: of the matrices, and of a file with the rest in fp32; tensorcomp: of the whole"
        " file)"
    )
    columns: Columns = {
        "format": lambda row: row.kind,
        "SNR dB, mean (lowest)": lambda row: f"{row.mean_snr:.2f} ({row.lowest_snr:.2f})",
        "GGUF bpw": lambda row: f"{row.gguf_bits:.3f}",
        "GGUF file bpw": lambda row: f"{row.gguf_file_bits:.3f}",
        "tensorcomp default": lambda row: number(row.bits.get("default"), 3),
        "tensorcomp max": lambda row: number(row.bits.get("max"), 3),
    }
    return Sheet.of(title, rows, columns)


def source_sheet(rows: list[SourceRow]) -> Sheet:
    """Tabulate independent weights beside R(D)."""
    title = "Independent weights, 1024 × 1024: bits a weight of the whole file, Gaussian R(D)"
    columns: Columns = {
        "source": lambda row: row.source,
        "SNR dB": lambda row: f"{row.snr:.2f}",
        "default bpw": lambda row: number(row.bits.get("default"), 3),
        "default, above R(D)": lambda row: number(row.above.get("default"), 3),
        "max bpw": lambda row: number(row.bits.get("max"), 3),
        "max, above R(D)": lambda row: number(row.above.get("max"), 3),
    }
    return Sheet.of(title, rows, columns)


def nncodec_sheet(rows: list[NncodecRow]) -> Sheet:
    """Tabulate NNCodec's bytes and speeds, and tensorcomp's over them."""
    title = (
        "At NNCodec's SNR: tensorcomp's payload over NNCodec's bitstream, and how many times as"
        " fast it encodes / decodes, one thread each; steps are given to both"
    )
    columns: Columns = {
        "tensor": lambda row: row.tensor.removeprefix("encoder.").removesuffix(".weight"),
        "SNR dB": lambda row: f"{row.snr:.2f}",
        "NNCodec bpw": lambda row: f"{row.bits:.3f}",
        "encode / decode M weights/s": lambda row: f"{row.encode:.1f} / {row.decode:.1f}",
        "effort": lambda row: row.effort,
        "bytes": lambda row: f"{row.ratio:.3f}",
        "speed": lambda row: f"{row.encode_times:.0f}× / {row.decode_times:.0f}×",
    }
    return Sheet.of(title, rows, columns)


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
    gaussian = {row.snr: row.bits for row in rows if row.source == "iid Gaussian"}
    for effort, limit in ABOVE_LIMITS.items():
        above = [
            row.above[effort]
            for row in rows
            if row.source == "iid Gaussian" and row.bits[effort] >= LEAST_JUDGED_BITS
        ]
        more = [
            row.bits[effort] - gaussian[row.snr][effort]
            for row in rows
            if row.source != "iid Gaussian"
        ]
        limits.append(Limit(f"Gaussian, bits above R(D), {effort}", max(above), limit))
        limits.append(Limit(f"t(5), bits more than Gaussian, {effort}", max(more), 0.0))
    return limits


def nncodec_limits(rows: list[NncodecRow]) -> list[Limit]:
    """Judge bytes and speeds against NNCodec's, each by its worst row."""
    limits = []
    for effort, (encode, decode) in TIMES_NNCODEC.items():
        found = [row for row in rows if row.effort == effort]
        if found:
            what = f"times NNCodec's speed, {effort}"
            slowest = min(row.encode_times for row in found), min(row.decode_times for row in found)
            limits += [
                Limit(f"bytes over NNCodec's, {effort}", max(row.ratio for row in found), 1.0),
                Limit(f"encode, {what}", slowest[0], encode, at_most=False),
                Limit(f"decode, {what}", slowest[1], decode, at_most=False),
            ]
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
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Compare rates at equal error, and speeds."""
    efforts = tuple(EFFORTS)
    gguf: list[GgufRow] = []
    try:
        gguf = list(gguf_rows(ggml.KINDS, efforts))
    except ggml.MissingGgmlError as error:
        note(f"GGUF is left out: {error}")
    sources = list(source_rows(SOURCE_BITS, efforts))
    reason = nncodec.unavailable()
    beside: list[NncodecRow] = []
    if reason is None:
        beside = list(nncodec_rows(rounds, efforts))
    else:
        note(f"NNCodec is left out: {reason}")
    decode = list(decode_rows(DECODE_BITS, rounds, efforts, THREADS))
    sheets = [gguf_sheet(gguf), source_sheet(sources), nncodec_sheet(beside), decode_sheet(decode)]
    limits = [
        *gguf_limits(gguf),
        *source_limits(sources),
        *nncodec_limits(beside),
        *decode_limits(decode),
    ]
    rows = {"gguf": gguf, "sources": sources, "nncodec": beside, "decode": decode}
    found = Found(sheets, limits, dict(rows))
    about = {"rounds": f"median of {rounds}, in turns"}
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
