"""Save and load compressed checkpoints by ``torch.distributed.checkpoint``.

`Writer` and `Reader` are given to its functions as ``storage_writer`` and ``storage_reader``.
"""

from tensorcomp.integrations.dcp.reader import Reader
from tensorcomp.integrations.dcp.writer import Writer

__all__ = ["Reader", "Writer"]
