"""Convolutional codes of trellis-coded quantization: which quantizer codes the next element.

A code has 2**v states. The low bit q of its state names the quantizer of the next element; the
parity z of the integer that the element gets moves it on: from state s to

    s >> 1  ^  q · (feedback >> 1)  ^  z · (forward >> 1).

Element i of an array drives copy i mod 64: so many copies, all in state 0 at first, are
stepped at once in vector registers. ``kernels/machines.h`` has the same polynomials.

References
----------
Codes: Ungerboeck 1982, "Channel coding with multilevel/phase signals", for amplitude modulation.
"""

from __future__ import annotations

from typing import NamedTuple


class TrellisCode(NamedTuple):
    """A convolutional code of rate 1/2, systematic with feedback, by its parity-check polynomials.

    Parameters
    ----------
    states : int
        A power of two.
    feedback : int
        The polynomial of the bit that names the quantizer, h⁰.
    forward : int
        The polynomial of the codes' parities, h¹; a single term.
    """

    states: int
    feedback: int
    forward: int


TRELLIS_CODES = {
    code.states: code
    for code in (
        TrellisCode(4, 0o5, 0o2),
        TrellisCode(8, 0o13, 0o4),
        TrellisCode(16, 0o23, 0o4),
        TrellisCode(32, 0o45, 0o10),
    )
}
