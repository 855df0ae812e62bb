import shutil

import pytest
from safetensors.torch import load_file

from benchmarks.series import digits, merged
from benchmarks.series.language import saved_steps
from benchmarks.series.lossless import cell, measured, sizes_sheet
from benchmarks.series.pairs import BF16, Pair
from benchmarks.series.peers import Zstd

PAIR = Pair("merge", "merged/base", "merged/lora", BF16, 15)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("series")
    merged.make(path, seed=3, width=64)
    return path


def test_a_merge_is_its_base_and_a_matrix_of_rank_8(folder):
    base, new = (load_file(folder / f"merged/{name}.safetensors") for name in ("base", "lora"))
    for name, weights in base.items():
        update = new[name] - weights
        assert (update.norm() / weights.norm()).item() == pytest.approx(merged.UPDATE, rel=0.01)
        assert update.svd().S[merged.RANK] < 1e-4 * update.svd().S[0]


def test_seeds_are_what_files_depend_on(tmp_path):
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        digits.make(tmp_path / name, seed, steps=10)
    one, same, other = (
        (tmp_path / name / "digits/step_000010.safetensors").read_bytes()
        for name in ("one", "same", "other")
    )
    assert one == same != other


def test_a_peer_is_judged_by_what_it_gives_back(folder, tmp_path):
    row = measured(PAIR, folder, Zstd, threads=1)
    assert row.exact
    assert row.ratio > 1
    assert cell(row) in sizes_sheet([PAIR], [row]).rows[0]
    shutil.copytree(folder / "merged", tmp_path / "merged")
    (tmp_path / "merged/base.bf16.safetensors").write_bytes(b"")  # of another length
    assert cell(measured(PAIR, tmp_path, Zstd, threads=1)) == "FAILS"


def test_ten_saves_are_whole_and_six_are_close_together():
    whole, close = saved_steps(1500)
    assert sorted(whole) == list(range(150, 1501, 150))
    assert sorted(close) == [751, 752, 760, 800, 1351, 1360]
