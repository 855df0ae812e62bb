"""Second moments in parts that fit in memory, and runs that are broken off and go on."""

import numpy as np
import pytest
import torch
from calibrated_nets import attending, token_batches

from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.errors import CheckpointError
from tensorcomp.planning.statistics import CURVATURE, Statistics

torch.set_num_threads(1)

SMALL = 8 * 8 * 8  # bytes of one matrix of 8 x 8 in float64


def measured(data=None, net=None, **options):
    net = attending(torch.float32) if net is None else net
    return calibrate(net, data or token_batches(), statistics=CURVATURE, **options)


def same(found, expected):
    assert found.unreached == expected.unreached
    assert found.digests == expected.digests
    assert found.positions == expected.positions
    for name in expected.arrays["row_weight"]:
        one, other = found.moment(name), expected.moment(name)
        np.testing.assert_allclose(one.matrix, other.matrix, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(one.row_weight, other.row_weight, rtol=1e-5)


@pytest.mark.parametrize(("memory", "passes"), [(1, 5), (2 * SMALL, 4), (7 * SMALL, 1)])
def test_parts_give_what_one_pass_gives(memory, passes):
    told = []
    found = measured(memory=memory, progress=lambda *numbers: told.append(numbers))
    same(found, measured())
    assert told == [(number, 3 * passes) for number in range(1, 3 * passes + 1)]


def test_minibatches_of_an_iterator_are_kept_for_all_parts():
    same(measured(iter(token_batches()), memory=1), measured())


class Breaking(list):
    """Minibatches that fail at one of the passes."""

    def __init__(self, at):
        super().__init__(token_batches())
        self.passes, self.at = 0, at

    def __iter__(self):
        self.passes += 1
        yield from list(super().__iter__())[:2]
        if self.passes == self.at:
            raise OSError("the machine stops")
        yield self[2]


def test_a_run_goes_on_where_another_was_broken_off(tmp_path):
    out = tmp_path / "s.safetensors"
    options = {"memory": 1, "out": out, "job": "tokens"}
    with pytest.raises(OSError, match="the machine stops"):
        measured(Breaking(at=3), **options)
    assert len(list(tmp_path.iterdir())) == 2
    data = Breaking(at=0)
    found = measured(data, **options)
    assert data.passes == 5 - 2
    same(found, measured())
    same(Statistics.load(out), measured())
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "other", [{"job": "other"}, {"seed": 1}, {"net": True}, {"memory": 2 * SMALL}]
)
def test_another_job_begins_anew(tmp_path, other):
    out = tmp_path / "s.safetensors"
    options = {"memory": 1, "out": out, "job": "tokens"}
    with pytest.raises(OSError, match="the machine stops"):
        measured(Breaking(at=3), **options)
    if "net" in other:
        other = {"net": attending(torch.float32)}
        other["net"].head.weight.data[0, 0] += 1
    data = Breaking(at=0)
    found = measured(data, **options | other)
    assert data.passes == (4 if "memory" in other else 5)
    same(found, measured(**other))
    assert list(tmp_path.iterdir()) == [out]


def test_an_existing_file_is_kept_unless_it_may_be_replaced(tmp_path):
    out = tmp_path / "s.safetensors"
    measured(out=out)
    before = out.read_bytes()
    with pytest.raises(CheckpointError, match="exists already"):
        measured(out=out, seed=1)
    assert out.read_bytes() == before
    measured(out=out, seed=1, force=True)
    assert out.read_bytes() != before


def test_equal_runs_write_equal_files(tmp_path):
    for name in "ab":
        measured(out=tmp_path / name, dtype="bfloat16")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    found = Statistics.load(tmp_path / "a")
    assert found.arrays["second_moment"]["head.weight"].dtype.name == "bfloat16"
    one, other = found.moment("head.weight").matrix, measured().moment("head.weight").matrix
    np.testing.assert_allclose(one, other, rtol=2**-8)
