"""Which of two quantizers an element has, told by the integers before it.

A machine has 2, 3, 4 or 5 bits of state, all 0 at first. The low bit q of its state names the
quantizer of the next element; the parity z of the integer that the element gets moves it on: from
state s to ``s >> 1 ^ q * (feedback >> 1) ^ z * (forward >> 1)``. Element i of an array, in
row-major order, drives machine i mod 64.
"""

LANES = 64
POLYNOMIALS = {4: (0o5, 0o2), 8: (0o13, 0o4), 16: (0o23, 0o4), 32: (0o45, 0o10)}


class Machines:
    """The machines of one array: so many states, or 0 for none, and quantizer 0 always."""

    def __init__(self, states: int) -> None:
        self.feedback, self.forward = POLYNOMIALS.get(states, (0, 0))
        self.states = [0] * LANES

    def quantizer(self, place: int) -> int:
        """Return the quantizer of the element at a place."""
        return self.states[place % LANES] & 1

    def move(self, place: int, value: int) -> None:
        """Move the machine of a place on by the integer there."""
        state = self.states[place % LANES]
        moved = state >> 1 ^ (state & 1) * (self.feedback >> 1)
        self.states[place % LANES] = moved ^ (value & 1) * (self.forward >> 1)
