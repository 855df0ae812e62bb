"""A pytest plugin, ``-p checked_native``: the tests run with the checked kernels."""

from checked import use_checked

use_checked()
