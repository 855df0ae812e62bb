"""What `GradientCompression` offers beside the mean itself."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from given_gradients import Given, gradients_of
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients import GradientCompression, compress_gradients
from tensorcomp.gradients.wrappers.phases import PhaseTracker

SHAPES = ((80, 90), (7,), (70, 70), (65,))
SPARSE = "topk(0.02, values=affine(8), indices=gaps)"


def _model(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(Given(SHAPES), **{"bucket_cap_mb": 0.01, **options})


def _step(model: DistributedDataParallel, step: int) -> dict[str, np.ndarray]:
    """Do a step without an optimizer, and return the gradients."""
    model.zero_grad()
    rng = np.random.default_rng((step, distributed.get_rank()))
    given = {
        f"p{i}": torch.from_numpy(rng.standard_t(3, shape).astype(np.float32))
        for i, shape in enumerate(SHAPES)
    }
    model(given).backward()
    return gradients_of(model)


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def _dense() -> tuple[Any, ...]:
    plain, model = _model(), _model()
    compression = compress_gradients(model, "dense")
    passed = [_same(_step(plain, step), _step(model, step)) for step in range(4)]
    states, last = compression.state_dict()["states"], compression.metrics.last
    compression.close()
    passed.append(_same(_step(plain, 9), _step(model, 9)))
    return passed, compression.steps, states, last


def test_dense_gradients_are_those_of_the_model_without_a_hook():
    elements = sum(int(np.prod(shape)) for shape in SHAPES)
    for passed, steps, states, last in ranks.run(_dense, world=3):
        assert passed == [True] * 5
        assert steps == 4
        assert states == {}  # nothing is remembered, nothing is allocated
        assert last.raw_bytes == 4 * elements
        assert last.wire_bytes == round(2 * 2 / 3 * 4 * elements)


def _warm() -> tuple[Any, ...]:
    plain, model = _model(), _model()
    compression = compress_gradients(model, f"warmup({SPARSE}, steps=3)")
    same = [_same(_step(plain, step), _step(model, step)) for step in range(5)]
    return same, sorted(compression.state_dict()["states"]), compression.metrics.last


def test_a_warm_up_costs_nothing_until_it_is_over():
    for same, held, last in ranks.run(_warm):
        assert same == [True, True, True, False, False]
        assert held == ["p0", "p1", "p2", "p3"]
        assert last.payload_bytes < last.raw_bytes / 20


def _observed() -> tuple[Any, ...]:
    model = _model()
    with compress_gradients(model, SPARSE, observe=2, check_ranks=1) as compression:
        for step in range(5):
            _step(model, step)
    return list(compression.metrics), compression.summary(100)


def test_steps_are_measured():
    for steps, summary in ranks.run(_observed):
        assert [one.step for one in steps] == [0, 1, 2, 3, 4]
        assert [one.cosine is not None for one in steps] == [True, False, True, False, True]
        last = steps[-1]
        assert sorted(tensor.name for tensor in last.tensors) == ["p0", "p1", "p2", "p3"]
        assert last.raw_bytes == 4 * (7200 + 7 + 4900 + 65)
        assert last.payload_bytes < last.framed_bytes <= last.wire_bytes + 1
        assert 0.1 < last.cosine < 1
        assert last.residual_ratio > 1
        assert last.encode_seconds > 0
        assert last.communicate_seconds > 0
        assert last.decode_seconds > 0
        assert all(f"\np{i} " in summary for i in range(4))


def _clipping() -> list[int | None]:
    texts = ["dgc(0.01, clip=1.0)", "per_role(dgc(0.01, clip=1.0))", "dgc(0.01, workers=1)"]
    found = []
    for text in texts:
        compressor: Any = compress_gradients(_model(), text).compressor
        found.append(getattr(compressor, "inner", compressor) if "per" in text else compressor)
    return [one.workers for one in found]


def test_local_clipping_knows_the_number_of_ranks():
    assert ranks.run(_clipping, world=3) == [[3, 3, 1]] * 3


def _reported() -> tuple[Any, ...]:
    model = _model()
    tracker = PhaseTracker(window=1)
    text = "phases(topk(0.02), beginning=0.01, middle=0.1, final=0.5)"
    compression = compress_gradients(model, text, phases=tracker)
    seen = []
    for step, metric in enumerate([2.0, 1.0, 0.95, 0.94]):
        _step(model, step)
        density = compression.metrics.last.density
        seen.append((round(density or 0, 2), compression.report(metric + distributed.get_rank())))
    with pytest.raises(GradientError, match="got nan"):
        compression.report(float("nan"))
    return seen, compression.phase


def test_all_ranks_are_in_the_phase_that_rank_0_reports():
    for seen, phase in ranks.run(_reported):
        assert [density for density, _ in seen] == [0.01, 0.01, 0.01, 0.1]
        assert [one for _, one in seen] == ["beginning", "beginning", "middle", "final"]
        assert phase == "final"


def _agreed() -> tuple[Any, ...]:
    model = _model()
    text = f"adaptive({SPARSE}, int8, every=2)"
    with compress_gradients(model, text, check_ranks=1) as compression:
        before = compression.choices
        for step in range(11):
            _step(model, step)
        again = compression.state_dict()
    return before, compression.choices, again["choices"]


def test_ranks_agree_on_what_they_measured_alone():
    results = ranks.run(_agreed, world=3)
    for before, choices, saved in results:
        assert before == {}
        assert sorted(choices) == ["p0", "p1", "p2", "p3"]
        assert choices == saved == results[0][1]


def _diverging() -> None:
    model = _model()
    compression = compress_gradients(model, SPARSE, check_ranks=1)
    _step(model, 0)
    comm = compression._reducer.comm
    means = comm.all_gather_bytes

    def spoilt(data: Any, key: str) -> Any:
        rows = means(data, key)
        if key == "bucket 0" and comm.rank == 1:
            rows[0] = rows[1]
        return rows

    comm.all_gather_bytes = spoilt
    _step(model, 1)


def test_ranks_with_other_gradients_are_found_and_named():
    for failure in ranks.failed(_diverging).failures.values():
        assert "after step 1, rank 1 has other gradients than rank 0" in failure.message


def _half_residuals() -> tuple[Any, ...]:
    model = _model()
    compression = compress_gradients(model, SPARSE, residual_dtype="bfloat16")
    _step(model, 0)
    with pytest.raises(GradientError, match="expected residual_dtype"):
        compress_gradients(_model(), SPARSE, residual_dtype="float16")
    states = compression.state_dict()["states"]
    return [state["residual"].dtype for state in states.values()]


def test_residuals_may_take_half_the_memory():
    assert ranks.run(_half_residuals) == [[torch.bfloat16] * 4] * 2


def _in_groups() -> bool:
    rank = distributed.get_rank()
    groups = [distributed.new_group([0, 2]), distributed.new_group([1, 3])]
    model = _model(process_group=groups[rank % 2])
    with compress_gradients(model, "fp16"):
        means = [_step(model, step) for step in range(3)]
    gathered: list[Any] = [None] * 4
    distributed.all_gather_object(gathered, means)
    return all(_same(*pair) for pair in zip(means, gathered[(rank + 2) % 4], strict=True)) and not (
        _same(means[2], gathered[(rank + 1) % 4][2])
    )


def test_models_of_groups_that_are_not_all_ranks():
    assert ranks.run(_in_groups, world=4) == [True] * 4


def _refused() -> list[str]:
    model = _model()
    compression = compress_gradients(model, SPARSE)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    adam = torch.optim.Adam(model.parameters())
    mixed = torch.nn.parallel.distributed._MixedPrecision(param_dtype=torch.float16)
    messages = []
    for call in (
        lambda: compress_gradients(model, SPARSE),
        lambda: compress_gradients(model.module, SPARSE),
        lambda: compress_gradients(_model(), 3),
        lambda: compress_gradients(_model(), "dgc(0.01)", optimizer=sgd),
        lambda: compress_gradients(_model(), "kmeans(16)"),
        lambda: compress_gradients(_model(mixed_precision=mixed), SPARSE),
        lambda: compression.reduce((None, None)),
        lambda: compression.state_dict("median"),
        lambda: compression.load_state_dict({"weights": 1}),
        lambda: copy.deepcopy(model),
        lambda: pickle.dumps(model),
    ):
        with pytest.raises(GradientError) as caught:
            call()
        messages.append(str(caught.value))
    with pytest.warns(UserWarning, match=r"Adam estimates second moments, which 0.10% of a grad"):
        compress_gradients(_model(), "topk(0.001)", optimizer=adam)
    return messages


def test_what_cannot_work_is_refused_by_name():
    expected = [
        "has a communication hook already",
        "got Given; wrap the model",
        "expected a compressor or its text",
        "SGD has momentum 0.9",
        "it learns a codebook",
        "use torch.autocast instead",
        "python_reducer",
        'expected mode "exact" or "mean"',
        "expected a state of gradient compression of version 1",
        "copy or save its .module",
        "copy or save its .module",
    ]
    (messages,) = ranks.run(_refused, world=1)
    for message, part in zip(messages, expected, strict=True):
        assert part in message
        assert "\n" not in message


def _alone() -> tuple[Any, ...]:
    model = _model()
    with compress_gradients(model, SPARSE) as compression:
        assert isinstance(compression, GradientCompression)
        sent = [_step(model, step) for step in range(3)]
    left = compression.state_dict()["states"]
    return sent, {name: fields["residual"].numpy() for name, fields in left.items()}


def test_one_rank_compresses_too():
    ((sent, left),) = ranks.run(_alone, world=1)
    for index, shape in enumerate(SHAPES):
        name = f"p{index}"
        total = sum(one[name].astype(float) for one in sent) + left[name].reshape(shape)
        truth = np.zeros(shape)
        for step in range(3):
            rng = np.random.default_rng((step, 0))
            truth += [rng.standard_t(3, s).astype(np.float32) for s in SHAPES][index]
        np.testing.assert_allclose(total, truth, atol=1e-5)


def _on_device(text: str) -> tuple[bool, list[str]]:
    """Compress on the host and, with tensors, on a "device" that is the CPU."""
    host, device = _model(), _model()
    one, other = compress_gradients(host, text), compress_gradients(device, text, check_ranks=1)
    other._reducer.device = torch.device("cpu")
    same = [_same(_step(host, step), _step(device, step)) for step in range(4)]
    states = one.state_dict()["states"], other.state_dict()["states"]
    for name, fields in states[0].items():
        same += [torch.equal(value, states[1][name][field]) for field, value in fields.items()]
    anew = compress_gradients(again := _model(), text)
    anew._reducer.device = torch.device("cpu")
    anew.load_state_dict(other.state_dict())
    same += [_same(_step(host, step), _step(again, step)) for step in range(4, 6)]
    layouts = other._reducer._layouts.values()
    return all(same), [type(group.codec).__name__ for one in layouts for group in one.groups]


@pytest.mark.parametrize("text", [SPARSE, "dgc(0.02)", f"per_role({SPARSE})"])
def test_gradients_on_a_device_are_compressed_there_bit_for_bit(text):
    for same, codecs in ranks.run(_on_device, text):
        assert same
        assert all("Device" in one for one in codecs)
