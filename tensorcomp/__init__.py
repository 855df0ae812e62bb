"""Small neural-network checkpoints, without losing a bit.

Every public name is imported when it is first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp._lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.api.compare import compare
    from tensorcomp.api.compress import compress
    from tensorcomp.api.decompress import decompress
    from tensorcomp.api.load import load, load_file, safe_open
    from tensorcomp.api.save import save, save_file
    from tensorcomp.api.verify import verify
    from tensorcomp.codecs.text import format_tree, parse_tree
    from tensorcomp.errors import (
        CheckpointError,
        CodecError,
        FormatError,
        PlanError,
        PruningError,
        TensorcompError,
        VerificationError,
    )
    from tensorcomp.pipeline.job import Pipeline
    from tensorcomp.planning.budgets import Budget
    from tensorcomp.progress import Progress

__version__ = "0.1.0"

_HOMES = {
    "Budget": "tensorcomp.planning.budgets",
    "CheckpointError": "tensorcomp.errors",
    "CodecError": "tensorcomp.errors",
    "FormatError": "tensorcomp.errors",
    "Pipeline": "tensorcomp.pipeline.job",
    "PlanError": "tensorcomp.errors",
    "Progress": "tensorcomp.progress",
    "PruningError": "tensorcomp.errors",
    "TensorcompError": "tensorcomp.errors",
    "VerificationError": "tensorcomp.errors",
    "compare": "tensorcomp.api.compare",
    "compress": "tensorcomp.api.compress",
    "decompress": "tensorcomp.api.decompress",
    "format_tree": "tensorcomp.codecs.text",
    "load": "tensorcomp.api.load",
    "load_file": "tensorcomp.api.load",
    "parse_tree": "tensorcomp.codecs.text",
    "safe_open": "tensorcomp.api.load",
    "save": "tensorcomp.api.save",
    "save_file": "tensorcomp.api.save",
    "verify": "tensorcomp.api.verify",
}

__all__ = [
    "Budget",
    "CheckpointError",
    "CodecError",
    "FormatError",
    "Pipeline",
    "PlanError",
    "Progress",
    "PruningError",
    "TensorcompError",
    "VerificationError",
    "compare",
    "compress",
    "decompress",
    "format_tree",
    "load",
    "load_file",
    "parse_tree",
    "safe_open",
    "save",
    "save_file",
    "verify",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
