"""Imported once, by the server that ranks are forked from: what takes long in each process.

Beside imports that is the loading of compiled kernels. No thread may be left behind, as forks do
not take them along.
"""

import contextlib

import hypothesis  # noqa: F401
import numpy as np
import pytest  # noqa: F401
import torch
import torch._dynamo  # by DistributedDataParallel
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.nn.parallel  # noqa: F401

import tensorcomp.gradients.ddp.hook  # noqa: F401
from tensorcomp.gradients import GradientSpec
from tensorcomp.gradients.ddp.buckets import is_finite
from tensorcomp.gradients.text import parse_compressor

_COMPRESSORS = (
    "topk(0.02, values=affine(8), indices=gaps)",
    "threshold(1.0)",
    "int8",
    "int2",
    "sign",
    "dgc(0.02)",
    "feedback(dense)",
)


def _load_kernels() -> None:
    spec = GradientSpec("p0", (64, 65))
    gradient = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
    is_finite(gradient)
    for text in _COMPRESSORS:
        compressor = parse_compressor(text)
        state = compressor.init(spec)
        for _ in range(2):
            payload, state = compressor.step(gradient, state)
            compressor.decode(payload)


with contextlib.suppress(Exception):  # the tests will tell
    _load_kernels()
