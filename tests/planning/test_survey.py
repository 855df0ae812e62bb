"""The quick look at a tensor counts right."""

import numpy as np
import pytest

from tensorcomp.kernels import native
from tensorcomp.planning.lossless import probe


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_a_survey_of_a_thousand_words_is_exact(dtype):
    random = np.random.default_rng(0)
    for most in (1, 2, 250, np.iinfo(dtype).max):
        words = random.integers(0, most, 1024, dtype=dtype, endpoint=True)
        zeros, distinct = probe(words)
        assert zeros == (words == 0).mean() == native.survey_count(words, 0, 64, 16) / 1024
        assert distinct == np.unique(words).size


def test_one_other_word_is_found_wherever_it_is():
    for place in range(70):
        words = np.full(70, 5, np.uint32)
        assert native.survey_all_equal(words)
        words[place] = 6
        assert not native.survey_all_equal(words)
    assert native.survey_all_equal(np.zeros(1, np.uint8))
