"""Training and held-out text: Python's own language reference, as bytes.

``pydoc_data.topics`` is the text behind ``help("assignment")``, about half a million
characters of technical English that every CPython installation has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor

# Fixed by name, so the split stays the same whatever topics a Python version adds or reorders.
HELD_OUT_TOPICS = ("assignment", "execmodel", "import", "objects", "subscriptions")

CONTEXT = 256


@dataclass(frozen=True)
class Corpus:
    """Text as byte tokens, one ``uint8`` vector per part of the split."""

    train: Tensor
    held_out: Tensor


def paragraphs(text: str) -> list[str]:
    """Split a text at its blank lines."""
    return [part for part in re.split(r"\n[ \t]*\n", text) if part.strip()]


def unseen(parts: Iterable[str], seen: set[str]) -> Iterator[str]:
    """Yield the paragraphs not in ``seen``, adding each to it.

    Paragraphs that differ in white space only are the same: a section quoted inside another
    may be indented differently there.
    """
    for part in parts:
        key = " ".join(part.split())
        if key not in seen:
            seen.add(key)
            yield part


def encode(parts: Iterable[str]) -> Tensor:
    """Join paragraphs with blank lines and turn the text into byte tokens."""
    return torch.frombuffer(bytearray("\n\n".join(parts).encode()), dtype=torch.uint8)


def split_topics(documents: Mapping[str, str]) -> Corpus:
    """Divide documents into training and held-out text that share no paragraph.

    Many topics quote others whole ("compound" contains "if", "for" and "while"), so dividing
    by topic alone would leak held-out text into the training text.  Each paragraph is kept
    once: in the held-out part if it occurs there, else in the longest topic that has it.

    Parameters
    ----------
    documents : mapping of str to str
        Text of every topic by name; the order of its items does not matter.

    Returns
    -------
    Corpus
        The two parts as byte tokens.

    Raises
    ------
    ValueError
        If a held-out topic is missing, because the perplexities would not be comparable.
    """
    missing = [name for name in HELD_OUT_TOPICS if name not in documents]
    if missing:
        message = f"held-out topics missing from pydoc_data.topics: {', '.join(missing)}"
        raise ValueError(message)
    train_topics = sorted(
        documents.keys() - set(HELD_OUT_TOPICS), key=lambda name: (-len(documents[name]), name)
    )
    seen: set[str] = set()
    held_out = [p for name in HELD_OUT_TOPICS for p in unseen(paragraphs(documents[name]), seen)]
    train = [p for name in train_topics for p in unseen(paragraphs(documents[name]), seen)]
    return Corpus(train=encode(train), held_out=encode(held_out))


def load_corpus() -> Corpus:
    """Read and divide the topics of the running Python."""
    return split_topics(topics)


def consecutive_windows(tokens: Tensor, context: int = CONTEXT) -> tuple[Tensor, Tensor]:
    """Cut tokens into whole windows, one after the other.

    Parameters
    ----------
    tokens : Tensor
        Tokens, shape ``(length,)``.
    context : int, default CONTEXT
        Tokens per window.

    Returns
    -------
    inputs, targets : Tensor
        Shape ``(windows, context)``, ``int64``; targets are the inputs moved by one token, so
        every token but the first is predicted exactly once.  A last, partial window is dropped.
    """
    count = (len(tokens) - 1) // context
    span = count * context
    inputs, targets = tokens[:span], tokens[1 : span + 1]
    return inputs.view(count, context).long(), targets.view(count, context).long()


def random_windows(
    tokens: Tensor, batch_size: int, generator: torch.Generator, context: int = CONTEXT
) -> tuple[Tensor, Tensor]:
    """Draw a batch of windows that start anywhere in the text.

    Parameters
    ----------
    tokens : Tensor
        Tokens, shape ``(length,)``.
    batch_size : int
        Number of windows.
    generator : torch.Generator
        Source of the start positions.
    context : int, default CONTEXT
        Tokens per window.

    Returns
    -------
    inputs, targets : Tensor
        Shape ``(batch_size, context)``, ``int64``; targets are the inputs moved by one token.
    """
    starts = torch.randint(len(tokens) - context, (batch_size, 1), generator=generator)
    windows = tokens[starts + torch.arange(context + 1)].long()
    return windows[:, :-1], windows[:, 1:]
