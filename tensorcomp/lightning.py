"""Keep checkpoints of Lightning in a series.

``Trainer(plugins=[SeriesIO("run")])``
"""

from tensorcomp.integrations.series.lightning_io import SeriesIO

__all__ = ["SeriesIO"]
