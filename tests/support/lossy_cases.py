"""Profiles, tensors and checks for the tests of lossy files."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorcomp.api.load import load
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.codecs import parse_tree
from tensorcomp.container.reader import CompressedFile
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.profiles import Candidates, Profile

TOLD = 6e-6  # relative: errors are told in six digits


def profile_of(*trees: str, smallest: int = 0) -> Profile:
    """Return a profile that offers every tensor these trees and protects nothing."""
    return Profile(
        "test",
        budget=Budget(min_snr=30),
        candidates=(Candidates(("all",), trees),),
        protect=(),
        smallest=smallest,
    )


UNIFORM = profile_of("uniform($step)")


def weights(*shape: int, scale: float = 0.02, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Return weights with tails as trained ones have them."""
    random = np.random.default_rng(seed)
    return (random.standard_t(5, shape) * scale).astype(dtype)


def write(
    tensors: Mapping[str, np.ndarray],
    *,
    threads: int = 1,
    chunk_elements: int = 1 << 20,
    **asked: Any,
) -> tuple[bytes, FileResult]:
    """Compress tensors in memory."""
    asked = {"profile": UNIFORM, "threads": threads, "chunk_elements": chunk_elements, **asked}
    file = io.BytesIO()
    report = compress_source(MemoryCheckpoint(tensors), file, CompressOptions(**asked))
    assert report.output_bytes == len(file.getvalue())
    return file.getvalue(), report


def check(
    data: bytes, tensors: Mapping[str, np.ndarray], budget: Budget | None = None
) -> dict[str, ErrorSums]:
    """Require that a file keeps its promises, and return the errors of what it decodes to.

    Names, shapes and types are the same; errors are those of the manifest; what is coded by a
    lossless tree has every bit; and what is not keeps its bound, and that of the budget.
    """
    loaded = load(data)
    assert set(loaded) == set(tensors)
    file = CompressedFile(data)
    found = {}
    for name, array in tensors.items():
        decoded, record = loaded[name], file.manifest.stored(name)
        assert (decoded.shape, decoded.dtype) == (array.shape, array.dtype), name
        if parse_tree(file.manifest.trees[record.tree].tree).lossless:
            assert decoded.tobytes() == array.tobytes(), name
            assert (record.rel_l2, record.max_abs_error) == (0, 0), name
            assert not record.bound, name
            continue
        errors = found[name] = measure(array, decoded)
        assert abs(record.rel_l2 - errors.rel_l2) <= TOLD * errors.rel_l2, name
        assert abs(record.max_abs_error - errors.max_abs) <= TOLD * errors.max_abs, name
        promised = dict(record.bound)
        if budget is not None and budget.bound is not None:
            assert budget.bound.used(errors.rel_l2, errors.max_abs) <= 1, name
            assert promised, name
        assert errors.rel_l2 <= promised.get("max_rel_l2", np.inf), name
        assert errors.max_abs <= promised.get("max_abs_error", np.inf), name
    return found


def reason(report: FileResult, name: str) -> str:
    """Return why a tensor has its tree."""
    (found,) = (item.reason for item in report.summary().tensors if item.name == name)
    return found
