"""The machines of trellis-coded quantization: which quantizer comes next, told by past codes.

A machine has 2**v states. The low bit q of its state names the quantizer of the next element; the
parity z of the code that the element gets moves it on: from state s to

    s >> 1  ^  q · (feedback >> 1)  ^  z · (forward >> 1).

Element i of an array drives machine i mod 64: so many machines, all in state 0 at first, are
stepped at once in vector registers. ``kernels/machines.h`` has the same polynomials.

References
----------
Codes: Ungerboeck 1982, "Channel coding with multilevel/phase signals", for amplitude modulation.
"""

from __future__ import annotations

from typing import NamedTuple


class Machine(NamedTuple):
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


MACHINES = {
    machine.states: machine
    for machine in (
        Machine(4, 0o5, 0o2),
        Machine(8, 0o13, 0o4),
        Machine(16, 0o23, 0o4),
        Machine(32, 0o45, 0o10),
    )
}
