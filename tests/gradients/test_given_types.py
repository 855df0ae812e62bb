"""What may be given as a gradient: arrays and tensors of any float type, and nothing else."""

import ml_dtypes
import numpy as np
import pytest
import torch

from tensorcomp.codecs.registry import codec_ids
from tensorcomp.errors import GradientError, NotRepresentable, PlanError
from tensorcomp.gradients import GradientSpec, StepInfo, WorkerCompression, compressor_ids
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.ddp.coding_groups import lay_out
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.base import leaf_of

SHAPE = (65, 66)
SPEC = GradientSpec("w", SHAPE)
ARRAY = np.random.default_rng(0).integers(-8, 8, SHAPE).astype(np.float32)  # exact in all types
TENSOR = torch.from_numpy(ARRAY)
ARGUMENTS = {
    "adaptive_threshold": "0.1",
    "cast": 'to="float16"',
    "dgc": "0.1",
    "error_bounded": "max_rel_l2=0.1",
    "feedback": "topk(0.1)",
    "owners": "topk(0.1)",
    "per_role": "topk(0.1)",
    "phases": "topk(0.1), beginning=0.1, middle=0.1, final=0.1",
    "powersgd": "2",
    "randomk": "0.1",
    "sampled_threshold": "0.1",
    "threshold": "1.0",
    "topk": "0.1, values=sign",
    "uniform": "step=0.1",
    "trellis": "step=0.1",
    "warmup": "topk(0.1), steps=1",
}
GIVEN = {
    "requires_grad": TENSOR.clone().requires_grad_(),
    "parameter": torch.nn.Parameter(TENSOR.clone()),
    "bfloat16": TENSOR.bfloat16(),
    "float16": TENSOR.half(),
    "float64": TENSOR.double(),
    "transposed": TENSOR.t().contiguous().t(),
    "strided": torch.stack([TENSOR, TENSOR], -1)[..., 0],
    "negated": torch.complex(TENSOR, -TENSOR).conj().imag,
    "numpy float16": ARRAY.astype(np.float16),
    "numpy bfloat16": ARRAY.astype(ml_dtypes.bfloat16),
    "numpy float64": ARRAY.astype(np.float64),
    "numpy transposed": np.asfortranarray(ARRAY),
    "numpy big-endian": ARRAY.astype(">f4"),
}
REFUSED = {
    "sparse": TENSOR.to_sparse(),
    "meta": TENSOR.to("meta"),
    "integers": TENSOR.int(),
    "booleans": TENSOR > 0,
    "complex": torch.complex(TENSOR, TENSOR),
    "numpy complex": ARRAY + 1j,
    "text": "abc",
    "nothing": None,
    "ragged": [[1.0], [1.0, 2.0]],
    "another shape": TENSOR[1:],
}


def _compressors() -> dict[str, Compressor]:
    """Return one compressor of each id that can go on the wire."""
    found = {}
    for name in sorted({*codec_ids(), *compressor_ids(), "int8", "dense"}):
        text = f"{name}({ARGUMENTS[name]})" if name in ARGUMENTS else name
        try:
            found[name] = parse_compressor(text).at(StepInfo(2), SPEC)
        except (GradientError, PlanError):
            continue
    assert len(found) > 25
    return found


COMPRESSORS = _compressors()
every_compressor = pytest.mark.parametrize("name", COMPRESSORS)


def _decoded(compressor: Compressor, gradient: object) -> np.ndarray:
    payload, _ = compressor.step(gradient, compressor.init(SPEC))
    return compressor.decode(payload)


@every_compressor
def test_arrays_and_tensors_of_floats_are_converted(name):
    compressor = COMPRESSORS[name]
    expected = _decoded(compressor, ARRAY)
    for kind, given in GIVEN.items():
        np.testing.assert_array_equal(_decoded(compressor, given), expected, kind)


@every_compressor
def test_all_else_is_refused_by_name(name):
    compressor = COMPRESSORS[name]
    for given in REFUSED.values():
        with pytest.raises(GradientError, match="'w'"):
            compressor.step(given, compressor.init(SPEC))
        if compressor.reduction == "sum" and name != "dense":
            with pytest.raises(GradientError, match="'w'"):
                compressor.phases(given, compressor.init(SPEC))


def test_workers_take_the_same():
    expected = WorkerCompression("int8").compress({"w": ARRAY})
    for kind, given in GIVEN.items():
        if "float64" not in kind:  # which are sent as such
            assert WorkerCompression("int8").compress({"w": given}) == expected, kind
    for kind, given in REFUSED.items():
        worker = WorkerCompression("int8")
        worker.compress({"w": ARRAY})
        with pytest.raises(GradientError, match="'w'"):
            worker.compress({"v": ARRAY, "w": given})
        assert worker.step == 1, kind


@every_compressor
def test_zeros_are_sent_for_a_parameter_of_zeros(name):
    # Under sign it moved where it shared a scale with others.
    specs = [GradientSpec("w", (64,)), GradientSpec("unused", (70,)), GradientSpec("v", (80,))]
    compressor = COMPRESSORS[name]
    layout = lay_out(specs, [compressor] * 3, join_small=True)
    sizes, rng = {one.name: one.size for one in specs}, np.random.default_rng(0)
    for group in layout.groups:
        parts = [
            np.zeros(one.size) if one.name == "unused" else rng.standard_normal(one.size)
            for one in group.parts
        ]
        state = compressor.init(group.spec)
        for _ in range(3):
            gradient = np.concatenate(parts).astype(np.float32).reshape(group.spec.shape)
            try:
                payload, state = compressor.step(gradient, state)
            except NotRepresentable:
                pytest.skip("takes matrices only")
            ends = np.cumsum([sizes[key] for key in group.key])[:-1]
            sent = np.split(compressor.decode(payload).reshape(-1), ends)
            for key, one in zip(group.key, sent, strict=True):
                assert key != "unused" or not one.any(), leaf_of(compressor).text()
