"""Tables of training that goes on from states that lost something, paired with the exact run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.common.reporting import Sheet

RATE = {"middle": 3.8e-4, "late": 5.2e-5}  # nats a step that the exact run falls there
Run = Mapping[str, Any]


def paired(values: Sequence[float], exact: Sequence[float]) -> tuple[float, float]:
    """Return the mean difference and its standard error."""
    found = np.array(values) - np.array(exact)
    error = found.std(ddof=1) / np.sqrt(found.size) if found.size > 1 else float("nan")
    return float(found.mean()), float(error)


def _shown(values: Sequence[float], exact: Sequence[float]) -> str:
    mean, error = paired(values, exact)
    return f"{mean:+.4f}" + ("" if np.isnan(error) else f" ± {error:.4f}")


def _once(runs: Sequence[Run], part: str) -> Sheet:
    """Tabulate one restore and 40 steps: what each seed loses against its exact run."""
    own = [run for run in runs if run["part"] == part]
    exact = {run["seed"]: run for run in own if run["setting"] == "exact"}
    rows = []
    for setting in dict.fromkeys(run["setting"] for run in own if run["setting"] != "exact"):
        some = [run for run in own if run["setting"] == setting and run["seed"] in exact]
        other = [exact[run["seed"]] for run in some]
        keys = "at restore", "last 20", "held out"
        cells = [_shown([r[k] for r in some], [r[k] for r in other]) for k in keys]
        held, error = paired([r["held out"] for r in some], [r["held out"] for r in other])
        lost = f"{max(held, 0) / RATE[part]:.0f} ± {error / RATE[part]:.0f}"
        rows.append((setting, f"{some[0]['ratio']:.1f}", *cells, lost, str(len(some))))
    columns = (
        "state", "ratio", "at restore", "training, last 20 of 40", "held out after 40",
        "steps lost of 150", "seeds",
    )  # fmt: skip
    step = {"middle": 750, "late": 1350}[part]
    return Sheet(
        f"Restored once at step {step} of 1,500 (tiny_lm, β₂ 0.95), nats", columns, tuple(rows)
    )


def _often(runs: Sequence[Run]) -> Sheet:
    """Tabulate five restores in a row."""
    own = [run for run in runs if run["part"] == "restores"]
    exact = {run["seed"]: run for run in own if run["setting"] == "exact"}
    rows = []
    for run in own:
        if run["setting"] == "exact" or run["seed"] not in exact:
            continue
        other = exact[run["seed"]]
        held = [new - old for new, old in zip(run["held out"], other["held out"], strict=True)]
        share = 100 * held[-1] / other["held out"][-1]
        rows.append(
            (
                f"{run['setting']}, seed {run['seed']}",
                f"{run['ratio']:.1f}",
                *(f"{value:+.4f}" for value in held),
                f"{share:+.2f} %",
                f"{run['last 150'] - other['last 150']:+.4f}",
            )
        )
    columns = ("state", "ratio", "900", "1050", "1200", "1350", "1500", "end", "last 150")
    return Sheet("Restored five times in a row (tiny_lm), held-out nats", columns, tuple(rows))


def _digits(runs: Sequence[Run]) -> Sheet:
    """Tabulate the perceptron."""
    own = {run["setting"]: run for run in runs if run["part"] == "digits"}
    keys = "first 20", "last 50", "held out"
    rows = [
        (name, f"{run['ratio']:.1f}", *(_shown(run[key], own["exact"][key]) for key in keys))
        for name, run in own.items()
        if name != "exact"
    ]
    columns = ("state", "ratio", "first 20 steps", "last 50", "held out after 100")
    return Sheet("Restored once (perceptron, β₂ 0.999, 20 seeds), nats", columns, tuple(rows))


def sheets(runs: Sequence[Run]) -> Iterator[Sheet]:
    """Yield the tables of the parts that were run."""
    parts = {run["part"] for run in runs}
    yield from (_once(runs, part) for part in ("middle", "late") if part in parts)
    if "restores" in parts:
        yield _often(runs)
    if "digits" in parts:
        yield _digits(runs)
