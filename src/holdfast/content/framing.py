"""The protocol between parent and sandboxed child: frames of an eight-byte length and that many bytes.

Nothing is pickled, because a hostile file may control what the child sends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket

LENGTH_BYTES = 8


class OverlongFrame(Exception):
    """The other side announced more than it may send."""


def send(channel: socket, frame: bytes) -> None:
    channel.sendall(len(frame).to_bytes(LENGTH_BYTES))
    channel.sendall(frame)


def receive(channel: socket, most: int, deadline: float | None = None) -> bytearray:
    """Receive one frame of at most `most` bytes until the monotonic `deadline`; EOFError if the channel was closed."""
    length = int.from_bytes(_receive_exactly(channel, LENGTH_BYTES, deadline))
    if length > most:
        raise OverlongFrame
    return _receive_exactly(channel, length, deadline)


def _receive_exactly(channel: socket, count: int, deadline: float | None) -> bytearray:
    frame = bytearray(count)
    rest = memoryview(frame)
    while rest:
        channel.settimeout(None if deadline is None else _seconds_left(deadline))
        got = channel.recv_into(rest)
        if not got:
            raise EOFError
        rest = rest[got:]
    return frame


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
