"""It does not matter whether hosts are imported before the hook is enabled, or after."""

import subprocess
import sys
from pathlib import Path

import pytest
from host_models import saved

import tensorcomp

HOOK = "import tensorcomp.hub; tensorcomp.hub.enable()"
HOSTS = """
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModel, BertModel
import accelerate
"""
LOAD = """
import sys, torch
path, plain = sys.argv[1:]
wanted = BertModel.from_pretrained(plain).state_dict()
def check(found):
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
file = path + "/model.tc.safetensors"
check(AutoModel.from_pretrained(path, variant="tc").state_dict())
check(load_file(file))
check(safe_open(file, "pt").get_tensors())
check(accelerate.utils.load_state_dict(file))
tensorcomp.hub.disable()
assert load_file(file).keys() != wanted.keys()
"""


@pytest.mark.parametrize("order", [(HOOK, HOSTS), (HOSTS, HOOK)], ids=["first", "last"])
def test_order_of_imports(tmp_path: Path, order: tuple[str, str]) -> None:
    plain = saved("bert", tmp_path / "model")
    packed = tensorcomp.compress(plain).path
    script = "\n".join((*order, LOAD))
    subprocess.run([sys.executable, "-c", script, packed, plain], check=True)
