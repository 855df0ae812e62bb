from tensorcomp.api.compare import compare as compare
from tensorcomp.api.compress import compress as compress
from tensorcomp.api.decompress import decompress as decompress
from tensorcomp.api.load import load as load
from tensorcomp.api.load import load_file as load_file
from tensorcomp.api.load import safe_open as safe_open
from tensorcomp.api.save import save as save
from tensorcomp.api.save import save_file as save_file
from tensorcomp.api.verify import verify as verify
from tensorcomp.codecs.text import format_tree as format_tree
from tensorcomp.codecs.text import parse_tree as parse_tree
from tensorcomp.errors import CheckpointError as CheckpointError
from tensorcomp.errors import CodecError as CodecError
from tensorcomp.errors import FormatError as FormatError
from tensorcomp.errors import PlanError as PlanError
from tensorcomp.errors import PruningError as PruningError
from tensorcomp.errors import TensorcompError as TensorcompError
from tensorcomp.errors import VerificationError as VerificationError
from tensorcomp.pipeline.job import Pipeline as Pipeline
from tensorcomp.planning.budgets import Budget as Budget
from tensorcomp.progress import Progress as Progress

__version__: str
