"""Opens the port of a server. This is not in `server.py`, because MCP over HTTP needs nothing else of the API."""

from __future__ import annotations

import socket

from holdfast.errors import BadSettings

ACCEPT_BACKLOG = 1024  # connections that the kernel queues until the server accepts them
MAX_PORTS_TRIED = 20


def listen(host: str, port: int) -> socket.socket:
    """Listen on the port, or on the next free one; port 0 lets the system choose."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + MAX_PORTS_TRIED) if port else (0,):
        # asyncio sets TCP_NODELAY only if the protocol is named. Without it, the second part of a response waits up to
        # 40 ms for the acknowledgement of the first.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(ACCEPT_BACKLOG)
        except OSError as error:
            listening.close()
            reason = error
        else:
            return listening
    raise BadSettings("port_unavailable", host=host, port=port, detail=reason.strerror or reason)
