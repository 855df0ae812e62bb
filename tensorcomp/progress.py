"""Report the progress of a long job."""

from __future__ import annotations


class Progress:
    """Receive the progress of a long job; a subclass shows it.

    A job that starts over, to keep a size, begins its folder or its file again.
    """

    def begin_folder(self, nbytes: int) -> None:
        """Start a folder of files with so many bytes together, before the first."""

    def begin(self, tensors: int, nbytes: int) -> None:
        """Start a file of so many tensors and bytes of them."""

    def advance(self, name: str, nbytes: int) -> None:
        """Count bytes of a tensor that are done; a tensor may come in several pieces."""
