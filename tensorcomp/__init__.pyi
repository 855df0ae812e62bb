from tensorcomp import errors as errors
from tensorcomp.api.compare import compare as compare
from tensorcomp.api.compress import compress as compress
from tensorcomp.api.compress_result import CompressResult as CompressResult
from tensorcomp.api.decompress import decompress as decompress
from tensorcomp.api.inspect import inspect as inspect
from tensorcomp.api.load import load as load
from tensorcomp.api.load import load_file as load_file
from tensorcomp.api.load import safe_open as safe_open
from tensorcomp.api.merge import merge as merge
from tensorcomp.api.plan import plan as plan
from tensorcomp.api.save import save as save
from tensorcomp.api.save import save_file as save_file
from tensorcomp.api.verify import verify as verify
from tensorcomp.codecs.text import format_tree as format_tree
from tensorcomp.codecs.text import parse_tree as parse_tree
from tensorcomp.errors import TensorcompError as TensorcompError
from tensorcomp.io.metrics_file import MetricsFile as MetricsFile
from tensorcomp.pipeline.options import CompressOptions as CompressOptions
from tensorcomp.planning.budgets import Budget as Budget
from tensorcomp.progress import Progress as Progress
from tensorcomp.selection.request import Pruning as Pruning
from tensorcomp.series.series import Series as Series

__version__: str
