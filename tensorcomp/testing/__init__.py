"""Checks of the contract that every codec keeps.

Any test suite can run them on a codec.

::

    import pytest
    from tensorcomp.testing import codec_checks

    @pytest.mark.parametrize("check", codec_checks("mycodec(bits=3)"), ids=str)
    def test_contract(check):
        check()

pytest is not needed to import this package, nor to run a check.
"""

from tensorcomp.testing.arrays import nasty_arrays
from tensorcomp.testing.checks import CodecCheck, codec_checks

__all__ = ["CodecCheck", "codec_checks", "nasty_arrays"]
