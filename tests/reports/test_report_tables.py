import dataclasses
import json

import pytest

from tensorcomp._formatting import counted
from tensorcomp._tables import cells
from tensorcomp.container.records import PruningRecord
from tensorcomp.pipeline.summary import CheckpointSummary, join
from tensorcomp.pipeline.tensor_summary import TensorSummary
from tensorcomp.reports.inspect_tables import cost_table, tensor_legend

TREE = "fields(mantissa_bits=1, exponent=ans(contexts=16), mantissa=bitpack(bits=16))"


def row(name: str, stored: int, tree: str = TREE, **fields: object) -> TensorSummary:
    made = TensorSummary(name, "BF16", (64, 32), "attention", 4096, stored, tree, "floats")
    return dataclasses.replace(made, **fields)


@pytest.fixture
def summary() -> CheckpointSummary:
    rows = [row(f"encoder.layer.{i}.attention.self.query.weight", 2000 + i) for i in range(12)]
    rows.append(row("norm.weight", 128, "raw", shape=(64,), nbytes=128, reason="small"))
    rows.append(row("copy", 0, same_as="norm.weight", tree=None, reason=""))
    rows.append(row("tied", 0, same_as="norm.weight", tree=None, reason="", tied=True, nbytes=0))
    return CheckpointSummary(60_000, 30_000, tuple(rows), compressed=True)


def test_figures_of_a_row():
    made = row("x", 2048)
    assert (made.weights, made.bits_per_weight, made.ratio, made.snr_db) == (2048, 8.0, 2.0, None)
    lossy = dataclasses.replace(made, rel_l2=0.01)
    assert lossy.snr_db == pytest.approx(40)
    empty = row("x", 30, shape=(0, 3), nbytes=0)
    assert (empty.bits_per_weight, empty.ratio) == (None, 0.0)
    assert row("x", 0, same_as="y").codec == "same as y"
    assert row("x", 0).ratio is None


def test_weights_count_duplicates_but_not_tied_names(summary):
    assert summary.weights == 12 * 2048 + 64 + 2048
    assert summary.bits_per_weight == 8 * 30_000 / summary.weights


def test_join_adds_up(summary):
    both = join([summary, summary], None)
    assert (both.input_bytes, both.output_bytes, len(both.tensors)) == (120_000, 60_000, 30)
    assert both.compressed
    assert both.ratio == summary.ratio


def test_json_of_an_empty_checkpoint_is_strict():
    value = CheckpointSummary(10, 20, (), compressed=True).to_dict()
    assert json.loads(json.dumps(value, allow_nan=False)) == {
        "input_bytes": 10,
        "output_bytes": 20,
        "ratio": 0.5,
        "bits_per_weight": None,
        "tensors": [],
    }


def test_a_table_for_a_pipe_has_one_whole_line_a_tensor(summary):
    lines = summary.table().lines()
    assert len(lines) == 1 + len(summary.tensors)
    assert all(f"{TREE}  floats" in line for line in lines[1:13])
    assert lines[14].endswith("same as norm.weight")
    assert not any(line != line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_for_a_terminal_keeps_within_it_and_explains_trees(summary, width):
    lines = summary.table().lines(width)
    assert max(map(cells, lines)) <= width
    assert "= norm.weight" in "\n".join(lines)
    legend = list(tensor_legend(summary, width))
    assert max(map(cells, legend)) <= width
    text = "\n".join(legend)
    assert text.count("fields(") == 1
    assert "12 tensors" in text
    costs = cost_table(summary).lines(width)
    assert max(map(cells, costs)) <= width
    assert len(cost_table(summary).lines()) == 1 + 8 + 1


@pytest.mark.parametrize("shape", [(64, 32), (4096, 11008), (1152, 192, 3, 3)])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_pruned_and_lossy_table_keeps_within_a_terminal(summary, width, shape):
    pruned = PruningRecord("magnitude", "element", 1024, 0.25)
    changed = {"rel_l2": 0.3, "pruned": pruned, "shape": shape, "role": "attention.k"}
    tensors = [dataclasses.replace(row, **changed) for row in summary.tensors]
    lines = dataclasses.replace(summary, tensors=tuple(tensors)).table().lines(width)
    assert max(map(cells, lines)) <= width
    head = lines[0].split()
    assert {"Tensor", "Shape", "Bytes", "Bits", "Pruned", "Tree"} <= set(head)
    row = next(line for line in lines if line.startswith("encoder"))
    assert "×".join(map(str, shape)) in row
    assert " 10.5 " in row  # dB


def test_a_narrow_terminal_still_shows_every_figure(summary):
    lines = summary.table().lines(30)
    assert all("64×32" in line for line in lines if line.startswith("encoder.layer.1"))


def test_a_wide_terminal_needs_no_legend(summary):
    assert summary.table().lines(300) == summary.table().lines()
    assert not list(tensor_legend(summary, 300))


def test_files_of_a_folder_are_a_column_or_a_heading(summary):
    named = [dataclasses.replace(item, file="a.tc.safetensors") for item in summary.tensors]
    folder = dataclasses.replace(summary, tensors=tuple(named))
    assert all(line.startswith("a.tc.safetensors") for line in folder.table().lines()[1:])
    assert folder.table().lines(80).count("a.tc.safetensors") == 1


def test_costs_add_up_to_the_file(summary):
    lines = cost_table(summary, most=2).lines()
    assert lines[1].startswith("encoder.layer.11.")
    assert "13 others and the header" in lines[-1]
    assert "86.6 %" in lines[-1]


def test_a_file_that_is_shown_whole_has_no_others(summary):
    assert cost_table(summary, most=99).lines()[-1].startswith("2 others and the header")
    two = dataclasses.replace(summary, tensors=summary.tensors[:2])
    assert cost_table(two).lines()[-1].split()[:3] == ["the", "header", "26.0"]


def test_nothing_to_show():
    empty = CheckpointSummary(10, 400, (), compressed=True)
    assert empty.table().lines() == cost_table(empty).lines() == []
    assert empty.totals() == "0 tensors, 10 B in 400 B: ratio 0.025"


def test_one_is_not_many():
    found = [counted(number, what) for number in (0, 1, 2000) for what in ("weight", "batch")]
    few = ["0 weights", "0 batches", "1 weight", "1 batch"]
    assert found == [*few, "2,000 weights", "2,000 batches"]


def test_summaries_print_as_tables(summary):
    assert repr(summary) == f"<CheckpointSummary: {summary.totals()}>"
    assert str(summary).splitlines()[0].split()[:2] == ["Tensor", "Shape"]
    assert summary._repr_html_().startswith("<table>")
    assert json.loads(json.dumps(summary.to_dict()))["output_bytes"] == summary.output_bytes
