"""Signal-to-noise ratio, in double precision, by plain NumPy: no codec judges itself."""

import math
from collections.abc import Mapping

import numpy as np

from benchmarks.common.checkpoints import Array, Tensors

DB_A_BIT = 20 * math.log10(2)  # 6.02: what R(D) of a Gaussian gives for a bit


def snr_db(original: Array, decoded: Array) -> float:
    """Return 10 log₁₀ of ‖x‖² over ‖x − y‖², in dB; infinite if they are equal."""
    x = original.astype(np.float64)
    error = float(np.sum((x - decoded.astype(np.float64)) ** 2))
    signal = float(np.sum(x**2))
    if error == 0:
        return math.inf
    return 10 * math.log10(signal / error) if signal else -math.inf


def snr_by_tensor(original: Tensors, decoded: Tensors) -> dict[str, float]:
    """Return the SNR in dB of every tensor that was decoded."""
    return {name: snr_db(original[name], tensor) for name, tensor in decoded.items()}


def mean_snr(snr: Mapping[str, float], tensors: Tensors) -> float:
    """Return the mean of SNRs in dB, each tensor weighted by its elements."""
    names = list(snr)
    weights = [tensors[name].size for name in names]
    return float(np.average([snr[name] for name in names], weights=weights))


def total_snr(original: Tensors, decoded: Tensors) -> float:
    """Return the SNR in dB of tensors taken as one, over those that were decoded."""
    parts = [original[name].reshape(-1) for name in decoded]
    found = [tensor.reshape(-1) for tensor in decoded.values()]
    return snr_db(np.concatenate(parts), np.concatenate(found))
