"""All cases of trees on tensors as large as chunks, by name."""

import itertools

from chunk_floats import float_cases
from chunk_integers import integer_cases
from chunk_lossy import lossy_cases
from chunk_sparse import sparse_cases
from chunk_structured import structured_cases

CHUNK_CASES = dict(
    itertools.chain(
        float_cases(), integer_cases(), structured_cases(), sparse_cases(), lossy_cases()
    )
)
