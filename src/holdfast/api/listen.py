"""Opens the port of a server. It is apart from `server.py` because MCP over HTTP needs nothing else of the API."""

from __future__ import annotations

import socket

from holdfast.errors import BadSettings

ACCEPT_BACKLOG = 1024  # connections that the kernel keeps until they are accepted
MAX_PORTS_TRIED = 20  # ports that are tried, one after the other


def listen(host: str, port: int) -> socket.socket:
    """Listen on the port, or on the next free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + MAX_PORTS_TRIED) if port else (0,):
        # The protocol is named so that asyncio knows TCP: only then does it send an answer in two parts without waiting
        # for the other side to say that the first has come, which takes 40 ms.
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
    raise BadSettings(
        f"The server cannot listen on {host}, port {port} ({reason}); set HOLDFAST_HOST or HOLDFAST_PORT to another."
    )
