"""Does the model still work? Perplexity and embeddings against the bits a weight takes.

Run it as `python -m benchmarks.lossy.fidelity` after `pip install -e '.[bench]'` and
`pip install --no-deps pywhispercpp==1.5.1` (which carries ggml). Formats of fixed width are counted
by their codes, scales and tables; tensorcomp by its whole file.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import typer

from benchmarks.common import ggml
from benchmarks.common.checkpoints import Tensors, minilm
from benchmarks.common.models import Quality, minilm_quality, tiny_lm, tiny_lm_quality
from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, note, report
from benchmarks.lossy import budgets
from benchmarks.lossy.fixed_width import FORMATS, coded
from benchmarks.lossy.single_methods import seed_rows, seed_sheet

PROFILES = ("transformer", "cnn", "mlp", "memory", "speed")
LOSSLESS = "lossless"
JUDGED = "transformer"
BITS = (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5, 2.0)
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
            own = budgets.at_size(tensors, nbytes, JUDGED)
            yield FormatRow(
                model.name,
                name,
                budgets.bits(nbytes, tensors),
                model.quality(decoded),
                budgets.bits(own.nbytes, tensors),
                model.quality(own.decoded),
            )


def profile_rows(
    models: Iterable[Model], profiles: Iterable[str], rates: Iterable[float | None]
) -> Iterator[ProfileRow]:
    """Compress models with every profile to every budget; lossless has one size only."""
    profiles, rates = tuple(profiles), tuple(rates)
    for model in models:
        tensors = model.load()
        weights = sum(tensor.size for tensor in tensors.values())
        for profile in profiles:
            for wanted in (None,) if profile == LOSSLESS else rates:
                size = None if wanted is None else int(wanted * weights / 8)
                found = budgets.at_size(tensors, size, profile)
                bits = budgets.bits(found.nbytes, tensors)
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
    columns: dict[str, Callable[[FormatRow], str]] = {
        "format": lambda row: row.format,
        "bpw": lambda row: f"{row.bits:.3f}",
        "tensorcomp's bpw": lambda row: f"{row.own_bits:.3f}",
        "the format's": lambda row: cell(model, row.quality),
        "tensorcomp's": lambda row: cell(model, row.own_quality),
    }
    if model == "tiny_lm":
        columns |= {
            "divergence, 1e-3 nats": lambda row: f"{1e3 * row.quality.divergence:.3f}",
            "tensorcomp's divergence": lambda row: f"{1e3 * row.own_quality.divergence:.3f}",
        }
    title = f"{model}: {MEASURES[model]}, at equal bytes"
    return Sheet.of(title, [row for row in rows if row.model == model], columns)


def profile_sheet(model: str, rows: list[ProfileRow]) -> Sheet:
    """Tabulate budgets down and profiles across."""
    cells = {}
    for row in rows:
        if row.model == model:
            text = cell(model, row.quality)
            place = ("own budget" if row.wanted is None else f"{row.wanted:g}", row.profile)
            cells[place] = f"{row.bits:.2f}: {text}" if row.wanted is None else text
    title = f"{model}: {MEASURES[model]}, by profile and bits a weight of the whole file"
    return Sheet.pivot(title, "bpw", cells)


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


def main(json_path: JsonPath = None, markdown: Markdown = False) -> None:
    """Compare models that were compressed with themselves."""
    names = list(FORMATS)
    try:
        ggml.kind("q4_0")
    except ggml.MissingGgmlError as error:
        names = [name for name in names if "ggml" not in name]
        note(f"Q4_0 is left out: {error}")
    formats = list(format_rows(MODELS, names))
    profiles = list(profile_rows(MODELS, (LOSSLESS, *PROFILES), (None, *BITS)))
    seeds = list(seed_rows())
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
