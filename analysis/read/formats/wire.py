"""TensorBoard's record chain and protocol-buffer messages, as bytes: no schema, no library."""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_LENGTH = struct.Struct("<Q")
LARGEST_RECORD = 1 << 26
HEAD, FOOT = 12, 4


def records(data: bytes) -> Iterator[tuple[int, int]]:
    """The (start, end) of each whole record's body; what is cut short is left."""
    at, size = 0, len(data)
    while at + HEAD <= size:
        (length,) = _LENGTH.unpack_from(data, at)
        start, end = at + HEAD, at + HEAD + length
        if length > LARGEST_RECORD or end + FOOT > size:
            return
        yield start, end
        at = end + FOOT


def first_damaged(data: bytes, places: Sequence[tuple[int, int]]) -> int:
    """The index of the first record whose checksum is wrong; their number where all are right.

    Checksums (CRC-32C) are taken of all records of one length at once, byte by byte.
    """
    table, raw = _table(), np.frombuffer(data, dtype=np.uint8)
    bounds = np.array(places, dtype=np.int64).reshape(-1, 2)
    lengths = bounds[:, 1] - bounds[:, 0]
    damaged = len(places)
    for length in np.unique(lengths):
        mine = np.flatnonzero(lengths == length)
        starts = bounds[mine, 0]
        state = np.full(len(mine), 0xFFFFFFFF, dtype=np.uint32)
        for offset in range(int(length)):
            state = table[(state ^ raw[starts + offset]) & 0xFF] ^ (state >> np.uint32(8))
        state ^= np.uint32(0xFFFFFFFF)
        masked = (state >> np.uint32(15) | state << np.uint32(17)) + np.uint32(0xA282EAD8)
        feet = raw[(starts + length)[:, None] + np.arange(FOOT)]
        wrong = np.flatnonzero(feet.view("<u4")[:, 0] != masked)
        damaged = min(damaged, int(mine[wrong[0]])) if len(wrong) else damaged
    return damaged


def _table() -> NDArray[np.uint32]:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ np.uint32(_POLYNOMIAL), values >> 1)
    return values.astype(np.uint32)


def fields(data: bytes) -> Iterator[tuple[int, int, bytes | int]]:
    """The (number, place, value) of each field; IndexError or ValueError where it is damaged.

    The place is where a value of bytes begins.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, at, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > end:
            raise ValueError("cut short")
        yield key >> 3, at, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint")
