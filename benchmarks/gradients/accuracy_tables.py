"""Tables of the accuracy by compressed gradients, and what is claimed of it."""

import math
from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from benchmarks.common.reporting import ABSENT, Limit, Sheet, number
from benchmarks.gradients.accuracy_rows import AccuracyRow
from benchmarks.gradients.methods import ADAM, SGD


def choice_sheet(task: str, rows: Iterable[AccuracyRow]) -> Sheet:
    """Tabulate what rates of learning lead to."""
    cells = tuple(
        (row.method, f"{row.mean:.2f} ± {row.spread:.2f}") for row in rows if row.task == task
    )
    title = f"{task}: dense gradients, accuracy on validation digits, %"
    return Sheet(title, ("optimizer, rate of learning", "accuracy"), cells)


def differences(row: AccuracyRow, rows: Iterable[AccuracyRow]) -> tuple[float, ...]:
    """Return by seed the points that a method is above dense gradients; none without those."""
    name = ADAM.name if row.method.startswith("Adam") else SGD.name
    for other in rows:
        if (other.task, other.method) == (row.task, name):
            pairs = zip(row.accuracies, other.accuracies, strict=True)
            return tuple(own - dense for own, dense in pairs)
    return ()


def below_dense(row: AccuracyRow, rows: Iterable[AccuracyRow]) -> float:
    """Return the points that a method's mean is below that of its dense gradients."""
    found = differences(row, rows)
    return round(-mean(found), 6) if found else float("nan")


def _to_dense(row: AccuracyRow, rows: Iterable[AccuracyRow]) -> str:
    """Write the mean difference to dense gradients, and its standard error."""
    found = differences(row, rows)
    if row.method in (SGD.name, ADAM.name) or not found:
        return ABSENT
    error = stdev(found) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    return f"{mean(found):+.2f} ± {error:.2f}"


def accuracy_sheet(task: str, rows: Sequence[AccuracyRow]) -> Sheet:
    """Tabulate accuracies, and how many times smaller payloads are."""
    own = [row for row in rows if row.task == task]
    cells = []
    for row in own:
        accuracy = f"{row.mean:.2f} ± {row.spread:.2f}"
        ratio = f"{row.raw / row.steady:.1f}" if row.steady else ABSENT
        overall = f"{row.raw * row.steps / row.sent:.1f}" if row.sent else ABSENT
        difference = _to_dense(row, rows)
        cells.append((row.method, accuracy, difference, number(row.steady, 0), ratio, overall))
    seeds = len(own[0].accuracies)
    title = (
        f"{task}: held-out accuracy, %, mean ± deviation of {seeds} seeds; to dense, points, mean ±"
        " standard error; bytes of a worker's payloads in the last step"
    )
    columns = ("method", "accuracy", "to dense", "bytes", "ratio", "ratio overall")
    return Sheet(title, columns, tuple(cells))


def accuracy_limits(rows: Sequence[AccuracyRow]) -> list[Limit]:
    """Return what is claimed: points below dense gradients."""
    return [
        Limit(f"{row.task}: {row.method}, points below dense", below_dense(row, rows), row.within)
        for row in rows
        if row.within is not None
    ]
