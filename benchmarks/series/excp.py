"""ExCP (arXiv 2406.11257) as its repository has it: what it keeps of a training state, and bytes.

A port of ``compress_pythia.py``: updates above a threshold, moments where an update and the first
moment are large, zeros elsewhere; fifteen means for each tensor, packed codes, xz for 7-zip.
"""

import io
import lzma
from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
_MEANS, _ROUNDS = 15, 60
_ALPHA, _BETA, _CAP = 5e-5, 2.0, 2.5


def means_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return codes, 0 for zero, and means by Lloyd on sorted values; None for few values."""
    known = np.sort(values[values != 0].astype(np.float64))
    if known.size <= _MEANS:
        return None
    means = np.quantile(known, (np.arange(_MEANS) + 0.5) / _MEANS)
    totals = np.concatenate([[0], np.cumsum(known)])
    for _ in range(_ROUNDS):
        edges = np.searchsorted(known, (means[1:] + means[:-1]) / 2)
        low, high = np.concatenate([[0], edges]), np.concatenate([edges, [known.size]])
        count = high - low
        means = np.where(count > 0, (totals[high] - totals[low]) / np.maximum(count, 1), means)
    means = means.astype(np.float16).astype(np.float64)
    codes = np.searchsorted((means[1:] + means[:-1]) / 2, values.astype(np.float64)) + 1
    return np.where(values == 0, 0, codes).astype(np.uint8), means.astype(np.float32)


def stored(values: np.ndarray, file: io.BytesIO) -> np.ndarray:
    """Write an array's codes and means; return what they stand for."""
    found = means_of(values)
    if found is None:
        file.write(values.astype(np.float32).tobytes())
        return values.astype(np.float32)
    codes, means = found
    flat = np.append(codes.reshape(-1), np.zeros(codes.size % 2, np.uint8))
    file.write((flat[::2] * 16 + flat[1::2]).astype(np.uint8).tobytes())
    file.write(means.astype(np.float16).tobytes())
    table: np.ndarray = np.concatenate([[0], means]).astype(np.float32)[codes]
    return table


def excp(
    weights: Arrays, first: Arrays, second: Arrays, base: Arrays, multiple: float | None
) -> tuple[list[dict[str, np.ndarray]], int]:
    """Return weights and moments as they are restored, and the bytes they take.

    The threshold is `multiple` medians of an update; of None, the published rule's.
    """
    kept: list[dict[str, np.ndarray]] = [{}, {}, {}]
    file = io.BytesIO()
    for name, values in weights.items():
        update = values - base[name]
        mean = float(np.sqrt(second[name].mean(dtype=np.float64)) + 1e-30)
        most = min(_CAP, _ALPHA / mean) if multiple is None else multiple
        large = np.abs(update) > np.median(np.abs(update)) * most
        update = np.where(large, update, 0)
        magnitude = np.abs(first[name])
        keep = (magnitude > _BETA * magnitude.mean()) & (update != 0)
        parts = update, np.where(keep, first[name], 0), np.where(keep, second[name], 0)
        found = [stored(part, file) for part in parts]
        kept[0][name] = base[name] + found[0]
        kept[1][name], kept[2][name] = found[1:]
    return kept, len(lzma.compress(file.getvalue(), preset=9))
