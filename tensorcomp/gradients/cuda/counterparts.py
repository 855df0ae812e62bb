"""Which compressor does on a device what another does on the host."""

from __future__ import annotations

from typing import Any

import torch

from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.powersgd import PowerSgd
from tensorcomp.gradients.compressors.randomk import RandomK
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.cuda.leaves import DeviceDense, DevicePowerSgd, DeviceRandomK, DeviceTree
from tensorcomp.gradients.cuda.parts import has_device_way
from tensorcomp.gradients.cuda.wrappers import DeviceFeedback, DeviceMomentum
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection

_COUNTERPARTS: dict[type, Any] = {
    Dense: DeviceDense,
    RandomK: DeviceRandomK,
    PowerSgd: DevicePowerSgd,
}


def on_device(compressor: Compressor, device: torch.device | str) -> Compressor | None:
    """Return the counterpart of a compressor for tensors on a device.

    Parameters
    ----------
    compressor : Compressor
        Concrete: from `Compressor.at`.
    device : torch.device or str

    Returns
    -------
    Compressor or None
        None if there is none: its gradients must go to the host. There is one for trees whose root
        is `topk`, `threshold`, `affine`, `sign` or `cast` (to F16 or BF16), for `Dense`, `RandomK`
        and `PowerSgd`, and for `ErrorFeedback` and `MomentumCorrection` around them.
    """
    where = torch.device(device)
    if isinstance(compressor, (ErrorFeedback, MomentumCorrection)):
        inner = on_device(compressor.inner, where)
        if inner is None:
            return None
        if isinstance(compressor, ErrorFeedback):
            return DeviceFeedback(inner, compressor, where)
        return DeviceMomentum(inner, compressor, where)
    if isinstance(compressor, TreeCompressor):
        return DeviceTree(compressor, where) if has_device_way(compressor.tree) else None
    for kind, counterpart in _COUNTERPARTS.items():
        if type(compressor) is kind:
            found: Compressor = counterpart(compressor, where)
            return found
    return None
