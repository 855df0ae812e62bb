"""Low rank: a matrix as the product of two thin ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.lowrank.factors import nearest_factors
from tensorcomp.codecs.rounding import as_matrix, check_float, store, widened, work_dtype
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_SKETCH = 32  # rows whose singular values stand for the spectrum
_MIN_SIDE = 8  # rows and columns of a spectrum
_DECAYED = 0.25  # effective rank over rank; 0.85 where rows are independent


@dataclass(frozen=True)
class Svd(Transform):
    """Replace a matrix by two factors of the nearest one of a lower rank.

    An array of more axes is unfolded to a matrix: by ``rows``, first axis × all others, so a
    convolution (O, I, kh, kw) is O × (I·kh·kw); ``separable`` turns it into (O·kh) × (I·kw), the
    product of a vertical and a horizontal convolution, and leaves other arrays at rows.

    Parts: ``left`` (m, r) and ``right`` (r, n), float32 (float64 for float64), with the square
    root of each singular value in its column of the one and its row of the other. If `refine` is
    true, ``residual`` too, of the array's shape: the array minus the product of these factors, in
    their dtype. The product is summed from the first component to the last in that dtype, the
    residual is added, and the sum is rounded to the array's dtype.

    Error: that of the truncation, the square root of the sum of the squares of the singular values
    left out: no matrix of that rank comes nearer in L2. It keeps `error` or `energy` if one is
    given, but for rounding, in single precision about 1e-7 of the norm. Subtrees that lose
    something of the factors add to the error, with or without the residual, which does not know
    what they lose.

    Parameters
    ----------
    rank : int or float, optional
        Components; a float between 0 and 1 means that part of the matrix's shorter side. A rank
        greater than the shorter side is the shorter side.
    energy : float, optional
        Keep as few components as hold this part, above 0 and up to 1, of the squared Frobenius
        norm.
    error : float, optional
        Keep as few components as leave a relative L2 error of at most this, between 0 and 1.
        Exactly one of the three is given.
    unfold : {"rows", "separable"}
        How arrays of four axes become a matrix.
    refine : bool
        Whether there is a residual. It is worth it behind a quantizer only.

    Notes
    -----
    Cost: O(m n min(m, n)) to encode, 0.2 s for 1024 × 1024; O(m n r) by a randomized range finder
    where r is a small part of a large matrix; O(m n r) to decode, 20 to 40 GFlop/s a core. Decoding
    is exact to the bit everywhere. Encoding is not: the factors' last bits depend on the build of
    LAPACK and its threads, though not from one call to the next. Each chunk of a tensor has factors
    of its own: the fewer rows it has, the more its right factor costs. Not for matrices whose
    singular values do not decay: factors with more elements than the matrix are refused, so are one
    row and one column, and at equal error a quantizer needs fewer bits for most weights. For
    factors quantized with one step each, the square roots on both sides need up to 0.1 bit less
    than all singular values on one.

    References
    ----------
    Eckart & Young 1936, "The approximation of one matrix by another of lower rank"; Halko,
    Martinsson & Tropp 2011, "Finding structure with randomness"; unfoldings: Denton et al. 2014,
    "Exploiting linear structure within convolutional networks"; Jaderberg, Vedaldi & Zisserman
    2014, "Speeding up convolutional neural networks with low rank expansions".
    """

    id: ClassVar[str] = "svd"
    long_chunks: ClassVar[bool] = True
    lossless: ClassVar[bool] = False
    off_wire: ClassVar[str] = "it decomposes each tensor; take powersgd(4)"
    strategies: ClassVar[tuple[Strategy, ...]] = (
        Strategy("SVD, half rank, int8", "svd(0.5, left=affine(8, -1), right=affine(8, -1))"),
    )
    default_parts: ClassVar[Mapping[str, str]] = {
        "left": "floats",
        "right": "floats",
        "residual": "floats",
    }
    rank: int | float | None = argument(None, above=0)
    energy: float | None = argument(None, above=0, most=1)
    error: float | None = argument(None, above=0)
    unfold: str = argument("rows", choices=("rows", "separable"))
    refine: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [value for value in (self.rank, self.energy, self.error) if value is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of rank, energy and error, got {given or 'none'}")
        if (isinstance(self.rank, float) and self.rank >= 1) or (self.error or 0) >= 1:
            raise ValueError(f"expected a rank or an error below 1, got {given[0]!r}")

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether the spectrum decays, by the Gram matrix of a few rows.

        With its eigenvalues λ, (Σλ)² / Σλ² is how many directions there would be if all were equal;
        it follows from the entries alone.
        """
        few = as_matrix(sample[:: max(1, len(sample) // _SKETCH)][:_SKETCH])
        if min(few.shape) < _MIN_SIDE:
            return False
        gram = few @ few.T
        total, squares = float(np.vdot(few, few)), float(np.vdot(gram, gram))
        return squares > 0 and total * total / squares <= _DECAYED * min(few.shape)

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the factors, of an open rank where the data decide it."""
        rows, columns = _matrix_shape(spec.shape, self.unfold)
        rank = -1 if self.rank is None else _rank_of(self.rank, min(rows, columns))
        dtype = work_dtype(spec.dtype)
        parts = {"left": ArraySpec((rows, rank), dtype), "right": ArraySpec((rank, columns), dtype)}
        if self.refine:
            parts["residual"] = ArraySpec(spec.shape, dtype)
        return parts

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the factors, and the residual if there is one."""
        wide = widened(array, "svd")
        matrix = _unfolded(wide, self.unfold)
        rank = None if self.rank is None else _rank_of(self.rank, min(matrix.shape))
        _check_worth(rank or 0, matrix.shape)
        if array.size:
            lost = 1 - self.energy if self.energy is not None else (self.error or 0) ** 2
            factors = nearest_factors(matrix, rank, lost)
            _check_worth(factors[0].shape[1], matrix.shape)
        else:
            factors = matrix, matrix
        left, right = (np.ascontiguousarray(factor, work_dtype(array.dtype)) for factor in factors)
        parts = {"left": left, "right": right}
        if self.refine:
            with np.errstate(over="ignore", invalid="ignore"):
                residual = wide - _folded(product(left, right), array.shape, self.unfold)
            if not np.isfinite(residual).all():
                raise NotRepresentable("svd: expected weights whose residual is finite, got larger")
            parts["residual"] = residual
        return parts

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Multiply the factors and add the residual."""
        left, right = parts["left"], parts["right"]
        check_float(out.dtype, "svd")
        if left.shape[1] != right.shape[0]:
            raise CodecError(
                f"svd: expected factors of one rank, got {left.shape[1]} and {right.shape[0]}"
            )
        if left.size + right.size > out.size:
            elements = left.size + right.size
            raise CodecError(
                f"svd: expected factors of at most {out.size} elements, got {elements}"
            )
        values = _folded(product(left, right), out.shape, self.unfold)
        if self.refine:
            with np.errstate(all="ignore"):  # damaged parts may hold anything
                values = values + parts["residual"]
        store(values, out)


def _rank_of(rank: int | float, shorter: int) -> int:
    """Return the rank of factors of a matrix whose shorter side is given."""
    wanted = rank if isinstance(rank, int) else max(round(rank * shorter), 1)
    return min(wanted, shorter)


def _check_worth(rank: int, shape: tuple[int, ...]) -> None:
    if rank * sum(shape) > math.prod(shape):
        raise NotRepresentable(
            f"svd: factors of rank {rank} have more elements than the matrix {shape}"
        )


def _matrix_shape(shape: tuple[int, ...], unfold: str) -> tuple[int, int]:
    if 0 in shape:
        return 0, 0
    if unfold == "separable" and len(shape) == 4:
        return shape[0] * shape[2], shape[1] * shape[3]
    rows = shape[0] if len(shape) > 1 else 1
    return rows, math.prod(shape) // rows


def _unfolded(array: np.ndarray, unfold: str) -> np.ndarray:
    """Return the matrix of an array."""
    shape = _matrix_shape(array.shape, unfold)
    if unfold == "separable" and array.ndim == 4:
        array = array.transpose(0, 2, 1, 3)
    return array.reshape(shape)


def _folded(matrix: np.ndarray, shape: tuple[int, ...], unfold: str) -> np.ndarray:
    """Return the array of a matrix."""
    if unfold == "separable" and len(shape) == 4:
        outer, inner, height, width = shape
        return matrix.reshape(outer, height, inner, width).transpose(0, 2, 1, 3)
    return matrix.reshape(shape)


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of matrices of one dtype, float32 or float64.

    Terms are added from the first to the last: the result is the same on every machine.
    """
    out = np.empty((left.shape[0], right.shape[1]), left.dtype)
    native.linear_multiply(np.ascontiguousarray(left), np.ascontiguousarray(right), out)
    return out
