"""Read parts of stored tensors by an index, like safetensors' slices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorcomp.api.frameworks import Framework, array_in
from tensorcomp.api.safetensors_errors import safetensors_errors
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.container.records import TensorRecord
from tensorcomp.container.tensor_blob import ChunkedTensor, decode_rows, decode_tensor


class TensorSlice:
    """A tensor of which only the chunks that an index touches are decoded.

    Indices are those of safetensors: integers, slices and ``...`` along any axis; torch's others
    too, for its tensors. What remains is `dtype`, `shape`, … of the tensor that ``[...]`` returns,
    so that this may stand for it in a state dict.
    """

    def __init__(
        self, info: TensorInfo | TensorRecord, tensor: ChunkedTensor, framework: Framework
    ) -> None:
        self._info = info
        self._tensor = tensor
        self._framework = framework
        self._layout = framework.layout(info.dtype, info.shape, info.nbytes)

    def get_shape(self) -> list[int]:
        """Return the tensor's shape, as the file has it."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """Return safetensors' name of its dtype."""
        return self._info.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor that ``[...]`` returns."""
        return self._framework.shape(self._layout[1])

    @property
    def dtype(self) -> Any:
        """The framework's dtype."""
        return self._framework.dtype(self._info.dtype)

    @property
    def device(self) -> Any:
        """Device of the tensors that are returned."""
        return self._framework.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._layout[1])

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self._layout[1])

    def is_floating_point(self) -> bool:
        """Return whether the dtype is one of floats."""
        return self._framework.holds_floats(self._info.dtype)

    def is_complex(self) -> bool:
        """Return whether the dtype is complex."""
        return self._layout[0].kind == "c"

    def to(self, *args: Any, **keywords: Any) -> Any:
        """Return the tensor, decoded, by its own ``to``."""
        return self[...].to(*args, **keywords)

    @safetensors_errors()
    def whole(self) -> Any:
        """Return the tensor, in memory of its own or of the privately mapped file."""
        return self._finished(decode_tensor(self._tensor), self._layout[1])

    @safetensors_errors()
    def __getitem__(self, index: Any) -> Any:
        shape = self._layout[1]
        indices = self._framework.indices(index, shape)
        if indices is None:
            return self.whole()[index]
        if all(isinstance(item, slice) and item == slice(None) for item in indices):
            return self.whole()
        first, *others = indices
        if isinstance(first, int):
            low = first % shape[0]
            part = self._rows(low, low + 1)[(0, *others)]
        else:
            taken = range(shape[0])[first]
            low, high = (taken[0], taken[-1] + 1) if taken else (0, 0)
            part = self._rows(low, high)[(slice(None, None, taken.step), *others)]
        return self._finished(part, np.shape(part))

    def _finished(self, part: np.ndarray, shape: tuple[int, ...]) -> Any:
        """Return decoded elements as the framework's tensor."""
        memory = np.require(part, requirements=("C", "W", "A")).reshape(-1).view(np.uint8)
        return self._framework.tensor(memory, self._info.dtype, (self._layout[0], shape))

    def _rows(self, low: int, high: int) -> np.ndarray:
        """Return rows `low` to `high` of the tensor; an uncompressed one's cannot be changed."""
        grid, (dtype, (count, *others)) = self._tensor.grid, self._layout
        # The grid's rows may be others: a flat tensor, or the equal one of another shape.
        elements = math.prod(grid.shape) // count if count else 0
        per_row = max(grid.row_elements, 1)
        begin, end = low * elements // per_row, -(-high * elements // per_row)
        decoded = decode_rows(self._tensor, begin, end).reshape(-1)
        rows = decoded[low * elements - begin * per_row : high * elements - begin * per_row]
        return array_in(rows.view(np.uint8), (dtype, (high - low, *others)))
