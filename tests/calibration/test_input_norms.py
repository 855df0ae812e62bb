"""‖X‖₂ of what layers read, against unfolded inputs and the gradient of squares."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tensorcomp.calibration.input_norms import InputNorms

torch.set_num_threads(1)


def filled(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def measured(layer, *inputs):
    """Return the norms of a layer's inputs."""
    norms = InputNorms({"w": layer.weight})
    with torch.no_grad():
        for each in inputs:
            with norms.listening():
                layer(each)
            layer(each)  # not counted
    return norms.norms().get("w")


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_linear_layers_take_any_leading_axes(shape):
    inputs = filled(shape)
    found = measured(nn.Linear(4, 2, dtype=torch.float64), inputs, 2 * inputs)
    expected = np.sqrt(5 * (inputs.numpy().reshape(-1, 4) ** 2).sum(0))
    np.testing.assert_allclose(found, expected)


@given(
    groups=st.integers(1, 3),
    channels=st.integers(1, 2),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
)
def test_images_against_unfold(groups, channels, kernel, stride, padding, dilation, size):
    for axis in range(2):
        assume(size[axis] + 2 * padding[axis] > dilation[axis] * (kernel[axis] - 1))
    layer = nn.Conv2d(
        groups * channels,
        2 * groups,
        kernel,
        stride,
        padding,
        dilation,
        groups,
        dtype=torch.float64,
    )
    inputs = filled((2, groups * channels, *size))
    columns = F.unfold(inputs, kernel, dilation, padding, stride)
    expected = columns.square().sum((0, 2)).sqrt().reshape(groups, channels, *kernel)
    found = measured(layer, inputs)
    if not expected.any():  # all that is read is padding
        assert found is None
    elif groups == 1:
        assert found.shape == layer.weight.shape[1:]
        np.testing.assert_allclose(found, expected[0])
    else:
        assert found.shape == layer.weight.shape
        np.testing.assert_allclose(found, expected.repeat_interleave(2, 0))


CONVOLUTIONS = {1: (nn.Conv1d, (9,)), 2: (nn.Conv2d, (9, 8)), 3: (nn.Conv3d, (5, 6, 4))}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, "same", "valid"])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("groups", [1, 2])
def test_paddings_against_the_gradient_of_squares(axes, padding, mode, groups):
    """The derivative of the sum of W ∗ X² by a weight is the sum of squares that it reads."""
    kind, size = CONVOLUTIONS[axes]
    stride = 1 if padding == "same" else 2
    layer = kind(
        4,
        2,
        (3, 2, 3)[:axes],
        stride,
        padding,
        groups=groups,
        padding_mode=mode,
        dtype=torch.float64,
    )
    inputs = filled((3, 4, *size))
    layer(inputs.square()).sum().backward()
    expected = layer.weight.grad.sqrt()
    found = measured(layer, inputs)
    np.testing.assert_allclose(found, expected[0] if groups == 1 else expected)


def test_a_single_image_and_a_keyword():
    layer = nn.Conv2d(2, 3, 3, dtype=torch.float64)
    inputs = filled((2, 5, 5))
    expected = measured(layer, inputs[None])
    np.testing.assert_allclose(measured(layer, inputs), expected)
    norms = InputNorms({"w": layer.weight})
    with norms.listening():
        layer(input=inputs)
    np.testing.assert_allclose(norms.norms()["w"], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_added_up_in_float32(dtype):
    layer = nn.Linear(1, 1, dtype=dtype)
    inputs = torch.full((70000, 1), 3.0, dtype=dtype)  # 630,000 is out of float16's range
    found = measured(layer, inputs)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, [630000**0.5], rtol=1e-5)


def test_layers_that_share_a_weight_of_different_groups_add_up():
    first, second = nn.Conv1d(2, 4, 1, bias=False), nn.Conv1d(4, 4, 1, groups=2, bias=False)
    second.weight = first.weight
    net = nn.Sequential(first, second)
    first.weight.data = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]] * 2)
    norms = InputNorms({"w": first.weight})
    with norms.listening():
        net(torch.tensor([[[3.0], [4.0]]]))
    # The second reads (3, 4) in both of its groups.
    np.testing.assert_allclose(norms.norms()["w"][:, :, 0], [[18**0.5, 32**0.5]] * 4, rtol=1e-6)


def test_what_is_computed_again_for_the_gradient_does_not_count():
    layer = nn.Linear(2, 2)
    norms = InputNorms({"w": layer.weight})
    with norms.listening():
        out = torch.utils.checkpoint.checkpoint(layer, torch.ones(1, 2), use_reentrant=False)
    out.sum().backward()
    np.testing.assert_allclose(norms.norms()["w"], [1, 1])


def test_a_layer_that_no_sample_reaches_has_no_norms():
    assert measured(nn.Linear(4, 2, dtype=torch.float64), filled((0, 4))) is None


def test_a_layer_without_inputs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that there is nothing to initialise
        layer = nn.Linear(0, 3)
    assert measured(layer, torch.ones(4, 0)).shape == (0,)


