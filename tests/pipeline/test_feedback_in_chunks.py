"""Compressing with statistics: the same file for any number of threads, in chunks of rows."""

import numpy as np
import pytest
from checkpoint_files import write_safetensors

import tensorcomp
from tensorcomp import Budget
from tensorcomp.container.reader import CompressedFile
from tensorcomp.planning.statistics import Statistics

NAMES = ["layers.0.attn.q_proj.weight", "layers.0.mlp.up_proj.weight"]


@pytest.mark.parametrize("transposed", [False, True])
def test_threads_do_not_change_the_file(tmp_path, transposed):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(400, 64)) @ rng.normal(size=(64, 64))
    moment = (inputs.T @ inputs / 400).astype(np.float32)
    tensors = {name: rng.normal(size=(160, 64)).astype(np.float32) for name in NAMES}
    if transposed:
        tensors = {name: np.ascontiguousarray(tensor.T) for name, tensor in tensors.items()}
    statistics = Statistics(
        {
            "second_moment": dict.fromkeys(NAMES, moment),
            "row_weight": {name: rng.random(160).astype(np.float32) for name in NAMES},
        },
        positions=dict.fromkeys(NAMES, 400),
        transposed=tuple(NAMES) if transposed else (),
    )
    source = write_safetensors(tmp_path / "model.safetensors", tensors)
    path = tmp_path / "statistics.safetensors"
    statistics.save(path)
    files = {}
    for threads in (1, 2):
        target = tmp_path / f"{threads}.tc.safetensors"
        tensorcomp.compress(
            source,
            target,
            budget=Budget(bits_per_weight=3),
            statistics=path,
            threads=threads,
            chunk_elements=2048,
        )
        files[threads] = target.read_bytes()
        assert not [check for check in tensorcomp.verify(target, source) if check.error]
    assert files[1] == files[2]
    with CompressedFile(target) as file:
        trees = [planned.tree for planned in file.manifest.trees]
        assert any(text.startswith("scales") for text in trees)
        loaded = tensorcomp.load_file(target)
    plain = tmp_path / "plain.tc.safetensors"
    tensorcomp.compress(source, plain, budget=Budget(bits_per_weight=3), chunk_elements=2048)
    for name, tensor in tensors.items():
        errors = [found[name] - tensor for found in (loaded, tensorcomp.load_file(plain))]
        errors = [error.T if transposed else error for error in errors]
        weights = statistics.arrays["row_weight"][name]
        with_it, without = (
            (weights * np.einsum("ij,jk,ik->i", error, moment, error)).sum() for error in errors
        )
        assert with_it < 0.8 * without
