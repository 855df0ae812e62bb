from pathlib import Path

import pytest

from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import atomic_file, atomic_folder, refuse_existing


@pytest.mark.parametrize(
    "create",
    [
        lambda path: refuse_existing(path, force=False),
        lambda path: atomic_file(path, force=True).__enter__(),
        lambda path: atomic_folder(path, [], force=True).__enter__(),
    ],
    ids=["check", "file", "folder"],
)
def test_outputs_have_no_nul_character(tmp_path, create):
    with pytest.raises(CheckpointError, match="NUL"):
        create(Path(tmp_path / "a\0b"))
    assert not list(tmp_path.iterdir())
