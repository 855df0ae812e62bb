"""Every level of the processor writes the same bytes, and the stub names what is there."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import corpus
import pytest

from tensorcomp.kernels import native

DIGEST = """
import sys, numpy as np, xxhash
from tensorcomp.codecs import parse_tree
from tensorcomp.codecs.payload import decode_into, encode, join
from tensorcomp.codecs.tree import fit
from tensorcomp.kernels import native
floats = np.random.default_rng(1).standard_normal((300, 517)).astype(np.float32)
coded = xxhash.xxh3_128()
for text in sys.argv[1:]:
    tree = parse_tree(text)
    known = floats * np.float32(1.001) if tree.codec.uses_reference else None
    shared = fit(tree, floats, known)
    data = join(encode(tree, floats, shared, reference=known))
    out = np.empty_like(floats)
    decode_into(tree, np.frombuffer(data, np.uint8), out, shared, known)
    coded.update(data + out.tobytes())
print(native.cpu_level, coded.hexdigest())
"""
TREES = (
    *("groupfloats", "floats", "fields", "uniform(0.01)", "uniform(0.1, codes=huffman)"),
    *("trellis(0.01)", "scales", "affine(4, 128)", "nf4", "ternary", "kmeans(16)", "rotate(8)"),
    *("difference", "difference(1)", "difference(decay=true)", "update(values=uniform(0.01))"),
    *("topk(0.1, mask=gaps)", "nm(2, 4)", "randomk(0.1)", "zeros", "runlength"),
)


def digest(level: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", DIGEST, *TREES],
        env={**os.environ, "TENSORCOMP_CPU_LEVEL": str(level)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    used, value = done.stdout.split()
    return int(used), value


@pytest.mark.parametrize("level", [level for level in (1, 3) if level < native.cpu_level])
def test_every_level_writes_the_same_bytes(level):
    assert digest(level) == (level, digest(native.cpu_level)[1])


def test_the_stub_has_every_kernel_and_its_arguments():
    stub = ast.parse(Path(native.__file__).with_name("native.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    counts = {name: len(node.args.posonlyargs) for name, node in functions.items()}
    assert counts == {name: len(corpus.parameters_of(name)) for name in corpus.kernels()}
    assert all(map(ast.get_docstring, functions.values()))
