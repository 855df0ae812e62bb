"""What strategies make of a checkpoint: rates, errors and speeds, beside R(D)."""

from __future__ import annotations

from dataclasses import dataclass

from tensorcomp._formatting import three_digits
from tensorcomp.metrics.gaussian_limit import Limit


@dataclass(frozen=True)
class StrategyRow:
    """What became of the weights under one strategy.

    Parameters
    ----------
    label, family, tree : str
        The tree is a template; empty for what the lossless planner chooses.
    stored : float
        Bytes of all tensors' blobs, those that stay lossless included.
    bits : float
        Of `stored` per weight.
    ratio : float
        Bytes of all tensors / `stored`.
    snr_db : float or None
        Of all tensors that may lose something together, in dB; None if all are exact.
    lowest_snr_db : float or None
        That of the tensor that lost most.
    gap : float or None
        Bits per weight above `Benchmark.limit` at this SNR; None if all are exact.
    refused : int
        Tensors that its codec cannot code, or not in fewer bytes; they are coded losslessly.
    encode_speed, decode_speed : float
        Weights per second.
    """

    label: str
    family: str
    tree: str
    stored: float
    bits: float
    ratio: float
    snr_db: float | None
    lowest_snr_db: float | None
    gap: float | None
    refused: int
    encode_speed: float
    decode_speed: float

    @property
    def rel_l2(self) -> float:
        """‖error‖ / ‖weights‖ of all tensors that may lose something; 0 if exact."""
        return 0.0 if self.snr_db is None else 10 ** (-self.snr_db / 20)


@dataclass(frozen=True)
class Benchmark:
    """What all strategies make of a checkpoint.

    Parameters
    ----------
    name : str
        Of the file or folder.
    profile : str
        Says which tensors may lose something.
    weights, tensors, input_bytes : int
        Of the whole checkpoint.
    lossy_weights : int
        Those that may lose something.
    measured_weights : int
        Those of them that were coded; figures of the whole are estimated from them.
    threads : int
        That coded tensors at once.
    limit : Limit
        R(D), for one variance of each tensor.
    rows : tuple of StrategyRow
    """

    name: str
    profile: str
    weights: int
    tensors: int
    input_bytes: int
    lossy_weights: int
    measured_weights: int
    threads: int
    limit: Limit
    rows: tuple[StrategyRow, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether figures are estimated from a sample."""
        return self.measured_weights < self.lossy_weights

    @property
    def fixed_bits(self) -> float:
        """Bits of the tensors that stay lossless, per weight of the checkpoint."""
        return self.limit.fixed_bits / self.limit.all_weights


def millions(weights: float) -> str:
    """Return a number of weights, in millions if there are so many."""
    return f"{three_digits(weights / 1e6)} M" if weights >= 1e6 else f"{weights:,.0f}"