@pytest.mark.parametrize("inputs", [None, torch.ones(2, 4, dtype=torch.int64)])
def test_what_a_layer_cannot_read_is_said_by_the_layer(inputs):
    layer = nn.Linear(4, 2)
    with pytest.raises((TypeError, RuntimeError)) as own:
        layer(inputs)
    with pytest.raises(type(own.value)) as found:
        measured(layer, inputs)
    assert str(found.value) == str(own.value)


def of_function(function, *weights):
    """Return the norms of what a function multiplies weights with."""
    norms = InputNorms({str(number): weight for number, weight in enumerate(weights)})
    with norms.listening(), torch.no_grad():
        function()
    return norms.norms()


X, Y = filled((3, 4, 5)), filled((3, 4, 5), seed=1)
NORMS = X.square().sum((0, 1)).sqrt()
PRODUCTS = {
    "matmul": lambda w: X @ w,
    "of a transposed view": lambda w: F.linear(X, w.t()),
    "addmm, as in GPT-2's Conv1D": lambda w: torch.addmm(w.new_zeros(w.shape[1]), X[0], w),
    "einsum": lambda w: torch.einsum("bti,ij->btj", X, w),
    "a batch of one matrix": lambda w: torch.bmm(X, w.expand(3, *w.shape)),
}


@pytest.mark.parametrize("outputs", [1, 5, 7])  # square ones too
@pytest.mark.parametrize("product", PRODUCTS)
def test_matrices_of_inputs_by_outputs_have_a_column(product, outputs):
    weight = filled((5, outputs))
    expected = X[0].square().sum(0).sqrt() if "addmm" in product else NORMS
    found = of_function(lambda: PRODUCTS[product](weight), weight)["0"]
    assert found.shape == (5, 1)
    np.testing.assert_allclose(found[:, 0], expected)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("sources", [(X, X, X), (X, Y, Y), (X, Y, X + Y)])
def test_projections_of_attention(sources, training, gradients):
    layer = nn.MultiheadAttention(5, 1, bias=False, batch_first=True, dtype=torch.float64)
    norms = InputNorms(dict(layer.named_parameters()))
    with norms.listening(), torch.set_grad_enabled(gradients):
        out = layer.train(training)(*sources)[0].detach()
    found = norms.norms()
    expected = torch.stack([each.square().sum((0, 1)).sqrt() for each in sources])
    np.testing.assert_allclose(
        found["in_proj_weight"].expand(15, 5), expected.repeat_interleave(5, 0)
    )
    inner = out @ torch.linalg.inv(layer.out_proj.weight.detach()).T
    np.testing.assert_allclose(found["out_proj.weight"], inner.square().sum((0, 1)).sqrt())


def test_a_layer_of_attention_in_one_operation_is_measured_by_its_parts():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    weights = {name: w for name, w in layer.named_parameters() if w.ndim == 2}
    assert len(weights) == 4
    norms = InputNorms(weights)
    with norms.listening(), torch.no_grad():
        layer(torch.ones(2, 3, 8))
    assert norms.norms().keys() == weights.keys()
    assert torch.backends.mha.get_fastpath_enabled()


def test_parts_of_a_weight_have_inputs_of_their_own():
    experts = filled((2, 3, 5))  # experts × outputs × inputs
    found = of_function(lambda: [F.linear(X, experts[0]), F.linear(2 * X, experts[1])], experts)
    np.testing.assert_allclose(
        found["0"], NORMS * torch.tensor([1, 2])[:, None, None].expand(2, 3, 5)
    )
    found = of_function(lambda: torch.bmm(X[:2], experts.mT), experts)["0"]
    np.testing.assert_allclose(found, X[:2].square().sum(1).sqrt()[:, None].expand(2, 3, 5))
    wide = filled((3, 10))
    found = of_function(lambda: F.linear(X, wide[:, :5]) + F.linear(3 * X, wide[:, 5:]), wide)["0"]
    np.testing.assert_allclose(found, torch.cat([NORMS, 3 * NORMS]).expand(3, 10))


def test_weights_in_one_storage_and_in_other_orders_of_memory():
    flat = filled((45,))
    first, second = flat[:15].view(3, 5), flat[15:45].view(5, 6).t()
    found = of_function(lambda: [F.linear(X, first), F.linear(2 * X, second)], first, second)
    np.testing.assert_allclose(found["0"], NORMS)
    np.testing.assert_allclose(found["1"], 2 * NORMS)
    kernel = filled((2, 3, 2, 2)).to(memory_format=torch.channels_last)
    images = filled((1, 3, 2, 2))
    found = of_function(lambda: F.conv2d(images, kernel), kernel)["0"]
    np.testing.assert_allclose(found, images[0].abs())


def test_copies_in_another_dtype():
    layer, inputs = nn.Linear(5, 3), X.float()
    with torch.autocast("cpu", torch.bfloat16):
        found = measured(layer, inputs)
    np.testing.assert_allclose(found, NORMS, rtol=1e-2)
    found = of_function(lambda: inputs.half() @ layer.weight.half()[:2].t(), layer.weight)["0"]
    np.testing.assert_allclose(found[:2], NORMS.expand(2, 5), rtol=1e-2)
    assert not found[2].any()


def test_kernels_of_transposed_convolutions_have_none():
    layer = nn.ConvTranspose1d(4, 2, 3, dtype=torch.float64)
    assert measured(layer, filled((1, 4, 5))) is None
