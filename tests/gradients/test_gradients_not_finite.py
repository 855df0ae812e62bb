"""A gradient of NaN that a compressor cannot code is refused by the parameter's name."""

import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients import GradientSpec
from tensorcomp.gradients.text import parse_compressor

REFUSING = ("adaptive_threshold(0.01)", "sampled_threshold(0.01)")
TEXTS = (*REFUSING, "fp16", "bf16", "error_bounded(max_rel_l2=0.1)", "int8", "topk(0.1)", "qsgd(4)")


@pytest.mark.parametrize("text", TEXTS)
def test_a_gradient_that_is_not_finite(text):
    compressor, spec = parse_compressor(text), GradientSpec("layer.w", (64, 32))
    gradient = np.full((64, 32), np.nan, np.float32)
    found = ""
    try:
        compressor.step(gradient, compressor.init(spec))
    except GradientError as error:
        found = str(error)
    wanted = "expected a finite gradient of 'layer.w', got NaN or infinity"
    assert found in ("", wanted)
    assert found == wanted or text not in REFUSING
