"""The verb bench: every strategy on the user's own checkpoint, beside R(D) and other libraries."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.benchmark.figures import Benchmark, StrategyRow
from tensorcomp.benchmark.peers import PEERS, Peer
from tensorcomp.benchmark.samples import Piece, Stored, take_pieces
from tensorcomp.benchmark.spreads import Weights, join_classes, look_at
from tensorcomp.checkpoints.folder import scan_folder
from tensorcomp.codecs.rounding import is_float
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.paths import open_original
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PlanError
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.metrics.gaussian_limit import Limit
from tensorcomp.pipeline.encoded_tensor import LOSSLESS, Method, code
from tensorcomp.planning.lossless import sample_rows
from tensorcomp.planning.profiles import Profile, load_profile
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.planning.strategies import STRATEGIES, Strategy
from tensorcomp.progress import Progress

SAMPLE = 8_000_000  # weights
_BATCH = 1 << 22  # elements whose payloads are held at once
_WARM = 1 << 14  # elements that each method codes beforehand, so that kernels are compiled

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def bench(
    path: str | os.PathLike[str],
    *,
    profile: str | Profile = "transformer",
    strategies: Sequence[Strategy] = STRATEGIES,
    peers: Sequence[Peer] = PEERS,
    most: int | None = SAMPLE,
    threads: int = 1,
    progress: Progress | None = None,
) -> Benchmark:
    """Code a checkpoint by every strategy, decode it, and measure rate, error and speed.

    Parameters
    ----------
    path : str or path-like
        A checkpoint file or folder that is not compressed.
    profile : str or Profile
        Says which tensors may lose something; all others are coded losslessly and count as well.
    strategies, peers : sequence
        Those that need what is not installed are left out.
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
    source = Path(path)
    found = profile if isinstance(profile, Profile) else load_profile(profile)
    files = [source / name for name in scan_folder(source).weights] if source.is_dir() else [source]
    methods: list[Method] = [one for one in strategies if one.available()]
    methods += [one for one in peers if one.available()]
    with contextlib.ExitStack() as stack:
        tensors, nbytes = [], 0
        for file in files:
            checkpoint = stack.enter_context(open_original(file))
            roles = roles_of(checkpoint.tensors)
            nbytes += checkpoint.nbytes
            tensors += [
                Stored(info, roles[info.name], checkpoint.read) for info in checkpoint.tensors
            ]
        workers = stack.enter_context(Workers(threads))
        may = [_may_lose(tensor, found) for tensor in tensors]
        lossy = [tensor for tensor, yes in zip(tensors, may, strict=True) if yes]
        others = [tensor for tensor, yes in zip(tensors, may, strict=True) if not yes]
        job = _Job.begin(take_pieces(lossy, most), take_pieces(others, most), workers)
        if not job.weights:
            raise PlanError(
                f"{source}: no tensor may lose anything: all are protected by profile "
                f"{found.name}, small, not finite or no floats"
            )
        rows = tuple(job.rows(methods, progress or Progress()))
    return Benchmark(
        name=source.resolve().name,
        profile=found.name,
        weights=sum(tensor.weights for tensor in tensors),
        tensors=len(tensors),
        input_bytes=nbytes,
        lossy_weights=round(sum(weights.piece.weights for weights in job.weights)),
        measured_weights=sum(weights.piece.size for weights in job.weights),
        measured_tensors=len(job.weights),
        threads=threads,
        limit=job.limit,
        tensor_limit=replace(
            job.limit,
            weights=tuple(weights.piece.weights for weights in job.weights),
            variances=tuple(weights.variance for weights in job.weights),
        ),
        rows=rows,
    )


def _may_lose(tensor: Stored, profile: Profile) -> bool:
    dtype = numpy_dtype(tensor.info.dtype)
    is_large = tensor.weights >= max(profile.smallest, 1)
    return dtype is not None and is_float(dtype) and is_large and not profile.protects(tensor.role)


@dataclass
class _Sums:
    """What a method has made of the pieces so far; bytes and squares are of the checkpoint."""

    stored: float
    squared_error: float = 0.0
    size: int = 0
    refused: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    lowest: ErrorSums | None = None

    def add(self, piece: Piece, nbytes: int, errors: ErrorSums, *, refused: bool) -> None:
        self.stored += piece.share * nbytes
        self.squared_error += piece.share * errors.l2 * errors.l2
        self.size += piece.size
        self.refused += refused
        if self.lowest is None or errors.rel_l2 > self.lowest.rel_l2:
            self.lowest = errors


