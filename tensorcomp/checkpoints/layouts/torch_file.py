"""Read torch files: ``.pt``, ``.pth`` and ``.bin``, zipped or legacy.

Loading is always ``weights_only``: a file that needs code to be run is refused.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._log import LOGGER
from tensorcomp._torch_arrays import byte_view
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.layouts.torch_layout import lay_out
from tensorcomp.checkpoints.layouts.torch_tree import TreeEncoder
from tensorcomp.checkpoints.open import MAX_DEFLATE_RATIO, ZIP_MAGICS, open_zip
from tensorcomp.checkpoints.packing import pack_template
from tensorcomp.dtypes import torch_dtype_name
from tensorcomp.errors import CheckpointError, located, needing
from tensorcomp.io.files import file_size, reading

if TYPE_CHECKING:
    import torch

_FORBIDDEN = re.compile(r"GLOBAL (\S+) was not an allowed global")
_DETAIL = re.compile(r"WeightsUnpickler error: ([^\n]*)")


class TorchFile(Checkpoint):
    """An open torch file: tensors, and the nested objects that hold them.

    Tensors are mapped where the file allows. Numbers, texts, lists, dicts and the like are part of
    the template.

    Raises
    ------
    CheckpointError
        If torch is not installed, or the file is damaged, needs code to be run, or holds something
        else than tensors and plain Python objects.
    """

    kind: ClassVar[str] = "torch"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nbytes = file_size(path)
        loaded, inflated = _load(path)
        limit = self.nbytes * (MAX_DEFLATE_RATIO if inflated else 1)
        encoder = TreeEncoder(limit)
        with located(path=path):
            tree = encoder.encode(loaded)
            layout = lay_out(encoder.leaves)
        self._stored = layout.stored
        self._structure = {"tree": tree, "leaves": layout.leaves, "pools": layout.pools}
        self.tensors = tuple(_tensor_info(name, tensor) for name, tensor in layout.stored.items())
        self.aliases = layout.aliases
        storages = [leaf.tensor.untyped_storage() for leaf in encoder.leaves]
        claimed = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
        if claimed > limit:
            raise CheckpointError(
                f"claims {claimed:,} bytes of tensors but holds {self.nbytes:,}; it is damaged",
                path=path,
            )

    def read(self, name: str) -> np.ndarray:
        """Return the tensor's bytes in C order: a view if it is contiguous."""
        try:
            tensor = self._stored[name]
        except KeyError:
            raise CheckpointError(f"has no tensor {shown(name)}", path=self.path) from None
        data = byte_view(tensor.contiguous())
        data.flags.writeable = False
        return data

    def template(self) -> SourceTemplate:
        """Return the nested objects, and how to rebuild each tensor."""
        return pack_template(self.kind, self._structure)

    def close(self) -> None:
        """Let go of the tensors; the file is unmapped when no array views it."""
        self._stored = {}


def _load(path: Path) -> tuple[Any, bool]:
    """Return the object in a torch file, and whether its storages were deflated."""
    require_torch(path)
    with reading(path), path.open("rb") as file:
        zipped = file.read(4) in ZIP_MAGICS
    inflated = False
    if zipped:
        with open_zip(path) as archive:
            entries = archive.infolist()
        # torch stores its records as they are; mapping a file zipped again would give its zip data.
        inflated = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    try:
        return _load_weights(path, map_file=zipped and not inflated), inflated
    except Exception as error:  # a damaged pickle can raise anything
        raise CheckpointError(_explained(error), path=path) from error


def _load_weights(path: Path, *, map_file: bool) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=map_file)
        except RuntimeError as error:
            # Some network file systems refuse to map; such files are read instead.
            if not map_file or "mmap" not in str(error):
                raise
            LOGGER.debug("%s: read, since it cannot be mapped: %s", path, error)
            return torch.load(path, map_location="cpu", weights_only=True)


def _explained(error: Exception) -> str:
    """Explain a failed load: the class that needs code, or what is broken."""
    text = str(error)
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        name = forbidden.group(1)
        what = "a NumPy object" if name.startswith("numpy.") else "an object"
        return (
            f"holds {what} made by {shown(name)}, and loading it could run any code; where "
            "you trust the file, load it, turn such objects into tensors, numbers, texts, lists or "
            "dicts (best, keep the state_dict() only), and save it again"
        )
    detail = _DETAIL.search(text)
    reason = detail.group(1) if detail else text.partition("\n")[0]
    if "weights_only" in reason:  # torch's advice is to run the file's code
        reason = "only tensors and plain objects are loaded"
    return (
        f"cannot be loaded as tensors and plain objects; it is damaged, cut short, or "
        f"needs code to be run ({type(error).__name__}: {reason[:200]})"
    )


def require_torch(path: Path) -> None:
    """Require that torch is installed."""
    with located(path=path), needing("torch", CheckpointError, "a torch file needs torch"):
        import torch  # noqa: F401


def _tensor_info(name: str, tensor: torch.Tensor) -> TensorInfo:
    """Describe a tensor; as bytes if safetensors lacks its dtype."""
    nbytes = tensor.numel() * tensor.element_size()
    dtype = torch_dtype_name(tensor.dtype)
    if dtype is None:
        return TensorInfo(name, "U8", (nbytes,), nbytes)
    return TensorInfo(name, dtype, tuple(tensor.shape), nbytes)
