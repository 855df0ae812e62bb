import importlib
import inspect
import pkgutil

import pytest
from contract_trees import OWN_TREES, TREES

import tensorcomp.codecs
from tensorcomp.codecs import Codec, Filter, Serializer, Transform, parse_tree
from tensorcomp.codecs.entropy.contexts import ContextCoder
from tensorcomp.codecs.feedback import FeedbackEncoder, FeedbackTransform
from tensorcomp.codecs.quantize.codebooks import CodebookQuantizer
from tensorcomp.codecs.quantize.groups import GroupQuantizer
from tensorcomp.codecs.quantize.uniform import StepQuantizer
from tensorcomp.codecs.registry import own_codecs
from tensorcomp.codecs.sparse.largest import Largest
from tensorcomp.codecs.sparse.masks import Pruning
from tensorcomp.codecs.sparse.slices import PrunedSlices
from tensorcomp.codecs.sparse.structured import StructuredPruning
from tensorcomp.testing import codec_checks, nasty_arrays


@pytest.mark.parametrize("check", codec_checks(*OWN_TREES), ids=str)
def test_contract(check):
    check()


def test_every_codec_class_is_registered_and_has_a_sample_tree():
    found = set()
    for module in pkgutil.walk_packages(tensorcomp.codecs.__path__, "tensorcomp.codecs."):
        names = vars(importlib.import_module(module.name)).values()
        found |= {kind for kind in names if inspect.isclass(kind) and issubclass(kind, Codec)}
    found -= {Codec, Transform, Serializer, Filter}
    found -= {Pruning, StructuredPruning, Largest, PrunedSlices}
    found -= {GroupQuantizer, CodebookQuantizer, StepQuantizer, ContextCoder}
    found -= {FeedbackEncoder, FeedbackTransform}
    assert {codec.id: codec for codec in found} == own_codecs()
    assert len({codec.id for codec in found}) == len(found)
    assert own_codecs().keys() == TREES.keys()


@pytest.mark.parametrize("tree", OWN_TREES)
def test_a_sample_tree_holds_the_codec_that_it_is_for(tree):
    owners = [name for name, trees in TREES.items() if tree in trees]
    assert owners[0] in {codec.id for codec in parse_tree(tree).walk()}


def test_nasty_arrays_are_the_same_each_time():
    once, again = nasty_arrays(), nasty_arrays()
    assert list(once) == list(again)
    for name, array in once.items():
        assert array.tobytes() == again[name].tobytes(), name
        assert array is not again[name], name
