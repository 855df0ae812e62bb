"""Compress sampled tensors by every codec under every budget, and judge what comes back.

    python -m benchmarks.hardening.bounds --triples 100000 [--seed 1] [--batch NUMBER]

A batch is one checkpoint of small tensors, coded by one tree. Each tensor has a type, a shape and a
filling, and a bound of its own, or all share the size of the file. The judge is independent of the
library: sums by `math.fsum`, and rational numbers within 1e-9 of a bound. What a lossless tree
coded must be the same in every bit, and `verify` must agree. Any other error than a refusal, and
any warning, is a finding.
"""

import contextlib
import io
import itertools
import math
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Annotated, Any

import numpy as np
import typer

import tensorcomp
from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, end, note
from benchmarks.hardening.mutations import OWN_TREES
from benchmarks.hardening.sound import place_of, scratch
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.codecs.rounding import is_real
from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.reader import CompressedFile
from tensorcomp.dtypes import _TABLE, numpy_dtype
from tensorcomp.errors import InfeasibleBudgetError, TensorcompError
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.budgets import Budget

DTYPES = tuple(dtype for name in _TABLE if (dtype := numpy_dtype(name)) is not None)
FLOATS = tuple(dtype for dtype in DTYPES if is_real(dtype))
SHAPES = (
    *((), (0,), (3, 0), (1,), (1, 70), (70, 1), (2, 3), (257,), (24, 40), (7, 5, 3, 2)),
    *((64, 8), (3, 130), (50, 80)),
)
_LARGER = SHAPES[-5:]  # of which codecs keep more than the raw fallback
FILLINGS = (
    *("normal", "outliers", "NaN islands", "infinities", "constant", "zeros", "sparse", "sorted"),
    *("denormal", "tiny", "huge", "largest", "random bits", "rows of unlike scale", "one value"),
)
_LOSSLESS = tuple(tree for tree in OWN_TREES if parse_tree(tree).lossless)
TREES = (
    *(tree for tree in OWN_TREES if tree not in _LOSSLESS),
    *_LOSSLESS[::3],
    *("uniform($step)", "trellis($step)", "$quantizer", "nm(2, 4, values=uniform($step))"),
)
BOUNDS: dict[str, tuple[float, ...]] = {
    "max_rel_l2": (1e-12, 1e-6, 1e-3, 0.03, 0.3, 0.99, 1.5),
    "min_snr": (-5, 3, 30, 60, 150),
    "max_abs_error": (1e-300, 1e-12, 1e-3, 0.02, 1.0, 1e9, 1e300),
}
SIZES: dict[str, tuple[float, ...]] = {
    "bits_per_weight": (6, 12, 25, 80), "target_ratio": (0.3, 0.7, 1.1),
    "target_size": (20_000, 50_000),
}  # fmt: skip
BUDGETS = (*BOUNDS, *SIZES, "none")
_BATCH = 24  # tensors
_CLOSE = 1e-9  # relative: closer to the bound than this, errors are summed exactly
_RECORDED = 1e-5  # errors are recorded in six digits


