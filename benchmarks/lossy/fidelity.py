"""Does the model still work? Perplexity and embeddings against the bits a weight takes.

Run it as `python -m benchmarks.lossy.fidelity` after `pip install -e '.[bench]'` and
`pip install --no-deps pywhispercpp==1.5.1` (which carries ggml). Formats of fixed width are counted
by their codes, scales and tables; tensorcomp by its whole file.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from benchmarks.common import ggml
from benchmarks.common.checkpoints import Tensors, minilm
from benchmarks.common.models import Quality, minilm_quality, tiny_lm, tiny_lm_quality
from benchmarks.common.reporting import (
    ABSENT,
    Found,
    JsonPath,
    Limit,
    Markdown,
    Sheet,
    note,
    report,
)
from benchmarks.lossy import budgets as lossy
from benchmarks.lossy.fixed_width import FORMATS, coded
from benchmarks.lossy.single_methods import SeedRow, seed_rows, seed_sheet

PROFILES = ("transformer", "cnn", "mlp", "memory", "speed")
LOSSLESS = "lossless"
JUDGED = "transformer"
BITS = (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5, 2.0)
QUICK_BITS = (4.0, 3.0)
PERPLEXITY_LIMITS = {4.0: 1.0, 3.0: 4.0}  # % above the original's, by bits a weight
PACKAGES = ("tensorcomp", "numpy", "torch", "tokenizers", "pywhispercpp")


@dataclass(frozen=True)
class Model:
    """A model to be judged by."""

    name: str
    load: Callable[[], Tensors]
    quality: Callable[[Tensors], Quality]


MODELS = (Model("tiny_lm", tiny_lm, tiny_lm_quality), Model("MiniLM", minilm, minilm_quality))


@dataclass(frozen=True)
class FormatRow:
    """A format of fixed width, and tensorcomp at its bytes."""

    model: str
    format: str
    bits: float
    quality: Quality
    own_bits: float
    own_quality: Quality


@dataclass(frozen=True)
class ProfileRow:
    """A profile at a budget; `wanted` bits a weight, or its own budget if None."""

    model: str
    profile: str
    wanted: float | None
    bits: float
    quality: Quality


def format_rows(models: Iterable[Model], formats: Iterable[str]) -> Iterator[FormatRow]:
    """Store models in every format, and by tensorcomp in as many bytes."""
    formats = tuple(formats)
    for model in models:
        tensors = model.load()
        for name in formats:
            nbytes, decoded = coded(FORMATS[name], tensors)
            own = lossy.at_size(tensors, nbytes, JUDGED)
            yield FormatRow(
                model.name,
                name,
                lossy.bits(nbytes, tensors),
                model.quality(decoded),
                lossy.bits(own.nbytes, tensors),
                model.quality(own.decoded),
            )


def profile_rows(
    models: Iterable[Model], profiles: Iterable[str], budgets: Iterable[float | None]
) -> Iterator[ProfileRow]:
    """Compress models with every profile to every budget; lossless has one size only."""
    profiles, budgets = tuple(profiles), tuple(budgets)
    for model in models:
        tensors = model.load()
        weights = sum(tensor.size for tensor in tensors.values())
        for profile in profiles:
            for wanted in (None,) if profile == LOSSLESS else budgets:
                if wanted is None:
                    found = lossy.by_profile(tensors, profile)
                else:
                    found = lossy.at_size(tensors, int(wanted * weights / 8), profile)
                bits = lossy.bits(found.nbytes, tensors)
                yield ProfileRow(model.name, profile, wanted, bits, model.quality(found.decoded))


def above(quality: Quality) -> float:
    """Return by how many per cent tiny_lm's perplexity lies above the original's."""
    own = tiny_lm_quality(tiny_lm()).perplexity
    return 100 * (quality.perplexity / own - 1)


def cell(model: str, quality: Quality) -> str:
    """Write a quality."""
    if model == "tiny_lm":
        return f"{quality.perplexity:.4f} ({above(quality):+.2f} %)"
    return f"{quality.cosine:.4f}"


MEASURES = {
    "tiny_lm": "held-out perplexity (above the original's)",
    "MiniLM": "cosine of sentence embeddings with the original's",
}


def format_sheet(model: str, rows: list[FormatRow]) -> Sheet:
    """Tabulate formats of fixed width beside tensorcomp in their bytes."""
    rows = [row for row in rows if row.model == model]
    divergence = model == "tiny_lm"
    body = []
    for row in rows:
        cells = [cell(model, row.quality), cell(model, row.own_quality)]
        if divergence:
            cells += [f"{1e3 * q.divergence:.3f}" for q in (row.quality, row.own_quality)]
        body.append((row.format, f"{row.bits:.3f}", f"{row.own_bits:.3f}", *cells))
    columns: tuple[str, ...] = ("format", "bpw", "tensorcomp's bpw", "format", "tensorcomp")
    if divergence:
        columns += ("divergence, 1e-3 nats", "tensorcomp's")
    title = f"{model}: {MEASURES[model]}, at equal bytes"
    return Sheet(title, columns, tuple(body))


def profile_sheet(model: str, rows: list[ProfileRow]) -> Sheet:
    """Tabulate budgets down and profiles across."""
    rows = [row for row in rows if row.model == model]
    profiles = list(dict.fromkeys(row.profile for row in rows))
    found = {(row.profile, row.wanted): row for row in rows}
    body = []
    for wanted in dict.fromkeys(row.wanted for row in rows):
        line = []
        for profile in profiles:
            row = found.get((profile, wanted))
            text = ABSENT if row is None else cell(model, row.quality)
            line.append(f"{row.bits:.2f}: {text}" if row and wanted is None else text)
        body.append(("own budget" if wanted is None else f"{wanted:g}", *line))
    title = f"{model}: {MEASURES[model]}, by profile and bits a weight of the whole file"
    return Sheet(title, ("bpw", *profiles), tuple(body))


def limits(formats: list[FormatRow], profiles: list[ProfileRow]) -> list[Limit]:
    """Judge perplexity at some rates, and each format of fixed width at its own size."""
    judged = [
        Limit(
            f"tiny_lm at {row.wanted:g} bpw, {row.profile}: perplexity above the original's, %",
            above(row.quality),
            PERPLEXITY_LIMITS[row.wanted],
        )
        for row in profiles
        if row.model == "tiny_lm" and row.profile == JUDGED and row.wanted in PERPLEXITY_LIMITS
    ]
    for row in formats:
        what = f"{row.model} in the bytes of {row.format}"
        if row.model == "tiny_lm":
            ours, theirs = row.own_quality.perplexity, row.quality.perplexity
            judged.append(Limit(f"{what}: perplexity", ours, theirs))
            ours, theirs = row.own_quality.divergence, row.quality.divergence
            judged.append(Limit(f"{what}: divergence, 1e-3 nats", 1e3 * ours, 1e3 * theirs))
        else:
            ours, theirs = row.own_quality.cosine, row.quality.cosine
            judged.append(Limit(f"{what}: cosine", ours, theirs, at_most=False))
    return judged


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="One model, two rates, one profile, no methods.")
    ] = False,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Compare models that were compressed with themselves."""
    names = list(FORMATS)
    try:
        ggml.kind("q4_0")
    except ggml.MissingGgmlError as error:
        names = [name for name in names if "ggml" not in name]
        note(f"Q4_0 is left out: {error}")
    models = MODELS[:1] if quick else MODELS
    formats = list(format_rows(models, names))
    profiles = list(
        profile_rows(models, (JUDGED,), QUICK_BITS)
        if quick
        else profile_rows(models, (LOSSLESS, *PROFILES), (None, *BITS))
    )
    seeds: list[SeedRow] = [] if quick else list(seed_rows())
    sheets = [format_sheet(model.name, formats) for model in MODELS]
    sheets += [profile_sheet(model.name, profiles) for model in MODELS]
    sheets.append(seed_sheet(seeds))
    about = {
        "tiny_lm": f"perplexity {tiny_lm_quality(tiny_lm()).perplexity:.4f} per byte in bf16",
        "formats": "matrices of at least 4,096 weights; the other tensors as they are",
    }
    rows = {"formats": formats, "profiles": profiles, "seed": seeds}
    found = Found(sheets, limits(formats, profiles), dict(rows))
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
