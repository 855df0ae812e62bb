"""The same codecs online: gradients made small, with explicit state and error feedback.

`compressors` are pure functions on arrays with explicit state (`base`); wrappers around them know
residuals, momentum and schedules; `ddp` puts them into torch's DistributedDataParallel; `messages`
and `aggregation` serve whoever has no process group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.gradients.adaptive import Adaptive
    from tensorcomp.gradients.aggregation import Aggregator
    from tensorcomp.gradients.base import (
        Compressor,
        GradientSpec,
        Payload,
        State,
        StepInfo,
        Wrapper,
    )
    from tensorcomp.gradients.by_owners import ByOwners
    from tensorcomp.gradients.ddp.compression import GradientCompression
    from tensorcomp.gradients.ddp.hook import compress_gradients
    from tensorcomp.gradients.ddp.sharded import FsdpCompression
    from tensorcomp.gradients.dense import Dense
    from tensorcomp.gradients.error_bounded import ErrorBounded
    from tensorcomp.gradients.feedback import ErrorFeedback
    from tensorcomp.gradients.fsdp import compress_fsdp
    from tensorcomp.gradients.interfaces import InterfaceCounter
    from tensorcomp.gradients.loss_simulator import LossSimulator
    from tensorcomp.gradients.messages import WorkerCompression, decompress
    from tensorcomp.gradients.metrics import History, StepMetrics, TensorMetrics
    from tensorcomp.gradients.momentum import MomentumCorrection
    from tensorcomp.gradients.per_role import PerRole
    from tensorcomp.gradients.phases import PhaseTolerance, PhaseTracker
    from tensorcomp.gradients.powersgd import PowerSgd
    from tensorcomp.gradients.randomk import RandomK
    from tensorcomp.gradients.recipes import parse_compressor
    from tensorcomp.gradients.stochastic import Qsgd
    from tensorcomp.gradients.tensorboard import TensorBoardLog
    from tensorcomp.gradients.thresholds import AdaptiveThreshold, SampledThreshold, Threshold
    from tensorcomp.gradients.tree_compressor import TreeCompressor
    from tensorcomp.gradients.warmup import Warmup


_HOMES = {
    "Adaptive": "adaptive",
    "AdaptiveThreshold": "thresholds",
    "Aggregator": "aggregation",
    "ByOwners": "by_owners",
    "Compressor": "base",
    "Dense": "dense",
    "ErrorBounded": "error_bounded",
    "ErrorFeedback": "feedback",
    "FsdpCompression": "ddp.sharded",
    "GradientCompression": "ddp.compression",
    "GradientSpec": "base",
    "History": "metrics",
    "InterfaceCounter": "interfaces",
    "LossSimulator": "loss_simulator",
    "MomentumCorrection": "momentum",
    "Payload": "base",
    "PerRole": "per_role",
    "PhaseTolerance": "phases",
    "PhaseTracker": "phases",
    "PowerSgd": "powersgd",
    "Qsgd": "stochastic",
    "RandomK": "randomk",
    "SampledThreshold": "thresholds",
    "State": "base",
    "StepInfo": "base",
    "StepMetrics": "metrics",
    "TensorBoardLog": "tensorboard",
    "TensorMetrics": "metrics",
    "Threshold": "thresholds",
    "TreeCompressor": "tree_compressor",
    "Warmup": "warmup",
    "WorkerCompression": "messages",
    "Wrapper": "base",
    "compress_fsdp": "fsdp",
    "compress_gradients": "ddp.hook",
    "decompress": "messages",
    "parse_compressor": "recipes",
}

__all__ = [
    "Adaptive",
    "AdaptiveThreshold",
    "Aggregator",
    "ByOwners",
    "Compressor",
    "Dense",
    "ErrorBounded",
    "ErrorFeedback",
    "FsdpCompression",
    "GradientCompression",
    "GradientSpec",
    "History",
    "InterfaceCounter",
    "LossSimulator",
    "MomentumCorrection",
    "Payload",
    "PerRole",
    "PhaseTolerance",
    "PhaseTracker",
    "PowerSgd",
    "Qsgd",
    "RandomK",
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
