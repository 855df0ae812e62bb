import numpy as np

from tensorcomp.gradients.base import Compressor, GradientSpec
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.ddp.coding_groups import Layout, is_plain, lay_out
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter

TOPK = "topk(0.01)"
SHAPES = {"a": (70, 80), "b": (80,), "c": (64, 64), "d": (64,), "e": (9, 9)}


def _laid(texts: str | dict[str, str] = TOPK, *, shapes=SHAPES, join=True, saved=()) -> Layout:
    compressors: list[Compressor] = []
    specs = []
    for name, shape in shapes.items():
        text = texts if isinstance(texts, str) else texts[name]
        specs.append(GradientSpec(name, shape, worker=3))
        compressors.append(parse_compressor(text))
    return lay_out(specs, compressors, join_small=join, saved=saved)


def test_small_parameters_become_one_group_in_the_order_of_the_buffer():
    layout = _laid()
    assert [group.key for group in layout.groups] == [("a",), ("b", "d", "e"), ("c",)]
    joined = layout.groups[1]
    assert joined.spec.shape == (80 + 64 + 81,)
    assert isinstance(joined.where, np.ndarray)  # c lies between
    places = [range(5600, 5680), range(9776, 9840), range(9840, 9921)]
    assert joined.where.tolist() == [index for place in places for index in place]
    assert layout.groups[2].where == slice(5600 + 80, 5600 + 80 + 4096)
    assert [spec.shape for spec in joined.parts] == [(80,), (64,), (9, 9)]
    assert layout.groups[0].spec.worker == 3


def test_neighbours_lie_in_one_run_of_the_buffer():
    (group,) = _laid(shapes={"a": (5,), "b": (2, 3)}).groups
    assert group.where == slice(0, 11)


def test_parameters_stay_apart_where_joining_would_change_what_is_promised():
    names = [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert [group.key for group in _laid(join=False).groups] == names
    assert [group.key for group in _laid("error_bounded(max_rel_l2=0.1)").groups] == names
    assert [group.key for group in _laid("dgc(0.01, clip=1.0)").groups] == names
    assert [group.key for group in _laid("sign").groups] == names
    assert [group.key for group in _laid("dgc(0.01)").groups] == [("a",), ("b", "d", "e"), ("c",)]


def test_only_equal_compressors_are_joined():
    texts = {"a": TOPK, "b": TOPK, "c": TOPK, "d": "int8", "e": TOPK}
    assert [group.key for group in _laid(texts).groups] == [("a",), ("b", "e"), ("c",), ("d",)]


def test_groups_of_an_earlier_run_come_again_where_all_are_there():
    layout = _laid(saved=[("e", "b"), ("d", "elsewhere"), ("a", "c")])
    assert [group.key for group in layout.groups] == [("a",), ("c",), ("d",), ("e", "b")]
    assert isinstance(layout.groups[-1].where, np.ndarray)
    alone = _laid(saved=[("b",), ("d", "e")])
    assert [group.key for group in alone.groups] == [("a",), ("b",), ("c",), ("d", "e")]


def test_few_dense_bytes_ride_with_gathered_payloads():
    texts = {"a": TOPK, "b": "dense", "c": TOPK, "d": "int8", "e": "dense"}
    layout = _laid(texts)
    keys = {way: [layout.groups[i].key for i in where] for way, where in layout.routes.items()}
    assert keys == {"gather": [("a",), ("b", "e"), ("c",)], "reduce_scatter": [("d",)]}
    large = _laid({"a": "dense", "b": TOPK}, shapes={"a": (1 << 14,), "b": (9,)})
    assert large.routes == {"gather": (1,), "sum": (0,)}
    assert _laid("dense").routes == {"sum": (0, 1, 2)}


def test_a_schema_tells_layouts_apart():
    assert _laid().schema == _laid().schema
    others = [_laid(join=False), _laid("topk(0.01, values=raw)"), _laid(shapes={"a": (70, 80)})]
    assert len({_laid().schema, *(one.schema for one in others)}) == 4


def test_plain_is_what_sends_the_gradient_itself():
    assert is_plain(Dense())
    assert is_plain(ErrorFeedback(ReduceScatter(Dense())))
    assert not is_plain(parse_compressor("dgc(0.01)"))
    assert not is_plain(parse_compressor("fp16"))
