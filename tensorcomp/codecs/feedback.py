"""Rounding column by column, where each makes up for errors before it.

The loss is taken to be ½ Σᵣ wᵣ eᵣ H eᵣᵀ for the error eᵣ of row r: H are the second moments of
what the matrix is multiplied with, and wᵣ says how much the loss feels output r. With H = U Uᵀ and
U upper triangular, eᵣ H eᵣᵀ = ‖eᵣ U‖², of which entry i depends on the columns up to i only. So
column i is rounded to be near xᵢ + Σ_{j<i} eⱼ Uⱼᵢ / Uᵢᵢ, which leaves in entry i nothing but Uᵢᵢ
times its own rounding error. Decoders know nothing of this.

References
----------
Frantar et al. 2022, "GPTQ: Accurate post-training quantization for generative pre-trained
transformers"; Chee et al. 2023, "QuIP: 2-bit quantization of large language models with
guarantees", for the form with a triangular factor; column steps: "WaterSIC", arXiv 2603.04956.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.lowrank.blas import one_thread
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import CodecError, NotRepresentable

_BLOCK = 64  # columns whose errors are spread by one product of matrices

# Rounds column i, given what it is to be near, and what the next one would have to be near were
# this one exact (None if that is not known); returns what decoding gives.
Rounding: TypeAlias = "Callable[[int, np.ndarray, np.ndarray | None], np.ndarray]"


@dataclass(frozen=True, eq=False)
class Matrix:
    """Matrix whose columns are to be rounded in turn.

    Parameters
    ----------
    columns : numpy.ndarray
        (n, R) float32.
    in_order : bool or None
        Whether codecs see one column after the other; if false, one row after the other. None if
        they see neither, only some of the elements.
    children : mapping of str to Node
        The trees that code the parts of the codec that is asked.
    shared : bytes
        What the codec shares between chunks.
    """

    columns: np.ndarray
    in_order: bool | None
    children: Mapping[str, Node]
    shared: bytes = b""

    def coded(self) -> np.ndarray:
        """Return the matrix as codecs see it: columns one after the other, or rows."""
        return self.columns if self.in_order else np.ascontiguousarray(self.columns.T)

    def rounding_of(self, part: str) -> Rounding | None:
        """Return the rounding of the tree that codes a part."""
        node = self.children[part]
        return node.codec.rounding(replace(self, children=dict(node.children), shared=b""))


@dataclass(frozen=True, eq=False)
class Feedback:
    """Second moments of what a matrix of R rows and n columns is multiplied with.

    Parameters
    ----------
    ratios : numpy.ndarray
        (G, n, n) float32, lower triangular: Uⱼᵢ / Uᵢᵢ in row i, for each of the G groups of rows.
    scales : numpy.ndarray
        (G, n) float64: Uᵢᵢ, what the error of a column is multiplied with.
    weights : numpy.ndarray
        (R,) float64, above 0: how much the loss feels each row.
    along : int
        The axis of the array that columns are counted along: 1, or 0 for inputs × outputs.
    levels : tuple of float
        Means of `logarithms` over the whole tensor.
    """

    ratios: np.ndarray
    scales: np.ndarray
    weights: np.ndarray
    along: int = 1
    levels: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(
        cls, moments: np.ndarray, weights: np.ndarray, damping: float = 0.0, along: int = 1
    ) -> Feedback:
        """Return the feedback of second moments (G, n, n).

        Parameters
        ----------
        moments : numpy.ndarray
        weights : numpy.ndarray
            (R,)
        damping : float
            What is added to the diagonal, as a multiple of its mean.
        along : int

        Raises
        ------
        CodecError
            If a moment is not positive definite even so.
        """
        flipped = damped(moments[:, ::-1, ::-1], damping)
        try:
            with one_thread():
                factors = np.linalg.cholesky(flipped)[:, ::-1, ::-1]
        except np.linalg.LinAlgError as error:
            raise CodecError("second moments: expected a positive definite matrix") from error
        scales = np.diagonal(factors, axis1=1, axis2=2)
        ratios = (factors / scales[:, None, :]).astype(np.float32).transpose(0, 2, 1)
        weights = np.asarray(weights, np.float64)
        found = cls(np.ascontiguousarray(ratios), scales.copy(), weights, along)
        rows, columns = found.logarithms()
        return replace(found, levels=(float(rows.mean()), float(columns.mean())))

    def logarithms(self) -> tuple[np.ndarray, np.ndarray]:
        """Return log2 of how much rows (R,) and columns (n,) count, about `levels`."""
        scales = np.log2(self.scales)
        groups = scales.mean(axis=1)
        rows = np.log2(self.weights) / 2 + np.repeat(groups, len(self.weights) // len(groups))
        columns = (scales - groups[:, None]).mean(axis=0)
        return rows - self.levels[0], columns - self.levels[1]

    def columns(self, array: np.ndarray) -> np.ndarray:
        """Return the columns (n, R) of an array, float32, C-contiguous."""
        rows = array.reshape(array.shape[0], -1)
        return np.ascontiguousarray(rows.T if self.along else rows, np.float32)

    def array(self, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the array of such columns."""
        return np.ascontiguousarray(columns.T if self.along else columns).reshape(shape)

    def of_chunk(self, start: int, stop: int) -> Feedback:
        """Return the feedback of a part of the array along its first axis."""
        if not self.along:  # given the inputs before them
            ratios, scales = self.ratios[:, start:stop, start:stop], self.scales[:, start:stop]
            return replace(self, ratios=ratios, scales=scales)
        ratios, scales, weights = self.ratios, self.scales, self.weights[start:stop]
        length = len(self.weights) // len(ratios)
        if len(ratios) > 1:
            whole = start % length == stop % length == 0
            owners = np.arange(start, stop, length if whole else 1) // length
            ratios, scales = ratios[owners], scales[owners]
        return replace(self, ratios=ratios, scales=scales, weights=weights)

    def spread(self, columns: np.ndarray, rounding: Rounding) -> np.ndarray:
        """Return what columns (n, R) become, each making up for those before it.

        Zeros make up for nothing: what they are to be near is 0.
        """
        groups, n, _ = self.ratios.shape
        exact = _by_group(columns, groups)
        errors, result = np.zeros_like(exact), np.empty_like(columns)
        with one_thread():
            for start in range(0, n, _BLOCK):
                stop = min(start + _BLOCK, n)
                near = exact[:, start:stop]
                if start:
                    near = near + self.ratios[:, start:stop, :start] @ errors[:, :start]
                for i in range(start, stop):
                    end = min(i + 2, stop)  # this column, and the one ahead
                    within = self.ratios[:, i:end, start:i] @ errors[:, start:i]
                    targets = near[:, i - start : end - start] + within
                    targets *= exact[:, i:end] != 0
                    ahead = targets[:, 1].reshape(-1) if end == i + 2 else None
                    result[i] = rounding(i, targets[:, 0].reshape(-1), ahead)
                    errors[:, i] = exact[:, i] - result[i].reshape(groups, -1)
        return result

    def energy(self, columns: np.ndarray) -> np.ndarray:
        """Return x H xᵀ for each row x of a matrix (n, R), float64."""
        groups, n, _ = self.ratios.shape
        parts, found = _by_group(columns, groups), np.zeros((groups, columns.shape[1] // groups))
        with one_thread():
            for start in range(0, n, _BLOCK):
                stop = min(start + _BLOCK, n)
                block = self.ratios[:, start:stop, :stop] @ parts[:, :stop]
                found += np.square(block * self.scales[:, start:stop, None]).sum(axis=1)
        return found.reshape(-1)


def damped(moments: np.ndarray, damping: float) -> np.ndarray:
    """Return moments (G, n, n) and a multiple of their mean diagonal on it."""
    found = np.array(moments, np.float64)
    places = np.arange(found.shape[1])
    mean = found[:, places, places].mean(axis=1, keepdims=True)
    found[:, places, places] += np.where(mean > 0, damping * mean, 1.0)
    return found


def _by_group(columns: np.ndarray, groups: int) -> np.ndarray:
    """Return columns (n, R) as (groups, n, rows of a group)."""
    return np.ascontiguousarray(columns.reshape(len(columns), groups, -1).transpose(1, 0, 2))


class FeedbackTransform(Transform):
    """Base class of transforms that use feedback in a way of their own."""

    @abstractmethod
    def encode_with(
        self, feedback: Feedback, array: np.ndarray, matrix: Matrix
    ) -> dict[str, np.ndarray]:
        """Return the parts of an array of whose columns `matrix` is made."""


@dataclass(frozen=True, eq=False)
class FeedbackEncoder(Transform):
    """Encoder of a chunk with feedback, in place of the root of its tree."""

    id: ClassVar[str] = "feedback"
    lossless: ClassVar[bool] = False
    codec: Transform
    children: Mapping[str, Node]
    feedback: Callable[[], Feedback]  # made when it is needed: factors are as large as moments

    def parts(self, spec: ArraySpec) -> Mapping[str, ArraySpec]:
        """Return the parts of the codec."""
        return self.codec.parts(spec)

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the parts of an array that is rounded column by column."""
        wide, feedback = widened(array, self.codec.id), self.feedback()
        columns = feedback.columns(wide)
        matrix = Matrix(columns, not feedback.along, self.children, shared)
        if isinstance(self.codec, FeedbackTransform):
            return self.codec.encode_with(feedback, array, matrix)
        rounding = self.codec.rounding(matrix)
        if rounding is None:
            raise NotRepresentable(f"{self.codec.id} cannot round column by column")
        found = feedback.array(feedback.spread(columns, rounding), array.shape)
        return self.codec.encode(found.astype(wide.dtype, copy=False), shared)

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Decode by the codec."""
        self.codec.decode(parts, out, shared)


def encoder_with(node: Node, feedback: Callable[[], Feedback]) -> Node:
    """Return the tree that encodes with feedback what a tree decodes."""
    assert isinstance(node.codec, Transform)
    return Node(FeedbackEncoder(node.codec, dict(node.children), feedback), node.children)
