"""Damages of the bytes of a file: flipped bits, and cuts."""

import random
from collections.abc import Iterator


def damages(content: bytes, bits: int, cuts: int) -> Iterator[bytes]:
    """Yield copies of ``content``, each with one flipped bit, or cut to a shorter length.

    Args:
        bits: Number of flipped bits, at most; the first and the last 1,024 bits are added.
        cuts: Number of lengths, at most; 0 and all but the last byte are added.
    """
    draw, whole = random.Random(0), 8 * len(content)
    for bit in {*range(1024), *range(whole - 1024, whole), *draw.sample(range(whole), min(bits, whole))}:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    for length in {0, len(content) - 1, *draw.sample(range(len(content)), min(cuts, len(content)))}:
        yield content[:length]
