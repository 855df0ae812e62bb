"""Load a model and text of Hugging Face's libraries, to calibrate on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tensorcomp.errors import CheckpointError, MissingFileError, PruningError, needing
from tensorcomp.io.files import reading

_CAUSAL = ("ForCausalLM", "LMHeadModel")  # ends of architectures that predict the next token


class PretrainedFolder:
    """A folder with a model's configuration, weights and tokenizer.

    Parameters
    ----------
    folder : path-like

    Attributes
    ----------
    is_causal : bool
        Whether the model predicts the next token; others encode sentences.

    Raises
    ------
    CheckpointError
        If the folder or its configuration cannot be read.
    PruningError
        If transformers is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            raise MissingFileError(
                "expected a folder with config.json, weights and a tokenizer", path=self.folder
            )
        with needing("hub", PruningError, "calibrate --hf needs transformers"):
            import transformers
        self._auto: Any = transformers
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        with self._loading("configuration"):
            self._config = transformers.AutoConfig.from_pretrained(self.folder)
        self._config.use_cache = False
        names = self._config.architectures or ()
        self.is_causal = any(name.endswith(_CAUSAL) for name in names)

    def model(self) -> nn.Module:
        """Load the model: in float32, or as stored on a GPU if there is one."""
        kind = self._auto.AutoModelForCausalLM if self.is_causal else self._auto.AutoModel
        on_gpu = torch.cuda.is_available()
        with self._loading("model"):
            # Experts in single products, which are heard of.
            model: nn.Module = kind.from_pretrained(
                self.folder,
                config=self._config,
                dtype="auto" if on_gpu else torch.float32,
                experts_implementation="eager",
            )
        return model.to("cuda") if on_gpu else model

    def minibatches(
        self, text: Path, *, samples: int = 128, length: int = 512, batch: int = 8
    ) -> list[dict[str, torch.Tensor]]:
        """Return minibatches of token ids, spread evenly over a text.

        Of a causal model windows of equal length, otherwise lines, those of about the same length
        together, and a mask of what is no padding.

        Raises
        ------
        CheckpointError
            If the text cannot be read, holds too little, or there is no tokenizer.
        """
        with reading(text):
            words = text.read_text("utf-8", errors="replace")
        if not words.strip():
            raise CheckpointError("is empty; give a file of text", path=text)
        with self._loading("tokenizer"):
            tokenizer = self._auto.AutoTokenizer.from_pretrained(self.folder)
            if len(tokenizer) <= len(tokenizer.all_special_ids):
                raise ValueError("it has no vocabulary")
        longest = getattr(self._config, "max_position_embeddings", None) or length
        length = min(length, longest, tokenizer.model_max_length)
        if not self.is_causal:
            return list(_sentences(tokenizer, words.splitlines(), samples, length, batch))
        ids = tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"]
        opening = tokenizer("")["input_ids"][:1]  # what a model may expect to begin with
        opening = opening if opening == [tokenizer.bos_token_id] else []
        width = length - len(opening)
        if len(ids) < width:
            raise CheckpointError(
                f"expected at least {width} tokens of text, got {len(ids)}; give a longer text "
                "or a smaller length",
                path=text,
            )
        starts = _spread(len(ids) - width + 1, min(samples, len(ids) // width))
        windows = torch.tensor([opening + ids[start : start + width] for start in starts])
        return [{"input_ids": part} for part in torch.split(windows, batch)]

    @contextmanager
    def _loading(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CheckpointError(f"has no {what} to load: {reason}", path=self.folder) from error


def _sentences(
    tokenizer: Any, lines: Sequence[str], samples: int, length: int, batch: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield lines, padded to the longest of a minibatch."""
    lines = [line for line in lines if line.strip()]
    lines = [lines[at] for at in _spread(len(lines), min(samples, len(lines)))]
    ids = tokenizer(lines, truncation=True, max_length=length)["input_ids"]
    ids.sort(key=len)
    for at in range(0, len(ids), batch):
        padded = tokenizer.pad({"input_ids": ids[at : at + batch]}, return_tensors="pt")
        yield {name: padded[name] for name in ("input_ids", "attention_mask")}


def _spread(of: int, count: int) -> list[int]:
    """Return places that are spread evenly over a range, from its first to its last."""
    return [int(at) for at in np.linspace(0, of - 1, count)]
