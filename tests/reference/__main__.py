"""Decode a compressed file to a plain safetensors file, slowly: ``python -m reference FROM TO``."""

import json
import sys
from pathlib import Path

import numpy as np

from reference.reader import DTYPES, read


def write(tensors: dict[str, np.ndarray], path: Path) -> None:
    """Write a safetensors file; tensors of a type that NumPy lacks are bytes there."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    header = {}
    at = 0
    for name, array in tensors.items():
        offsets = [at, at + array.nbytes]
        header[name] = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": offsets}
        at += array.nbytes
    text = json.dumps(header).encode()
    blocks = [len(text).to_bytes(8, "little"), text, *(a.tobytes() for a in tensors.values())]
    path.write_bytes(b"".join(blocks))


if __name__ == "__main__":
    write(read(Path(sys.argv[1])), Path(sys.argv[2]))
