"""Read the original of a file of format 7 or before, to compare it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.layouts.layout import Array, in_order
from tensorcomp.checkpoints.layouts.numpy_file import npy_array
from tensorcomp.checkpoints.layouts.zip_members import open_zip
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.errors import CheckpointError, located
from tensorcomp.io.files import reading


class EarlierOriginal(Checkpoint):
    """A torch file or ``.npz`` archive by the tensors of earlier formats.

    Parameters
    ----------
    path : Path
    template : SourceTemplate
        Of the compressed file.
    tensors : tuple of TensorInfo
        Those of the compressed file.
    """

    def __init__(
        self, path: Path, template: SourceTemplate, tensors: tuple[TensorInfo, ...]
    ) -> None:
        self.path, self.kind, self.tensors = path, template.kind, tensors
        self._template = template
        self._members: dict[str, Any] = {}
        self._file = open_checkpoint(path)
        if template.kind == "npz":
            members = unpack_structure(template)["members"]
            self._members = {node["name"]: node for node in members}

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes; raise `CheckpointError` if there is none."""
        return self._read_member(name) if name in self._members else self._file.read(name)

    def _read_member(self, name: str) -> np.ndarray:
        """Return the data of an archive's member, unpacked."""
        node = self._members[name]
        with (
            open_zip(self.path) as archive,
            located(path=self.path, tensor=name),
            reading(self.path),
        ):
            if node["member"] not in archive.NameToInfo:
                raise CheckpointError(f"has no member {shown(node['member'])}")
            with archive.open(node["member"]) as file:
                array: Array | None = None
                if node.get("header", "") is not None:
                    size = archive.getinfo(node["member"]).file_size
                    array = npy_array(file, name, size)
                data = np.frombuffer(file.read(), np.uint8)
        return data if array is None else in_order(data, array)

    def template(self) -> SourceTemplate:
        """Return the template that was given."""
        return self._template

    def close(self) -> None:
        """Release the file."""
        self._file.close()
