"""Measure every strategy on a checkpoint: rate, error and speed, beside R(D)."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.benchmark.figures import Benchmark, StrategyRow
from tensorcomp.benchmark.samples import SourceTensor, TensorSample, take_pieces
from tensorcomp.codecs.rounding import is_float, work_dtype
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.container.chunk_grid import ChunkGrid, chunk_grid
from tensorcomp.container.local_copies import with_copies
from tensorcomp.container.model import open_model, open_original
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PlanError
from tensorcomp.metrics.distortion import measure
from tensorcomp.metrics.gaussian_limit import Limit
from tensorcomp.pipeline.bundle import runs
from tensorcomp.pipeline.strategies import LOSSLESS, WITH_STATISTICS, EncodedTensor, code
from tensorcomp.pipeline.strategies import strategies as known_strategies
from tensorcomp.planning.lossless import sample_rows
from tensorcomp.planning.profiles import Profile, load_profile
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.progress import Progress

if TYPE_CHECKING:
    from tensorcomp.planning.statistics import Statistics

SAMPLE = 8_000_000  # weights
_BATCH = 1 << 22  # elements whose payloads are held at once
_WARM = 1 << 14  # elements that each strategy codes beforehand, so that caches are warm

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def bench(
    path: str | os.PathLike[str],
    *,
    profile: str | Profile = "transformer",
    statistics: str | os.PathLike[str] | Statistics | None = None,
    strategies: Sequence[Strategy] | None = None,
    most: int | None = SAMPLE,
    threads: int = 1,
    progress: Progress | None = None,
) -> Benchmark:
    """Measure rate, error and speed of every strategy on a checkpoint.

    Parameters
    ----------
    path : str or path-like
        A checkpoint file or folder that is not compressed.
    profile : str or Profile
        Says which tensors may lose something; all others are coded losslessly and count as well.
    statistics : path or Statistics, optional
        What `calibrate` measured: the loss is then predicted, and strategies by it are tried.
    strategies : sequence of Strategy, optional
        By default all. Those that need what is not installed are left out.
    most : int or None
        Weights to measure on, about; None for all.
    threads : int
        Tensors coded at once. Speeds are of all threads together.
    progress : Progress, optional

    Raises
    ------
    CheckpointError
        If the input cannot be read.
    PlanError
        If no tensor may lose anything.

    Notes
    -----
    Bytes are those of the blobs; the file's header is left out. Tensors that are equal to others
    are coded as well.
    """
    found = profile if isinstance(profile, Profile) else load_profile(profile)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(with_copies(open_model(path, compressed=False), progress))
        workers = stack.enter_context(Workers(threads))
        tensors, nbytes = [], 0
        for shard in model.shards:
            checkpoint = stack.enter_context(open_original(model.file(shard)))
            roles = roles_of(checkpoint.arrays)
            nbytes += checkpoint.nbytes
            tensors += [
                SourceTensor(info, roles[info.name], checkpoint.read) for info in checkpoint.arrays
            ]
        if statistics is not None:
            tensors = _with_statistics(tensors, statistics)
        lossy = take_pieces([tensor for tensor in tensors if _may_lose(tensor, found)], most)
        exact = take_pieces([tensor for tensor in tensors if not _may_lose(tensor, found)], most)
        is_finite = list(workers.in_order(lambda piece: piece.finite, lossy))
        pieces = [piece for piece, finite in is_finite if finite]
        exact += [piece for piece, finite in is_finite if not finite]
        if not pieces:
            raise PlanError(
                f"{model.path}: no tensor may lose anything: all are protected by profile "
                f"{found.name}, small, not finite or no floats"
            )
        job = _Job(pieces, exact, workers, progress or Progress())
        tried = (*(strategies or known_strategies()), *(WITH_STATISTICS if statistics else ()))
        rows = tuple(job.rows([strategy for strategy in tried if strategy.available()]))
    return Benchmark(
        name=model.path.resolve().name,
        profile=found.name,
        weights=sum(tensor.weights for tensor in tensors),
        tensors=len(tensors),
        input_bytes=nbytes,
        lossy_weights=round(sum(piece.weights for piece in pieces)),
        measured_weights=job.measured_weights,
        threads=threads,
        limit=job.limit,
        rows=rows,
    )


def _with_statistics(
    tensors: Sequence[SourceTensor], statistics: str | os.PathLike[str] | Statistics
) -> list[SourceTensor]:
    """Return tensors with their statistics, which must be those of this model."""
    from tensorcomp.planning.calibrated import calibrated_tensors

    infos = [tensor.info for tensor in tensors]
    found = calibrated_tensors(statistics, {info.name: info.shape for info in infos})
    result = []
    for tensor in tensors:
        own = found.get(tensor.info.name)
        if own is not None:
            own.check_data(tensor.info, tensor.read(tensor.info.name))
        result.append(replace(tensor, calibrated=own))
    return result


def _may_lose(tensor: SourceTensor, profile: Profile) -> bool:
    dtype = numpy_dtype(tensor.info.dtype)
    is_large = tensor.weights >= max(profile.smallest, 1)
    return dtype is not None and is_float(dtype) and is_large and not profile.protects(tensor.role)


class _Job:
    """Pieces to encode, and their limit, which all strategies share."""

    def __init__(
        self,
        pieces: Sequence[TensorSample],
        exact: Sequence[TensorSample],
        workers: Workers,
        progress: Progress,
    ) -> None:
        self._pieces = pieces
        self._workers = workers
        self._progress = progress
        self.measured_weights = sum(piece.size for piece in pieces)
        self._raw_bytes = sum(piece.share * piece.grid.nbytes for piece in [*pieces, *exact])
        lossless = workers.in_order(_lossless_bytes, exact)
        self.limit = Limit(
            weights=tuple(piece.weights for piece in pieces),
            variances=tuple(piece.variance for piece in pieces),
            power=sum(piece.weights * piece.moments[1] for piece in pieces),
            other_weights=sum(piece.weights for piece in exact),
            other_bytes=sum(piece.share * nbytes for piece, nbytes in lossless),
        )

    def rows(self, strategies: Sequence[Strategy]) -> Iterator[StrategyRow]:
        """Yield what each strategy makes of the pieces."""
        nbytes = sum(piece.grid.nbytes for piece in self._pieces)
        self._progress.begin_folder(len(strategies) * nbytes)
        for strategy in strategies:
            self._progress.begin(len(self._pieces), nbytes)
            self._warm_up(strategy)
            yield self._row(strategy)

    def _row(self, strategy: Strategy) -> StrategyRow:
        """Encode and decode all pieces; scale the sums to the checkpoint."""
        stored, squared_error, worst_rel_l2 = self.limit.other_bytes, 0.0, 0.0
        refused, encode_seconds, decode_seconds = 0, 0.0, 0.0
        losses = []
        for batch in runs(self._pieces, lambda piece: piece.size, _BATCH):
            jobs = [(piece, piece.load()) for piece in batch]
            coded, seconds = self._timed(lambda job: self._code(strategy, *job), jobs)
            encode_seconds += seconds
            decoded, seconds = self._timed(lambda one: one.decode(), coded)
            decode_seconds += seconds
            for (piece, array), one, values in zip(jobs, coded, decoded, strict=True):
                errors = measure(array, values)
                stored += piece.share * one.nbytes
                squared_error += piece.share * errors.l2 * errors.l2
                worst_rel_l2 = max(worst_rel_l2, errors.rel_l2)
                refused += one.refused
                if piece.calibrated is not None:
                    wide = work_dtype(array.dtype)
                    error = array.astype(wide) - values.astype(wide)
                    losses.append(piece.share * piece.calibrated.loss(error))
                self._progress.advance(piece.name, piece.grid.nbytes)
        snr = None
        if squared_error:
            snr = (
                10 * math.log10(self.limit.power / squared_error) if self.limit.power else -math.inf
            )
        bits = 8 * stored / self.limit.all_weights
        return StrategyRow(
            label=strategy.label,
            family=strategy.family,
            tree=strategy.template,
            stored=stored,
            bits=bits,
            ratio=self._raw_bytes / stored,
            snr_db=snr,
            lowest_snr_db=-20 * math.log10(worst_rel_l2) if worst_rel_l2 else None,
            gap=None if snr is None or snr == -math.inf else bits - self.limit.rate(snr),
            refused=refused,
            loss=sum(losses) if losses else None,
            encode_speed=self.measured_weights / encode_seconds,
            decode_speed=self.measured_weights / decode_seconds,
        )

    def _code(
        self,
        strategy: Strategy,
        piece: TensorSample,
        array: np.ndarray,
        grid: ChunkGrid | None = None,
    ) -> EncodedTensor:
        """Encode a piece, or rows of it, by the scale of the piece or of all weights."""
        square = piece.moments[1]
        if strategy.common:
            square = self.limit.power / sum(self.limit.weights)
        calibrated = piece.calibrated if grid is None else None
        return code(strategy, array, grid or piece.grid, math.sqrt(square), calibrated)

    def _timed(
        self, function: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> tuple[list[_Result], float]:
        """Return the results of a function, and the seconds of all calls."""
        begun = time.perf_counter()
        results = [result for _, result in self._workers.in_order(function, items)]
        return results, max(time.perf_counter() - begun, 1e-9)

    def _warm_up(self, strategy: Strategy) -> None:
        """Code a few rows of one piece of each type and number of axes."""
        kinds = {(piece.grid.dtype, len(piece.grid.shape)): piece for piece in self._pieces}
        for piece in kinds.values():
            rows = np.ascontiguousarray(sample_rows(piece.load(), _WARM))
            grid = chunk_grid(piece.dtype, rows.shape, rows.nbytes)
            self._code(strategy, piece, rows, grid).decode()


def _lossless_bytes(piece: TensorSample) -> int:
    return code(LOSSLESS, piece.load(), piece.grid, 0.0).nbytes
