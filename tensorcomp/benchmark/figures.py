"""What strategies make of a checkpoint: their rates, errors and speeds, beside R(D)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensorcomp.metrics.gaussian_limit import Limit


@dataclass(frozen=True)
class StrategyRow:
    """What became of the weights under one strategy.

    Parameters
    ----------
    label, family, tree : str
        The tree is a template; for a peer, the package and its version.
    peer : bool
        Whether another library coded it.
    stored : float
        Bytes of all tensors' blobs, those that stay lossless included.
    bits : float
        Of `stored` for each weight.
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
        Weights a second.
    problem : str
        Why there are no figures; empty if there are.
    """

    label: str
    family: str
    tree: str
    peer: bool = False
    stored: float = math.nan
    bits: float = math.nan
    ratio: float = math.nan
    snr_db: float | None = None
    lowest_snr_db: float | None = None
    gap: float | None = None
    refused: int = 0
    encode_speed: float = math.nan
    decode_speed: float = math.nan
    problem: str = ""

    @property
    def exact(self) -> bool:
        """Whether nothing was lost."""
        return not self.problem and self.snr_db is None

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
        What says which tensors may lose something.
    weights, tensors, input_bytes : int
        Of the whole checkpoint.
    lossy_weights : int
        Those that may lose something.
    measured_weights, measured_tensors : int
        Those of them that were coded; the whole is reckoned from them.
    threads : int
        That coded tensors at once.
    limit : Limit
        R(D), for a variance of each row × column.
    tensor_limit : Limit
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
    measured_tensors: int
    threads: int
    limit: Limit
    tensor_limit: Limit
    rows: tuple[StrategyRow, ...] = field(default=())

    @property
    def sampled(self) -> bool:
        """Whether figures are reckoned from a sample."""
        return self.measured_weights < self.lossy_weights

    @property
    def fixed_bits(self) -> float:
        """Bits of the tensors that stay lossless, for each weight of all."""
        return self.limit.fixed_bits / self.limit.all_weights
