"""What calibration refuses: one clear line each, and the model as it was."""

import itertools

import numpy as np
import pytest
import torch
from calibrated_nets import WithOwnLoss, half_square, two_batches, two_layers
from torch import nn
from unchanged import Seen

from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.errors import PruningError
from tensorcomp.pruning.prune_model import prune

torch.set_num_threads(1)


def nan_loss(model, batch):
    return model(batch[0]).sum() * float("nan")


def infinite_gradient(model, batch):
    return (model(batch[0]).sum() * 0).sqrt()


def loss_of_ones(model, batch):
    return torch.ones((), requires_grad=True)


def partial_loss(model, batch):
    return model[0](batch[0]).sum()


def later(fault):
    """Return a loss that is at fault in the second minibatch."""
    numbers = itertools.count(1)

    def loss(model, batch):
        return (fault if next(numbers) == 2 else half_square)(model, batch)

    return loss


def huge_batches():
    first, second = two_batches(torch.float32)
    return [first, (second[0] * 3e38 * 10, second[1])]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": later(nan_loss), "statistics": ["snip"]}, "the loss of minibatch 2 is nan"),
        (
            {"loss": later(infinite_gradient), "statistics": ["snip"]},
            r"the gradient of minibatch 2 is not finite in tensor '0\.weight'",
        ),
        (
            {"data": huge_batches(), "statistics": ["input_norm"]},
            r"the input of '0\.weight' is not finite in minibatch 2",
        ),
        ({"loss": lambda model, batch: 3.0}, "loss of minibatch 1 is a float"),
        ({"loss": lambda model, batch: model(batch[0]).detach().sum()}, "has no gradient"),
        (
            {"loss": lambda model, batch: model(torch.ones(2, 2))},
            r"the loss of minibatch 1 has the shape \[2, 1\]",
        ),
        ({"loss": lambda model, batch: model(batch[0]).sum() * 1j}, "minibatch 1 is complex"),
        ({"loss": loss_of_ones, "statistics": ["snip"]}, r"'0\.weight' has no gradient"),
        ({"loss": partial_loss, "statistics": ["grasp"]}, "the loss does not call the model"),
        ({"batches": 3}, "ended after 2 minibatches; 3 were asked for"),
        ({"batches": 0}, "expected batches to be at least 1"),
        ({"data": []}, "the data hold no minibatch"),
        ({"data": 3}, "expected an iterable of minibatches as data, got a int"),
        ({"data": torch.ones(3, 2)}, "as data, got a Tensor"),
        ({"loss": None, "data": [torch.ones(1, 2)]}, "is a Tensor without targets"),
        ({"loss": None, "data": [(1, 2, 3)]}, "has 3 parts"),
        (
            {"loss": None, "data": [(torch.ones(4, 2), torch.ones(3, dtype=torch.int64))]},
            r"targets of torch.int64 \(3,\) do not fit logits of shape \(4, 1\)",
        ),
        ({"statistics": []}, "expected statistics to be some of gradient, taylor"),
        ({"statistics": ["snip", "sinp"]}, "got sinp"),
        ({"temperature": 0}, "expected temperature to be a number above 0"),
        ({"temperature": float("nan")}, "expected temperature to be a number above 0"),
        ({"decay": 1}, "expected decay to be at least 0 and below 1"),
        ({"where": "layers.*"}, "matches none"),
        ({"masks": {"3.weight": np.ones((2, 2), bool)}}, "mask is for '3.weight'"),
        ({"masks": {"0.weight": np.ones((2, 3), bool)}}, r"to be bool \[2, 2\]"),
        ({"masks": {"0.weight": np.ones((2, 2))}}, "got float64"),
    ],
)
def test_refusals_are_one_line_and_leave_the_model_as_it_was(options, words):
    net = two_layers(torch.float32).train()
    net.append(nn.BatchNorm1d(1, affine=False, track_running_stats=False).eval())
    del net[3]
    net(torch.ones(1, 2)).sum().backward()
    seen = Seen(net)
    given = {"data": two_batches(torch.float32), "loss": half_square, **options}
    with pytest.raises(PruningError, match=words) as caught:
        calibrate(net, given.pop("data"), **given)
    assert "\n" not in str(caught.value)
    seen.check(net)
    hooks = [(module._forward_hooks, module._forward_pre_hooks) for module in net.modules()]
    assert not any(map(any, hooks))
    assert calibrate(net, two_batches(torch.float32), loss=half_square).batches == 2


