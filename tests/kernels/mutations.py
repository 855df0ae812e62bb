"""Ways to damage bytes, in place or to another length; all from one generator of random numbers."""

from random import Random

EXTREMES = [
    value.to_bytes(size, "little")
    for size in (1, 2, 4, 8)
    for bits in (7, 8, 15, 16, 31, 32, 63, 64)
    for value in {(1 << bits) - 1, 1 << (bits - 1), 0, 1}
    if value < 1 << (8 * size)
]
HEAD = 24  # bytes that more damage goes to: they say how long everything is


def damage(data: bytearray, random: Random) -> None:
    """Change some bits or bytes."""
    size = len(data)
    if not size:
        return
    kind = random.random()
    changes = 1 if kind < 0.6 else 2 + int(6 * random.random())
    for _ in range(changes):
        near = random.random() < 0.4
        place = int(random.random() * (min(size, HEAD) if near else size))
        what = random.random()
        if what < 0.5:
            data[place] ^= 1 << int(8 * random.random())
        elif what < 0.75:
            data[place] = int(256 * random.random())
        else:
            value = EXTREMES[int(len(EXTREMES) * random.random())][: size - place]
            data[place : place + len(value)] = value
    if kind > 0.95:  # noise from somewhere on
        place = int(random.random() * size)
        data[place:] = random.randbytes(size - place)


def damage_length(data: bytearray, other: bytes, random: Random) -> None:
    """Cut the bytes, add to them, or go on with those of another payload."""
    size = len(data)
    what = random.random()
    place = int(random.random() * (size + 1))
    if what < 0.4:
        del data[place:]
    elif what < 0.5:
        del data[: min(place, 8)]
    elif what < 0.7:
        data += random.randbytes(1 + int(32 * random.random()))
    elif what < 0.8:
        data += bytes(1 + int(32 * random.random()))
    else:
        data[place:] = other[place:]
