"""Codecs of other packages, announced by entry points of a package on the path."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorcomp.codecs import Node, codec_class, codec_ids, parse_tree
from tensorcomp.codecs.entropy.raw import Raw
from tensorcomp.codecs.text import parse_text
from tensorcomp.errors import PlanError
from tensorcomp.testing import codec_checks

_SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs import Serializer
from tensorcomp.errors import CodecError


@dataclass(frozen=True)
class Flip(Serializer):
    """Invert every bit.

    Layout: the bytes, inverted. Lossless. Cost: O(n).
    """

    id: ClassVar[str] = "{name}"
    mask: int = 255

    def encode(self, array, shared=b""):
        return [array.reshape(-1).view(np.uint8) ^ np.uint8(self.mask)]

    def decode(self, data, out, shared=b""):
        if data.size != out.nbytes:
            raise CodecError("flip: another size")
        out.reshape(-1).view(np.uint8)[:] = data ^ np.uint8(self.mask)
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return a function that puts a package with a codec on the path."""

    def run(
        package: str, *, announced: str = "flip", named: str = "flip", target: str = "Flip"
    ) -> Path:
        root = tmp_path / package
        information = root / f"{package}-1.0.dist-info"
        information.mkdir(parents=True)
        (root / f"{package}.py").write_text(_SOURCE.replace("{name}", named))
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        (information / "entry_points.txt").write_text(
            f"[tensorcomp.codecs]\n{announced} = {package}:{target}\n"
        )
        monkeypatch.syspath_prepend(root)
        return root

    codec_class.cache_clear()
    parse_text.cache_clear()
    yield run
    codec_class.cache_clear()
    parse_text.cache_clear()


def test_a_package_adds_a_codec(install):
    with pytest.raises(PlanError, match="no codec is called 'flip'"):
        parse_tree("flip")
    install("flipper_one")
    assert "flip" in codec_ids()
    assert "flipper_one" not in sys.modules  # listing ids imports nothing
    tree = parse_tree("fields(exponent=flip(mask=15), mantissa=flip)")
    assert type(tree.children[0][1].codec).__module__ == "flipper_one"
    for check in codec_checks("flip", "flip(mask=3, bytes=zstd)"):
        check()


def test_a_package_may_not_take_over_an_id_of_ours(install):
    install("flipper_two", announced="raw", named="raw")
    assert parse_tree("raw") == Node(Raw())
    assert "flipper_two" not in sys.modules


def test_two_packages_may_not_share_an_id(install):
    install("flipper_three")
    install("flipper_four")
    with pytest.raises(PlanError, match=r"several packages.*flipper_four:Flip, flipper_three:Flip"):
        parse_tree("flip")


def test_the_entry_point_must_name_the_codec_s_id(install):
    install("flipper_five", named="flap")
    with pytest.raises(PlanError, match="gives a codec whose id is 'flap'"):
        parse_tree("flip")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("np", "not a codec class"),
        ("CodecError", "not a codec class"),
        ("Nothing", "cannot be imported"),
    ],
)
def test_what_is_no_codec_is_refused(install, target, wanted):
    install(f"flipper_{target.lower()}", target=target)
    with pytest.raises(PlanError, match=wanted):
        parse_tree("flip")


def test_an_abstract_kind_is_refused(install):
    install("flipper_six", target="Serializer")
    with pytest.raises(PlanError, match="whose id is None"):
        parse_tree("flip")


def test_a_file_of_a_missing_codec_says_so(install, tmp_path):
    root = install("flipper_seven")
    path = tmp_path / "x.tc.safetensors"
    code = f"""
import io, sys
sys.path.insert(0, {str(root)!r})
from pathlib import Path
import numpy as np
from tensorcomp import save
from tensorcomp.pipeline import encode
from tensorcomp.planning.lossless import LosslessPlan
from tensorcomp.codecs import parse_tree
encode.plan_lossless = lambda *_: LosslessPlan(parse_tree("flip"), "a test")
Path({str(path)!r}).write_bytes(save({{"x": np.arange(9)}}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    from tensorcomp import load_file
    from tensorcomp.errors import FormatError

    np.testing.assert_array_equal(load_file(path)["x"], np.arange(9))
    codec_class.cache_clear()
    parse_text.cache_clear()
    sys.path.remove(str(root))
    with pytest.raises(FormatError, match="no codec is called 'flip'"):
        load_file(path)