def test_a_loader_that_cannot_repeat_itself_is_refused_for_grasp():
    class Once:
        def __init__(self):
            self.batches = iter(two_batches())

        def __iter__(self):
            return self.batches

    with pytest.raises(PruningError, match="gave 2 minibatches at first and 0 the second time"):
        calibrate(two_layers(), Once(), loss=half_square)


def test_grasp_needs_logits():
    net, batch = WithOwnLoss(), {"x": torch.randn(2, 4), "labels": torch.tensor([0, 1])}
    with pytest.raises(PruningError, match="divides logits by 200, but the model returns its own"):
        calibrate(net, [batch])

    class Listing(nn.Linear):
        def forward(self, x):
            return [super().forward(x)]

    with pytest.raises(PruningError, match="the model returns no logits"):
        calibrate(Listing(2, 2), [torch.ones(1, 2)], loss=lambda model, x: model(x)[0].sum())
    with pytest.raises(PruningError, match="returns a list, not logits"):
        calibrate(Listing(2, 2), [(torch.ones(1, 2), torch.tensor([0]))])


def test_input_norms_that_nothing_has():
    with pytest.raises(PruningError, match="the model multiplies nothing with the weights"):
        calibrate(nn.Bilinear(2, 2, 1), [((torch.ones(1, 2),) * 2,)], statistics=["input_norm"])


def test_errors_of_ones_own_code_pass_through_and_the_model_is_restored():
    net = two_layers()
    seen = Seen(net)

    def broken():
        yield from two_batches()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        calibrate(net, broken(), loss=half_square)
    seen.check(net)


class WithMore(nn.Module):
    """A layer that can be pruned, before one that cannot be run as it is."""

    def __init__(self, more):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.more = more

    def forward(self, x):
        return self.more(self.layer(x))


def on_meta():
    return nn.Linear(2, 2, device="meta")


def lazy():
    return nn.LazyBatchNorm1d()


def lazy_buffers():
    return nn.LazyBatchNorm1d(affine=False)


def inferring():
    with torch.inference_mode():
        return nn.Linear(2, 2)


def differentiated(net, batches):
    calibrate(net, batches, statistics=["snip"], where="layer.weight")


def run_forward(net, batches):
    calibrate(net, batches, statistics=["input_norm"], where="layer.weight")


def flowed(net, batches):
    prune(net, "synflow", 0.5, data=batches, where="layer.weight")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (on_meta, "'more.weight' is on the meta device"),
        (lazy, "'more.weight' is of a lazy layer"),
        (lazy_buffers, "'more.running_mean' is of a lazy layer"),
        (inferring, r"'more.weight' was made in torch\.inference_mode"),
    ],
)
@pytest.mark.parametrize("run", [differentiated, run_forward, flowed])
def test_a_model_that_cannot_be_run_as_it_is(more, words, run):
    net = WithMore(more())
    entries = [*net.named_modules(), *net.named_parameters(), *net.named_buffers()]
    kinds = [type(thing) for _, thing in entries]
    batches = [(torch.ones(3, 2), torch.tensor([0, 1, 0]))]
    with pytest.raises(PruningError, match=words) as caught:
        run(net, batches)
    assert "\n" not in str(caught.value)
    now = [*net.named_modules(), *net.named_parameters(), *net.named_buffers()]
    assert all(old is new for (_, old), (_, new) in zip(entries, now, strict=True))
    assert [type(thing) for _, thing in now] == kinds
