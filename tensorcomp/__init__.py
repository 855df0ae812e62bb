"""Small neural-network checkpoints, without losing a bit.

Every public name is imported when it is first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.codecs import format_tree, parse_tree
    from tensorcomp.comparison import compare
    from tensorcomp.errors import (
        CheckpointError,
        CodecError,
        FormatError,
        PlanError,
        PruningError,
        TensorcompError,
        VerificationError,
    )
    from tensorcomp.files import compress
    from tensorcomp.loading import load, load_file, safe_open
    from tensorcomp.pipeline import Pipeline
    from tensorcomp.planning import Budget
    from tensorcomp.progress import Progress
    from tensorcomp.restoring import decompress
    from tensorcomp.saving import save, save_file
    from tensorcomp.verification import verify

__version__ = "0.1.0"

_HOMES = {
    "Budget": "planning",
    "CheckpointError": "errors",
    "CodecError": "errors",
    "FormatError": "errors",
    "Pipeline": "pipeline",
    "PlanError": "errors",
    "Progress": "progress",
    "PruningError": "errors",
    "TensorcompError": "errors",
    "VerificationError": "errors",
    "compare": "comparison",
    "compress": "files",
    "decompress": "restoring",
    "format_tree": "codecs",
    "load": "loading",
    "load_file": "loading",
    "parse_tree": "codecs",
    "safe_open": "loading",
    "save": "saving",
    "save_file": "saving",
    "verify": "verification",
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
