"""The JSON object that every verb prints for programs."""

from __future__ import annotations

from typing import Any

from tensorcomp.api.inspect import Summary, TensorRow
from tensorcomp.reports.pruned import pruning_to_json, tensor_pruning_to_json


def to_json(summary: Summary, seconds: float) -> dict[str, Any]:
    """Return a summary as JSON values; the keys are part of the command line's interface.

    Parameters
    ----------
    summary : Summary
    seconds : float
        How long the job took.

    Returns
    -------
    dict
        ``input_bytes`` is the size of the original and ``output_bytes`` that of the compressed
        checkpoint, whichever way the job went; ``ratio`` is the first over the second.
        ``bits_per_weight`` counts every byte of the output, and is null without weights. Each of
        ``tensors`` has its role and how that is known, its errors (0 if exact) and its SNR in dB
        (null if exact); ``codec`` is the text of its tree, ``same as NAME`` for a duplicate, null
        if it is not compressed. Tensors of a folder also say their ``file``. A pruned checkpoint
        has ``pruned``: how many of the ``weights`` of the selected tensors were set to zero; and
        so has each of these, with the share of its norm that this alone cost (``rel_l2``).
    """
    pruned = pruning_to_json(summary)
    value = {
        "input_bytes": summary.input_bytes,
        "output_bytes": summary.output_bytes,
        "ratio": summary.ratio,
        "bits_per_weight": summary.bits_per_weight,
        "seconds": round(seconds, 6),
        "tensors": [_row_to_json(row) for row in summary.tensors],
    }
    return value if pruned is None else {**value, "pruned": pruned}


def _row_to_json(row: TensorRow) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": row.name,
        "shape": list(row.shape),
        "dtype": row.dtype,
        "role": row.role,
        "role_why": row.role_why,
        "codec": row.codec,
        "bytes": row.stored,
        "bits_per_weight": row.bits_per_weight,
        "rel_l2": row.rel_l2,
        "snr_db": row.snr_db,
        "max_abs_error": row.max_abs_error,
    }
    if row.pruned is not None:
        value["pruned"] = tensor_pruning_to_json(row)
    return value if row.file is None else {**value, "file": row.file}
