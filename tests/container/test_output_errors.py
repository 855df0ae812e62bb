"""Errors of outputs that files record are checked with statistics, on what is decoded."""

import numpy as np
import pytest
from calibrated_checkpoints import (
    CONV,
    DOWN,
    GATE,
    HEAD,
    MEASURED,
    TIED,
    UP,
    statistics,
    tensors,
    write_model,
)
from checkpoint_files import write_safetensors
from tampering import manifest_of, with_manifest

import tensorcomp
from tensorcomp import Budget, Pruning
from tensorcomp.errors import CheckpointError, FormatError, OptionError, PlanError
from tensorcomp.planning.statistics import Statistics

WITHIN = Budget(max_output_error=0.05)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the bytes of the compressed network."""
    path = write_model(tmp_path_factory.mktemp("data") / "m.safetensors")
    return tensorcomp.compress(path, budget=WITHIN, statistics=statistics()).path.read_bytes()


@pytest.fixture
def paths(tmp_path, data):
    """Return the model and what it is compressed to."""
    compressed = tmp_path / "c.tc.safetensors"
    compressed.write_bytes(data)
    return write_model(tmp_path / "m.safetensors"), compressed


def errors_of(original, compressed, measured=None):
    """Return what verification finds wrong, by tensor."""
    checks = tensorcomp.verify(compressed, original, statistics=measured or statistics())
    return {check.name: check.error for check in checks if check.error}


def forged(paths, name, **entries):
    """Write the file with another record of a tensor."""

    def change(manifest):
        manifest["tensors"][name].update(entries)

    paths[1].write_bytes(with_manifest(paths[1].read_bytes(), change))


def test_sound_files_pass(paths, data):
    assert errors_of(*paths) == {}
    records = manifest_of(data)["tensors"]
    for name in set(MEASURED) - {TIED}:
        assert 0.045 < records[name]["output_error"] <= 0.05
        assert records[name]["bound"] == {"max_output_error": 0.05}
    assert "output_error" not in records["unused.weight"]


def test_the_error_is_that_of_what_layers_return(paths, data):
    decoded = tensorcomp.load_file(paths[1])
    moment = statistics().arrays["second_moment"][UP].astype(np.float64)
    weight = tensors()[UP].astype(np.float64)
    error = weight - decoded[UP]
    found = np.sqrt(np.trace(error @ moment @ error.T) / np.trace(weight @ moment @ weight.T))
    recorded = manifest_of(data)["tensors"][UP]["output_error"]
    assert recorded == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("name", [UP, GATE, CONV, DOWN, HEAD])
def test_errors_that_are_not_true_are_found(paths, name):
    forged(paths, name, output_error=0.02)
    found = errors_of(*paths)
    assert set(found) == {name, TIED} if name == HEAD else {name}
    assert "of 0.0" in found[name]
    assert "and not of 0.02" in found[name]
    assert tensorcomp.verify(paths[1], paths[0])  # without statistics nothing is known of it
    assert all(check.error is None for check in tensorcomp.verify(paths[1], paths[0]))


def test_bounds_that_are_not_kept_are_found(paths):
    forged(paths, CONV, bound={"max_output_error": 0.04})
    found = errors_of(*paths)
    assert set(found) == {CONV}
    assert "has max_output_error 0.04" in found[CONV]
    assert "0.04 is promised" in found[CONV]


def test_a_bound_without_an_error_is_checked(paths):
    def change(manifest):
        del manifest["tensors"][CONV]["output_error"]

    paths[1].write_bytes(with_manifest(paths[1].read_bytes(), change))
    assert set(errors_of(*paths)) == {CONV}


@pytest.mark.parametrize("value", ["0.1", -0.1, True, None, [0.1], float("nan")], ids=str)
def test_what_is_no_error_is_refused(paths, value):
    forged(paths, CONV, output_error=value)
    with pytest.raises(FormatError):
        tensorcomp.load_file(paths[1])


def test_other_statistics_do_not_pass(paths):
    few = statistics(samples=2)
    found = errors_of(*paths, few)
    assert all("by these statistics" in error for error in found.values())
    assert {GATE, CONV, DOWN} <= set(found)
    arrays = {key: dict(own) for key, own in statistics().arrays.items()}
    del arrays["row_weight"][CONV]
    fewer = Statistics(arrays, transposed=(GATE,), tied={TIED: HEAD})
    assert "no statistics of it" in errors_of(*paths, fewer)[CONV]


def test_statistics_of_another_model_are_refused(paths, tmp_path):
    other = write_safetensors(
        tmp_path / "o.safetensors", {**tensors(), DOWN: tensors()[DOWN] * np.float32(1.5)}
    )
    with pytest.raises(CheckpointError, match=f"statistics of another model: tensor '{DOWN}'"):
        tensorcomp.verify(paths[1], other, statistics=statistics())
    another = {key: {"x": own[DOWN]} for key, own in statistics().arrays.items()}
    with pytest.raises(PlanError, match="statistics of another model: of 'x', not of"):
        tensorcomp.verify(*paths[::-1], statistics=Statistics(another))
    with pytest.raises(OptionError, match="expected the original beside statistics"):
        tensorcomp.verify(paths[1], statistics=statistics())


def test_pruned_tensors_have_errors_against_the_original(paths):
    for budget in (Budget(max_output_error=0.02), Budget(max_rel_l2=0.02)):
        tensorcomp.compress(
            *paths,
            force=True,
            prune=Pruning("magnitude", 0.3),
            budget=budget,
            statistics=statistics(),
        )
        assert errors_of(*paths) == {}
        record = manifest_of(paths[1].read_bytes())["tensors"][DOWN]
        assert record["output_error"] > 0.03


def test_folders_are_checked(tmp_path):
    first = {name: tensors()[name] for name in (UP, GATE)}
    rest = {name: value for name, value in tensors().items() if name not in first}
    for number, part in enumerate((first, rest)):
        write_safetensors(tmp_path / "m" / f"{number}.safetensors", part)
    tensorcomp.compress(tmp_path / "m", tmp_path / "c", budget=WITHIN, statistics=statistics())
    assert errors_of(tmp_path / "m", tmp_path / "c") == {}


def test_chunks_keep_the_bound_together(tmp_path, monkeypatch):
    monkeypatch.setattr("tensorcomp.pipeline.write.MAX_CHUNK_ELEMENTS", 2000)
    path = write_model(tmp_path / "m.safetensors")
    out = tensorcomp.compress(path, budget=WITHIN, statistics=statistics()).path
    manifest = manifest_of(out.read_bytes())
    records = manifest["tensors"]
    assert records[CONV]["chunk_elements"] == 2000
    for name in (UP, CONV, DOWN, HEAD):
        assert 0.04 < records[name]["output_error"] <= 0.05
    # Rows of chunks are inputs here: the error of the whole does not follow from theirs.
    assert "error" not in records[GATE]
    (row,) = (row for row in tensorcomp.inspect(out).tensors if row.name == GATE)
    assert row.reason.startswith("no output error of inputs × outputs in 7 chunks is known: lossl")
    assert errors_of(path, out) == {}