@dataclass
class Judged:
    """Outcomes by budget, pairs of factors covered, refusals and findings."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # budget, outcome
    pairs: set[tuple[str, ...]] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)
    closest: float = 0.0


@dataclass(frozen=True)
class Batch:
    """A tree, tensors by name with their factors, and a budget for each or for all."""

    tree: str
    tensors: dict[str, np.ndarray]
    factors: dict[str, tuple[str, str, str]]
    kind: str
    bounds: dict[str, Budget]
    size: Budget | None
    effort: str

    def only(self, name: str) -> "Batch":
        """Return the batch of one of the tensors."""
        bounds = {key: one for key, one in self.bounds.items() if key == name}
        tensors = {name: self.tensors[name]}
        return Batch(self.tree, tensors, self.factors, self.kind, bounds, self.size, self.effort)


def batch(seed: int, number: int) -> Batch:
    """Return a batch by its number; trees and budgets follow in turn, so that all pairs occur."""
    random = Random(f"{seed} {number}")
    tree = TREES[number % len(TREES)]
    kind = BUDGETS[(number // len(TREES) + number) % len(BUDGETS)]
    tensors, factors = {}, {}
    for index in range(_BATCH):
        shape = random.choice(SHAPES if random.random() < 0.5 else _LARGER)
        dtype = random.choice(FLOATS if random.random() < 0.75 else DTYPES)
        filling = random.choice(FILLINGS)
        name = f"t{index}.weight"
        tensors[name] = filled(dtype, shape, filling, np.random.default_rng(random.getrandbits(64)))
        factors[name] = str(dtype), str(shape), filling
    bounds, size = {}, None
    if kind in BOUNDS:
        bounds = {name: Budget(**{kind: random.choice(BOUNDS[kind])}) for name in tensors}
    elif kind in SIZES:
        size = Budget(**{kind: random.choice(SIZES[kind])})
    return Batch(tree, tensors, factors, kind, bounds, size, random.choice(("fast", "balanced")))


def filled(
    dtype: np.dtype, shape: tuple[int, ...], filling: str, random: np.random.Generator
) -> np.ndarray:
    """Return an array of a type and shape."""
    size = math.prod(shape)
    if filling == "random bits" or not (is_real(dtype) or dtype.kind in "c"):
        bits = random.integers(0, 256, size * dtype.itemsize, np.uint8)
        if filling in ("constant", "zeros", "one value"):
            bits[:] = 0 if filling == "zeros" else 1
        return (bits & 1 if dtype.kind == "b" else bits).view(dtype).reshape(shape)
    plain = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    count = size * (2 if dtype.kind == "c" else 1)
    values = random.standard_t(5, count) * 0.02
    top, low = _range(plain)
    with np.errstate(all="ignore"):
        if filling == "outliers" and count:
            values[random.integers(0, count, 1 + count // 300)] *= 1e6
        elif filling in ("NaN islands", "infinities") and count:
            start = int(random.integers(count))
            odd = np.nan if filling == "NaN islands" else np.inf
            values[start : start + 1 + count // 20] = odd
        elif filling in ("constant", "one value"):
            values[:] = 0.1 if filling == "constant" else 0.0
            values[:1] = 0.3
        elif filling == "zeros":
            values = np.where(random.random(count) < 0.5, 0.0, -0.0)
        elif filling == "sparse":
            values[random.random(count) < 0.9] = 0
        elif filling == "sorted":
            values.sort()
        elif filling == "rows of unlike scale":
            values *= np.exp2(np.arange(count) % 30 - 15.0)
        elif filling in ("denormal", "tiny"):
            values *= low * (10 if filling == "denormal" else 1e6)
        elif filling in ("huge", "largest"):
            values = np.clip(values * 50, -1, 1) * top * (1 if filling == "largest" else 1e-3)
        found = values.astype(plain)
    return found.view(dtype).reshape(shape)


def _range(dtype: np.dtype) -> tuple[float, float]:
    import ml_dtypes

    about = ml_dtypes.finfo(dtype)
    return float(about.max), max(float(about.smallest_subnormal), 5e-324)


def judge(one: Batch, number: int, judged: Judged) -> None:
    """Compress a batch, and judge each tensor; what is refused as a whole is tried one by one."""
    try:
        data = _compressed(one)
    except Exception as error:
        if len(one.tensors) > 1 and not isinstance(error, InfeasibleBudgetError):
            for name in one.tensors:
                judge(one.only(name), number, judged)
        elif isinstance(error, TensorcompError):
            judged.counts[one.kind, "refused"] += len(one.tensors)
            judged.refusals[_masked(error)] += 1
        else:
            _found(judged, one, number, next(iter(one.tensors)), _raised(error))
        return
    loaded = tensorcomp.load(data, threads=1)
    with CompressedFile(data) as file:
        for name in one.tensors:
            factors = (one.tree, one.kind, *one.factors[name])
            judged.pairs |= set(itertools.combinations(enumerate(factors), 2))
            record = file.manifest.stored(name)
            planned = file.manifest.planned(record)
            assert planned is not None
            lossless = parse_tree(planned.tree).lossless
            try:
                faults = list(_faults(one, name, loaded[name], record, judged, lossless=lossless))
            except Exception as error:
                faults = [f"the judge: {_raised(error)}"]
            for fault in faults:
                _found(judged, one, number, name, fault)
            outcome = "finding" if faults else "exact" if lossless else "within its bound"
            judged.counts[one.kind, outcome] += 1
    for fault in _verified(one, data):
        _found(judged, one, number, fault.split("'")[1] if "'" in fault else "", "verify: " + fault)
    if one.size is not None and one.kind == "target_size":
        assert one.size.target_size is not None
        if len(data) > one.size.target_size:
            _found(judged, one, number, "", f"{len(data)} bytes, more than asked for")


def _compressed(one: Batch) -> bytes:
    file = io.BytesIO()
    options = CompressOptions(
        codecs=f"t*={one.tree}",
        bounds=one.bounds or None,
        budget=one.size,
        effort=one.effort,
        threads=1,
    )
    compress_source(MemoryCheckpoint(one.tensors), file, options)
    return file.getvalue()


def _verified(one: Batch, data: bytes) -> list[str]:
    """Return what `verify` finds wrong against the original."""
    original, packed = scratch() / "a.safetensors", scratch() / "a.tc.safetensors"
    packed.write_bytes(data)
    with CompressedFile(data) as file:
        ordered = file.tensors
    content = b"".join(one.tensors[info.name].tobytes() for info in ordered)
    original.write_bytes(build_header(ordered) + content)
    return [check.error for check in tensorcomp.verify(packed, original, threads=1) if check.error]


def _faults(
    one: Batch, name: str, decoded: np.ndarray, record: Any, judged: Judged, *, lossless: bool
) -> Iterator[str]:
    """Yield what is wrong with a decoded tensor."""
    array, budget = one.tensors[name], one.bounds.get(name)
    if (decoded.shape, decoded.dtype) != (array.shape, array.dtype):
        yield f"{decoded.dtype} {decoded.shape}"
        return
    if lossless:
        if decoded.tobytes() != array.tobytes():
            yield "a lossless tree changes bits"
        if record.rel_l2 or record.max_abs_error:
            yield "a lossless tree records errors"
        return
    found, numbers = errors(array, decoded), _numbers(array)
    # Squares beyond the range of float64 leave an upper bound (see `ErrorSums`).
    largest = max(map(abs, numbers[np.isfinite(numbers)].tolist()), default=0)
    loose = not 1e-130 < largest < 1e130
    for what, measured, recorded in zip(
        ("rel-L2", "largest error"), found, (record.rel_l2, record.max_abs_error), strict=True
    ):
        wrong = not abs(measured - recorded) <= _RECORDED * max(measured, recorded)
        if wrong and measured != recorded and not (loose and recorded > measured):
            yield f"records a wrong {what}: {recorded} for {measured}"
    bound = None if budget is None else budget.bound
    for limit, measured in zip(("max_rel_l2", "max_abs_error"), found, strict=True):
        most = math.inf if bound is None else getattr(bound, limit)
        close = most < math.inf and abs(measured - most) <= _CLOSE * most
        if exceeds(array, decoded, limit, most) if close else measured > most:
            yield f"breaks {limit}: {measured} for {most}"
        elif 0 < most < math.inf:
            judged.closest = max(judged.closest, measured / most)


def _numbers(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(f"f{flat.itemsize // 2}")
    with np.errstate(all="ignore"):  # signaling NaNs
        return flat if flat.dtype.kind in "iub" else flat.astype(np.float64)


def _finite(x: np.ndarray, y: np.ndarray) -> tuple[list[Any], list[Any]] | None:
    """Return the pairs that are finite; None if others differ."""
    with np.errstate(all="ignore"):
        odd = ~(np.isfinite(x) & np.isfinite(y))
        if not np.array_equal(x[odd], y[odd], equal_nan=x.dtype.kind == "f"):
            return None
    return x[~odd].tolist(), y[~odd].tolist()


def errors(array: np.ndarray, decoded: np.ndarray) -> tuple[float, float]:
    """Return rel-L2 and the largest absolute error, by sums without rounding."""
    finite = _finite(_numbers(array), _numbers(decoded))
    if finite is None:
        return math.inf, math.inf
    x, y = finite
    scale = -math.frexp(max(map(abs, x), default=0.0))[1] - 2
    if array.dtype.kind in "iub":
        differences = [a - b for a, b in zip(x, y, strict=True)]
        most = float(max(map(abs, differences), default=0))
        squares, norm = float(sum(d * d for d in differences)), float(sum(a * a for a in x))
    else:
        pairs = list(zip(x, y, strict=True))
        differences = [math.ldexp(a, scale) - math.ldexp(b, scale) for a, b in pairs]
        most = float(max((abs(Fraction(a) - Fraction(b)) for a, b in pairs), default=0))
        squares = math.fsum(d * d for d in differences)
        norm = math.fsum(math.ldexp(a, scale) ** 2 for a in x)
    if not most:
        return 0.0, 0.0
    return (math.sqrt(squares / norm) if norm else math.inf), most


def exceeds(array: np.ndarray, decoded: np.ndarray, limit: str, most: float) -> bool:
    """Return whether a bound is broken, by rational numbers."""
    x, y = _finite(_numbers(array), _numbers(decoded)) or ([], [])
    exact = [(Fraction(a), Fraction(b)) for a, b in zip(x, y, strict=True)]
    if limit == "max_abs_error":
        return max((abs(a - b) for a, b in exact), default=Fraction(0)) > Fraction(most)
    squares = sum((a - b) ** 2 for a, b in exact)
    return bool(squares > Fraction(most) ** 2 * sum(a * a for a, _ in exact))


def _raised(error: Exception) -> str:
    return f"{place_of(error)}: {' '.join(str(error).split())[:80]}"


def _masked(error: TensorcompError) -> str:
    return f"{type(error).__name__}: " + re.sub(r"[\d.,]+|'[^']*'", "#", error.message)[:110]


def _found(judged: Judged, one: Batch, number: int, name: str, what: str) -> None:
    about = " ".join(one.factors.get(name, ()))
    key = re.sub(r"\d[\d.,e+-]*", "#", what)
    case = f"batch {number}: {one.tree}, {one.bounds.get(name, one.size)}, {name} {about}: {what}"
    judged.findings.setdefault(key, []).append(case)


def run(triples: int, seed: int, seconds: float = 1e9, first: int = 0) -> Judged:
    """Judge batches until so many triples were tried."""
    judged, reported, ends = Judged(), time.monotonic(), time.monotonic() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in itertools.count(first):
            judge(batch(seed, number), number, judged)
            done = sum(judged.counts.values())
            if done >= triples or time.monotonic() > ends:
                break
            if time.monotonic() - reported > 30:
                reported = time.monotonic()
                note(f"{done:,} triples, {len(judged.findings)} kinds of findings")
    shutil.rmtree(scratch(), ignore_errors=True)
    return judged


def main(
    triples: Annotated[int, typer.Option(help="Of tensor, codec and budget.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of all batches.")] = 1,
    seconds: Annotated[float, typer.Option(help="Stop after so long.")] = 1e9,
    batch: Annotated[int | None, typer.Option(help="Judge this batch alone.")] = None,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Compress sampled tensors, and report what breaks a bound."""
    judged = run(triples if batch is None else 1, seed, seconds, batch or 0)
    outcomes = ("exact", "within its bound", "refused", "finding")
    rows = [(kind, *(f"{judged.counts[kind, one]:,}" for one in outcomes)) for kind in BUDGETS]
    done = sum(judged.counts.values())
    sizes = [len(factor) for factor in (TREES, BUDGETS, DTYPES, SHAPES, FILLINGS)]
    pairs = sum(a * b for a, b in itertools.combinations(sizes, 2))
    for key, cases in sorted(judged.findings.items()):
        note(f"{len(cases):6} × {key}\n         " + "\n         ".join(cases[:3]))
    for refusal, count in judged.refusals.most_common(12):
        note(f"{count:6} refused: {refusal}")
    title = f"{done:,} triples of tensor, codec and budget"
    found = Found(
        [Sheet(title, ("budget", *outcomes), tuple(rows))],
        [Limit("kinds of findings", len(judged.findings), 0)],
    )
    about = {"seed": str(seed), "pairs of factors covered": f"{len(judged.pairs):,} of {pairs:,}"}
    end(found, ("tensorcomp", "numpy"), about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