@dataclass(frozen=True)
class _Job:
    """What is to be coded, and what is the same for all methods.

    Parameters
    ----------
    weights : sequence of Weights
    limit : Limit
    raw_bytes : float
        Of all tensors of the checkpoint before they are coded.
    workers : Workers
    """

    weights: Sequence[Weights]
    limit: Limit
    raw_bytes: float
    workers: Workers

    @classmethod
    def begin(cls, lossy: Sequence[Piece], others: Sequence[Piece], workers: Workers) -> _Job:
        """Look at all pieces, and code those that stay lossless."""
        looked_at = [found for _, found in workers.in_order(look_at, lossy)]
        weights = [found for found in looked_at if found.finite]
        lossless = [*others, *(found.piece for found in looked_at if not found.finite)]
        sizes = workers.in_order(_lossless_bytes, lossless)
        numbers, variances = join_classes(weights)
        limit = Limit(
            weights=numbers,
            variances=variances,
            power=sum(found.piece.weights * found.square for found in weights),
            other_weights=sum(piece.weights for piece in lossless),
            other_bytes=sum(piece.share * nbytes for piece, nbytes in sizes),
        )
        pieces = [*(found.piece for found in weights), *lossless]
        raw_bytes = sum(piece.share * piece.grid.nbytes for piece in pieces)
        return cls(weights, limit, raw_bytes, workers)

    def rows(self, methods: Sequence[Method], progress: Progress) -> Iterator[StrategyRow]:
        """Yield what each method makes of the pieces."""
        nbytes = sum(found.piece.grid.nbytes for found in self.weights)
        progress.begin_folder(len(methods) * nbytes)
        for method in methods:
            progress.begin(len(self.weights), nbytes)
            if isinstance(method, Strategy):
                yield self._row(method, method.template, progress)
                continue
            try:
                yield self._row(method, method.source, progress)
            except Exception as error:  # whatever another library does, the other figures are due
                yield StrategyRow(
                    method.label,
                    method.family,
                    method.source,
                    peer=True,
                    problem=" ".join(f"{type(error).__name__}: {error}".split()),
                )

    def _row(self, method: Method, tree: str, progress: Progress) -> StrategyRow:
        self._warm_up(method)
        sums = _Sums(self.limit.other_bytes)
        for batch in _batches(self.weights):
            self._add(method, batch, sums, progress)
        power, snr = self.limit.power, None
        if sums.squared_error:
            snr = 10 * math.log10(power / sums.squared_error) if power else -math.inf
        bits = 8 * sums.stored / self.limit.all_weights
        return StrategyRow(
            label=method.label,
            family=method.family,
            tree=tree,
            peer=isinstance(method, Peer),
            stored=sums.stored,
            bits=bits,
            ratio=self.raw_bytes / sums.stored,
            snr_db=snr,
            lowest_snr_db=None if sums.lowest is None else sums.lowest.snr_db,
            gap=None if snr is None or snr == -math.inf else bits - self.limit.rate(snr),
            refused=sums.refused,
            encode_speed=sums.size / sums.encode_seconds,
            decode_speed=sums.size / sums.decode_seconds,
        )

    def _add(
        self, method: Method, batch: Sequence[Weights], sums: _Sums, progress: Progress
    ) -> None:
        arrays = [found.piece.load() for found in batch]
        jobs = list(zip(batch, arrays, strict=True))
        coded, seconds = self._timed(
            lambda job: code(method, job[1], job[0].piece.grid, self._scale(method, job[0])), jobs
        )
        sums.encode_seconds += seconds
        decoded, seconds = self._timed(lambda code: code.decode(), coded)
        sums.decode_seconds += seconds
        for (found, array), one, values in zip(jobs, coded, decoded, strict=True):
            errors = measure(array, values)
            sums.add(found.piece, one.nbytes, errors, refused=one.refused)
            progress.advance(found.piece.name, found.piece.grid.nbytes)

    def _timed(
        self, function: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> tuple[list[_Result], float]:
        """Return the results of a function, and the seconds that all calls took together."""
        begun = time.perf_counter()
        results = [result for _, result in self.workers.in_order(function, items)]
        return results, max(time.perf_counter() - begun, 1e-9)

    def _warm_up(self, method: Method) -> None:
        """Code a few rows of one piece of each type and number of axes."""
        kinds = {(w.piece.grid.dtype, len(w.piece.grid.shape)): w for w in self.weights}
        for found in kinds.values():
            rows = np.ascontiguousarray(sample_rows(found.piece.load(), _WARM))
            grid = chunk_grid(found.piece.dtype, rows.shape, rows.nbytes)
            code(method, rows, grid, self._scale(method, found)).decode()

    def _scale(self, method: Method, found: Weights) -> float:
        """Return the root mean square of a piece, or of all weights if they have one step."""
        if isinstance(method, Strategy) and method.common:
            return math.sqrt(self.limit.power / sum(self.limit.weights))
        return found.scale


def _lossless_bytes(piece: Piece) -> int:
    return code(LOSSLESS, piece.load(), piece.grid, 0.0).nbytes


def _batches(weights: Iterable[Weights]) -> Iterator[list[Weights]]:
    """Yield runs of pieces whose payloads are held in memory together."""
    batch: list[Weights] = []
    for found in weights:
        batch.append(found)
        if sum(one.piece.size for one in batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
