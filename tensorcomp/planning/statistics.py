"""Statistics of a model's weights, for scores that read more than weights.

==============  ==============================================================================
statistic       for each weight w, with gradients g_b of the loss of minibatches b
==============  ==============================================================================
``gradient``    running mean of |g_b|
``taylor``      mean of |w · g_b|
``snip``        |w · g|, where g is the mean of g_b
``grasp``       w · (Hg), with the Hessian H and the gradient g of the loss, logits divided by 200
``fisher``      mean of g_b²
``input_norm``  ‖X‖₂, over all samples and positions, of the input that the weight reads
``synflow``     |w| · ∂R/∂|w|, R the sum of outputs of the network of magnitudes
==============  ==============================================================================

All are float32 and of the weight's shape, but ``input_norm``, which may be of the shape of one
output's weights, and ``synflow``, which is float64.

``input_norm`` follows from ``second_moment`` where it was not measured, and so does what one score
reads: ``input_residual``, the norm of what the other inputs do not predict of an input.

Two more make a quadratic model of the loss, in nats a term of it (a token, a sample): an error e_r
of the rows r of a weight costs ½ Σ_r row_weight_r · e_r H e_rᵀ.

=================  ===========================================================================
``second_moment``  H, the mean over positions of x xᵀ, x the input; (n, n), or (groups, n, n) of
                   convolutions and where blocks of rows read different inputs; of tables, the
                   mean of g gᵀ, g the gradient by what is looked up
``row_weight``     the sum over positions of the squared gradient by the row's output, a term of
                   the loss (the Fisher information); of tables, how often the row is looked up
=================  ===========================================================================

Tables that are also the matrix of the output layer have the joint model of both. The weights of
inputs × outputs have their outputs as rows.

A statistics file is a safetensors file with one tensor ``STATISTIC/TENSOR`` for each.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorcomp._formatting import listed, shown
from tensorcomp._names import match_names
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.dtypes import dtype_name, holds_floats, numpy_dtype
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, PruningError
from tensorcomp.planning.moments import Moment as Moment
from tensorcomp.planning.moments import weight_digest as weight_digest

CALIBRATED = ("snip", "taylor", "gradient", "fisher", "grasp", "input_norm")  # by default
CURVATURE = ("second_moment", "row_weight")
STATISTICS = (
    *("gradient", "taylor", "snip", "grasp", "fisher", "input_norm", "synflow"),
    *CURVATURE,
)

# What follows from second moments, and what has to be measured for it.
DERIVED = {"input_norm": Moment.input_norm, "input_residual": Moment.input_residual}
SOURCES = {"input_residual": CURVATURE}

_KEY = "tensorcomp.statistics"
_VERSIONS = (1, 2)  # 2 has `CURVATURE`
_LISTS = ("unreached", "transposed")
_MAPS: dict[str, type] = {"positions": int, "shared": str, "tied": str, "digests": str}


@dataclass(frozen=True)
class Statistics:
    """Measured statistics of the weights of a model.

    Parameters
    ----------
    arrays : mapping of str to mapping of str to numpy.ndarray
        By statistic, then by tensor.
    batches : int
        Minibatches that were seen.
    samples : int
        Samples in them.
    unreached : tuple of str
        Tensors that no sample reaches, such as experts that are never routed to.
    positions : mapping of str to int
        Of how many samples each ``second_moment`` is the mean.
    transposed : tuple of str
        Those of the weights with ``second_moment`` that are inputs × outputs.
    shared : mapping of str to str
        Tensors whose ``second_moment`` is that of another, since they read the same.
    tied : mapping of str to str
        Other names of tensors.
    digests : mapping of str to str
        See `weight_digest`.
    path : str
        Where they were read, for messages.
    """

    arrays: Mapping[str, Mapping[str, np.ndarray]]
    batches: int = 0
    samples: int = 0
    unreached: tuple[str, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    path: str = "the statistics"

    def moment(self, name: str, shape: Sequence[int] | None = None) -> Moment | None:
        """Return the quadratic model of the loss by a tensor, if measured.

        Raises
        ------
        CheckpointError
            If what was measured is not finite, or does not fit together or the tensor's shape.
        """
        name = self.tied.get(name, name)
        rows = self.arrays.get("row_weight", {}).get(name)
        stored = self.arrays.get("second_moment", {}).get(self.shared.get(name, name))
        if rows is None or stored is None:
            return None
        place = f"{self.path}: tensor {shown(name)}"
        if shape is not None and rows.size * stored.shape[-1] != math.prod(shape):
            raise CheckpointError(
                f"{place}: expected statistics of shape {tuple(shape)}, got {rows.size} rows of "
                f"{stored.shape[-1]}; run calibrate on this model"
            )
        rows, transposed = rows.astype(np.float32, copy=False), name in self.transposed
        return Moment(stored, rows, self.positions.get(name, 0), transposed, place)

    def check_weights(self, name: str, array: np.ndarray) -> None:
        """Require the values with which a tensor was measured.

        Raises
        ------
        CheckpointError
            If the tensor is another.
        """
        known = self.digests.get(self.tied.get(name, name))
        if known is not None and weight_digest(array) != known:
            raise CheckpointError(
                f"{self.path}: statistics of another model: tensor {shown(name)} differs from the "
                "one that was measured; run calibrate on this one"
            )

    def matched(self, statistic: str, names: Mapping[str, Sequence[str]]) -> Statistics:
        """Return a statistic by the keys of tensors of one or several names.

        Raises
        ------
        CheckpointError
            If their names differ by an ambiguous prefix (see `_names.match_names`).
        PruningError
            If it was not measured, or of none of these.
        """
        if statistic in DERIVED and statistic not in self.arrays:
            self = self._derived(statistic)
        found = self.arrays.get(statistic, {})
        unreached = set(self.unreached)
        pairs = match_names(names, unreached.union(found))
        if found and not pairs:
            raise PruningError(
                f"the statistics are of another model, or of other tensors of it: of "
                f"{listed(sorted(found))}, not of {listed(names)}"
            )
        renamed = {key: found[name] for key, name in pairs.items() if name in found}
        here = tuple(key for key, name in pairs.items() if name in unreached)
        arrays = {**self.arrays, statistic: renamed} if statistic in self.arrays else self.arrays
        return replace(self, arrays=arrays, unreached=here)

    def _derived(self, statistic: str) -> Statistics:
        """Return the statistics with one that follows from second moments."""
        names = (*self.arrays.get("row_weight", ()), *self.tied)
        moments = {name: moment for name in names if (moment := self.moment(name)) is not None}
        found = {name: DERIVED[statistic](moment) for name, moment in moments.items()}
        return replace(self, arrays={**self.arrays, statistic: found} if found else self.arrays)

    def missing(self, statistic: str, names: Iterable[str]) -> dict[str, str]:
        """Return why each tensor that lacks a statistic does.

        Raises
        ------
        PruningError
            If it was measured of none.
        """
        lacking = [name for name in names if name not in self.arrays.get(statistic, ())]
        if lacking and len(lacking) == len(list(names)):
            self.of(statistic, lacking[0])
        unreached = set(self.unreached)
        return {name: _why(statistic, reached=name not in unreached) for name in lacking}

    def of(self, statistic: str, name: str) -> np.ndarray:
        """Return a statistic of a tensor.

        Raises
        ------
        PruningError
            If it was not measured.
        """
        if statistic not in self.arrays:
            raise PruningError(
                f"expected the statistic {statistic!r}, got {', '.join(self.arrays) or 'none'}; "
                f"run calibrate with {', '.join(SOURCES.get(statistic, (statistic,)))} among its "
                "statistics"
            )
        if name not in self.arrays[statistic]:
            raise PruningError(
                f"expected a statistic {statistic!r} of tensor {name!r}, got none: "
                f"{_why(statistic, reached=name not in self.unreached)}; leave it out by 'where'"
            )
        return self.arrays[statistic][name]

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a statistics file, whole or not at all.

        Parameters
        ----------
        path : str or path-like
        force : bool
            Replace an existing file.

        Raises
        ------
        CheckpointError
            If it exists, or cannot be written.
        """
        from tensorcomp.checkpoints.safetensors.header import build_header
        from tensorcomp.io.files import atomic_file
        from tensorcomp.io.locations import location

        tensors = {
            f"{statistic}/{name}": np.ascontiguousarray(array)
            for statistic, named in self.arrays.items()
            for name, array in named.items()
        }
        infos = [
            TensorInfo(key, dtype_name(array.dtype), array.shape, array.nbytes)
            for key, array in tensors.items()
        ]
        version = _VERSIONS[any(name in self.arrays for name in CURVATURE)]
        about: dict[str, Any] = {"version": version, "batches": self.batches}
        about["samples"] = self.samples
        about |= {key: found for key in (*_LISTS, *_MAPS) if (found := getattr(self, key))}
        with atomic_file(location(path), force=force) as file:
            file.write(build_header(infos, {_KEY: json.dumps(about)}))
            for array in tensors.values():
                file.write(array.reshape(-1).view(np.uint8).data)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | Statistics) -> Statistics:
        """Open a statistics file; its arrays are views of the mapped file.

        Statistics are returned as they are.

        Raises
        ------
        CheckpointError
            If it is not a statistics file, or damaged.
        """
        if isinstance(path, Statistics):
            return path
        checkpoint = open_checkpoint(path)
        metadata = checkpoint.template().structure.get("metadata")
        about = _about(metadata, path)
        arrays: dict[str, dict[str, np.ndarray]] = {}
        for info in checkpoint.arrays:
            statistic, _, name = info.name.partition("/")
            dtype = numpy_dtype(info.dtype)
            known = statistic in STATISTICS and name
            if not known or dtype is None or not holds_floats(dtype):
                raise CheckpointError(
                    f"{path}: expected floats named STATISTIC/TENSOR, got {shown(info.name)} of "
                    f"{info.dtype}"
                )
            data = checkpoint.read(info.name).view(dtype).reshape(info.shape)
            arrays.setdefault(statistic, {})[name] = data
        return cls(arrays, path=str(path), **about)


def _why(statistic: str, *, reached: bool) -> str:
    """Return why a tensor lacks a statistic."""
    if not reached:
        return "no sample of the calibration reaches it"
    return f"calibrate measured no {statistic} of it, which it does of layers that it knows"


def _about(metadata: Any, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what the metadata of a statistics file says beside the arrays."""
    try:
        about = json.loads(metadata[_KEY])
        numbers = {key: about[key] for key in ("version", "batches", "samples")}
        lists = {key: tuple(map(str, about.get(key, ()))) for key in _LISTS}
        maps = {
            key: {str(name): kind(value) for name, value in about.get(key, {}).items()}
            for key, kind in _MAPS.items()
        }
    except (*PARSING_ERRORS, RecursionError) as error:
        raise CheckpointError(
            f"{path}: expected a statistics file, got another; make one by `calibrate`"
        ) from error
    if not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise CheckpointError(f"{path}: expected counts in its metadata, got {shown(str(about))}")
    version = numbers.pop("version")
    if version not in _VERSIONS:
        raise CheckpointError(
            f"{path}: expected statistics of version {_VERSIONS[-1]} or before, got {version}; "
            "update tensorcomp"
        )
    return {**numbers, **lists, **maps}
