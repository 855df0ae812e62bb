"""Arguments, arrays and parts that codecs refuse."""

import numpy as np
import pytest

from tensorcomp.codecs import parse_tree
from tensorcomp.codecs.floats.cast import TARGETS, Cast
from tensorcomp.codecs.quantize.affine import Affine
from tensorcomp.codecs.quantize.kmeans import Kmeans
from tensorcomp.codecs.quantize.nf4 import Nf4
from tensorcomp.codecs.quantize.pq import Pq
from tensorcomp.codecs.quantize.sign import Sign
from tensorcomp.codecs.quantize.ternary import Ternary
from tensorcomp.errors import CodecError, NotRepresentable, PlanError

WRONG_ARGUMENTS = {
    "affine": [
        *("1", "9", "4.0", "true", "4, -2", "4, 1.5", "4, true", "4, 2000000", "4, 128, 1"),
        "4, zeros=raw",
    ],
    "ans": ["contexts=3", "contexts=64", "states=8", "states=13"],
    "block": ["0, 4", "4, 1048577", "4, 4, 1.5", "4, 4, offset=4", "4, 4, offset=-1"],
    "cast": ["", '"F32"', "16", '"bf16"', "true"],
    "channel": ["2", '0.5, keep="f"', '0.5, keep="0G"', "0.5, keep=12"],
    "filter": ["-0.5"],
    "kmeans": ["1", "65537", "16.0", "true"],
    "magnitude": ["-0.1", "1.1", "true", "0.5, count=-1", "0.5, count=1.5"],
    "nf4": ["-2", "64.0", "2000000", "true"],
    "nm": ["0, 4", "5, 4", "2, 17", "2.0, 4"],
    "pq": ["1", "65537", "4, 0", "4, 257", "4, 2.0"],
    "randomk": ["5, seed=-1", "5, seed=18446744073709551616", "5, offset=0.5"],
    "sign": ["-2", "64.0", "2000000", "true"],
    "svd": [
        *("", "2, energy=0.5", "energy=0.5, error=0.5", "0", "-1", "1.0", "2.5", "energy=0"),
        *("energy=1.5", "error=1.0", "error=true", 'energy="1"', '2, unfold="columns"'),
        "2, refine=1",
    ],
    "ternary": ["0", "-0.7", "1e999", "1000001", "true", "0.7, -2"],
    "threshold": ["-1", "-0.0", "1e999", ""],
    "topk": ["1.0", "-1", "1.5", "null"],
}


@pytest.mark.parametrize(
    ("codec", "arguments"), [(name, one) for name, all_ in WRONG_ARGUMENTS.items() for one in all_]
)
def test_wrong_arguments_are_refused(codec, arguments):
    with pytest.raises(PlanError, match=codec):
        parse_tree(f"{codec}({arguments})")


@pytest.mark.parametrize("array", [[1.0, np.nan], [np.inf], [-np.inf], range(5)], ids=str)
@pytest.mark.parametrize(
    "codec", [Affine(), Kmeans(), Nf4(), Pq(4, 1), Sign(), Ternary(), *map(Cast, TARGETS)], ids=repr
)
def test_what_is_not_a_finite_float_is_refused(codec, array):
    methods = [codec.encode, codec.fit] if isinstance(codec, Kmeans | Pq) else [codec.encode]
    for method in methods:
        with pytest.raises(NotRepresentable):
            method(np.array(array))


@pytest.mark.parametrize(
    ("codec", "part", "value"),
    [
        (Affine(4), "codes", 8),
        (Affine(4), "codes", -8),
        (Affine(8), "codes", -128),
        (Affine(2, 128, symmetric=False), "codes", 4),
        (Affine(4), "scales", np.nan),
        (Affine(4), "scales", -np.inf),
        (Affine(4, 128, symmetric=False), "zeros", np.inf),
        (Nf4(), "codes", 16),
        (Nf4(), "codes", 255),
        (Nf4(), "scales", np.nan),
        (Sign(), "signs", 2),
        (Sign(), "signs", 255),
        (Sign(), "scales", np.inf),
        (Ternary(), "codes", 2),
        (Ternary(), "codes", -128),
        (Ternary(), "scales", np.nan),
        (Ternary(), "scales", -np.inf),
    ],
)
def test_damaged_parts_are_refused(codec, part, value):
    array = np.linspace(-1, 1, 50, dtype=np.float32)
    parts = codec.encode(array)
    values = parts[part].reshape(-1)
    (values.view(np.uint8) if values.dtype == np.bool_ else values)[-1] = value
    with pytest.raises(CodecError):
        codec.decode(parts, np.empty_like(array))
