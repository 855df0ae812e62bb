"""The errors that tensorcomp raises, one class a room.

Every message says what is wrong, where (file, tensor, byte) and what to do about it, in one line.
"""


class TensorcompError(Exception):
    """Base class of every error that tensorcomp raises on purpose."""


class CodecError(TensorcompError):
    """A payload is damaged, or a codec was given an array or an argument that it cannot take."""


class NotRepresentable(CodecError):
    """A transform cannot represent this array exactly; the planner then takes its next choice."""


class FormatError(TensorcompError):
    """A compressed checkpoint breaks the file format."""


class PlanError(TensorcompError):
    """No tree fits the tensor under the budget, or a tree's text cannot be understood."""


class UnknownCodecError(CodecError, PlanError):
    """A tree names a codec that neither tensorcomp nor an installed package has."""


class InfeasibleBudgetError(PlanError):
    """No choice of trees meets the budget, such as a size below what the codecs can reach."""


class CheckpointError(TensorcompError):
    """A source checkpoint cannot be read, or an output cannot be written."""


class PruningError(TensorcompError):
    """Weights cannot be scored or selected as asked, or masks do not fit the model."""


class GradientError(TensorcompError):
    """Gradients cannot be compressed or exchanged as asked; on all ranks alike."""


class VerificationError(TensorcompError):
    """Decoded bytes differ from what the manifest, or the original, says they are."""
