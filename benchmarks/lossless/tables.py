"""Tables of lossless codecs beside each other."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.common.checkpoints import Input
from benchmarks.common.peers import REFERENCE
from benchmarks.common.reporting import ABSENT, Sheet
from benchmarks.lossless.targets import Inputs, Results
from benchmarks.lossless.timing import Measurement, speed, times_faster

Cell = Callable[[Input, Measurement], str]


def failure(result: Measurement) -> str:
    """Say in a cell that a peer did not give back its input."""
    return "FAILS" if result.error else "NOT EXACT"


def factor(value: float | None) -> str:
    """Write how many times as fast."""
    return ABSENT if value is None else f"{value:.2f}×"


def result_row(
    name: str, data: Input, result: Measurement, reference: Measurement | None
) -> tuple[str, ...]:
    """Write one peer's figures on one input."""
    if not result.valid:
        return (name, failure(result), *[ABSENT] * 5)
    encode = decode = None
    if reference is not None and reference.valid:
        encode = times_faster(result.encode, reference.encode)
        decode = times_faster(result.decode, reference.decode)
    return (
        name,
        f"{result.size / data.nbytes:.4f}",
        f"{data.nbytes / result.size:.2f}",
        f"{speed(data.nbytes, result.encode):.0f}",
        f"{speed(data.nbytes, result.decode):.0f}",
        factor(encode),
        factor(decode),
    )


def result_sheet(data: Input, results: Mapping[str, Measurement]) -> Sheet:
    """Tabulate all peers on one input."""
    columns = ("codec", "size", "ratio", "encode MB/s", "decode MB/s")
    against = (f"encode / {REFERENCE}'s", f"decode / {REFERENCE}'s")
    reference = results.get(REFERENCE)
    title = f"{data.name}: {data.nbytes / 1e6:.1f} MB in {len(data.tensors)} tensors"
    rows = (result_row(name, data, result, reference) for name, result in results.items())
    return Sheet(title, columns + against, tuple(rows))


def summary_sheet(
    title: str, names: Sequence[str], inputs: Inputs, results: Results, cell: Cell
) -> Sheet:
    """Tabulate one cell for each codec and input, codecs down and inputs across."""
    cells = {
        (codec, name): cell(inputs[name], result) if result.valid else failure(result)
        for name in names
        if name in inputs
        for codec, result in results[name].items()
    }
    return Sheet.pivot(title, "codec", cells)


def speeds_cell(data: Input, result: Measurement) -> str:
    """Write size fraction and both speeds."""
    encode, decode = speed(data.nbytes, result.encode), speed(data.nbytes, result.decode)
    return f"{result.size / data.nbytes:.4f} ({encode:.0f} / {decode:.0f})"


def ratio_cell(data: Input, result: Measurement) -> str:
    """Write the input's size over the encoding's; near 1 the fifth figure matters."""
    ratio = data.nbytes / result.size
    return f"{ratio:.2f}" if ratio > 1.1 else f"{ratio:.4f}"
