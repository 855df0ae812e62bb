"""The same codecs online: gradients made small, with explicit state and error feedback.

`compressors` are pure functions on arrays with explicit state (`base`); wrappers around them know
residuals, momentum and schedules; `ddp` puts them into torch's DistributedDataParallel; `messages`
and `aggregation` serve whoever has no process group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp._lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.gradients.autotune.adaptive import Adaptive
    from tensorcomp.gradients.base import (
        Compressor,
        GradientSpec,
        Payload,
        State,
        StepInfo,
        Wrapper,
    )
    from tensorcomp.gradients.compressors.dense import Dense
    from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
    from tensorcomp.gradients.compressors.powersgd import PowerSgd
    from tensorcomp.gradients.compressors.randomk import RandomK
    from tensorcomp.gradients.compressors.stochastic import Qsgd
    from tensorcomp.gradients.compressors.thresholds import (
        AdaptiveThreshold,
        SampledThreshold,
        Threshold,
    )
    from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
    from tensorcomp.gradients.ddp.compression import GradientCompression
    from tensorcomp.gradients.ddp.hook import compress_gradients
    from tensorcomp.gradients.fsdp.hook import compress_fsdp
    from tensorcomp.gradients.fsdp.sharded import FsdpCompression
    from tensorcomp.gradients.monitoring.metrics import History, StepMetrics, TensorMetrics
    from tensorcomp.gradients.monitoring.tensorboard import TensorBoardLog
    from tensorcomp.gradients.recipes import parse_compressor
    from tensorcomp.gradients.server.aggregation import Aggregator
    from tensorcomp.gradients.server.messages import WorkerCompression, decompress
    from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
    from tensorcomp.gradients.wrappers.momentum import MomentumCorrection
    from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
    from tensorcomp.gradients.wrappers.per_role import PerRole
    from tensorcomp.gradients.wrappers.phases import PhaseTolerance, PhaseTracker
    from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter
    from tensorcomp.gradients.wrappers.warmup import Warmup


_HOMES = {
    "Adaptive": "tensorcomp.gradients.autotune.adaptive",
    "AdaptiveThreshold": "tensorcomp.gradients.compressors.thresholds",
    "Aggregator": "tensorcomp.gradients.server.aggregation",
    "ReduceScatter": "tensorcomp.gradients.wrappers.reduce_scatter",
    "Compressor": "tensorcomp.gradients.base",
    "Dense": "tensorcomp.gradients.compressors.dense",
    "ErrorBounded": "tensorcomp.gradients.compressors.error_bounded",
    "ErrorFeedback": "tensorcomp.gradients.wrappers.feedback",
    "FsdpCompression": "tensorcomp.gradients.fsdp.sharded",
    "GradientCompression": "tensorcomp.gradients.ddp.compression",
    "GradientSpec": "tensorcomp.gradients.base",
    "History": "tensorcomp.gradients.monitoring.metrics",
    "PacketLoss": "tensorcomp.gradients.wrappers.packet_loss",
    "MomentumCorrection": "tensorcomp.gradients.wrappers.momentum",
    "Payload": "tensorcomp.gradients.base",
    "PerRole": "tensorcomp.gradients.wrappers.per_role",
    "PhaseTolerance": "tensorcomp.gradients.wrappers.phases",
    "PhaseTracker": "tensorcomp.gradients.wrappers.phases",
    "PowerSgd": "tensorcomp.gradients.compressors.powersgd",
    "Qsgd": "tensorcomp.gradients.compressors.stochastic",
    "RandomK": "tensorcomp.gradients.compressors.randomk",
    "SampledThreshold": "tensorcomp.gradients.compressors.thresholds",
    "State": "tensorcomp.gradients.base",
    "StepInfo": "tensorcomp.gradients.base",
    "StepMetrics": "tensorcomp.gradients.monitoring.metrics",
    "TensorBoardLog": "tensorcomp.gradients.monitoring.tensorboard",
    "TensorMetrics": "tensorcomp.gradients.monitoring.metrics",
    "Threshold": "tensorcomp.gradients.compressors.thresholds",
    "TreeCompressor": "tensorcomp.gradients.compressors.tree_compressor",
    "Warmup": "tensorcomp.gradients.wrappers.warmup",
    "WorkerCompression": "tensorcomp.gradients.server.messages",
    "Wrapper": "tensorcomp.gradients.base",
    "compress_fsdp": "tensorcomp.gradients.fsdp.hook",
    "compress_gradients": "tensorcomp.gradients.ddp.hook",
    "decompress": "tensorcomp.gradients.server.messages",
    "parse_compressor": "tensorcomp.gradients.recipes",
}

__all__ = [
    "Adaptive",
    "AdaptiveThreshold",
    "Aggregator",
    "Compressor",
    "Dense",
    "ErrorBounded",
    "ErrorFeedback",
    "FsdpCompression",
    "GradientCompression",
    "GradientSpec",
    "History",
    "MomentumCorrection",
    "PacketLoss",
    "Payload",
    "PerRole",
    "PhaseTolerance",
    "PhaseTracker",
    "PowerSgd",
    "Qsgd",
    "RandomK",
    "ReduceScatter",
    "SampledThreshold",
    "State",
    "StepInfo",
    "StepMetrics",
    "TensorBoardLog",
    "TensorMetrics",
    "Threshold",
    "TreeCompressor",
    "Warmup",
    "WorkerCompression",
    "Wrapper",
    "compress_fsdp",
    "compress_gradients",
    "decompress",
    "parse_compressor",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
