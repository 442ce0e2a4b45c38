"""The server disables Nagle's algorithm on its connections and finds a free port."""

from __future__ import annotations

import asyncio
import socket

import pytest

from holdfast.api.listen import listen
from holdfast.errors import BadSettings


def test_the_server_sends_every_part_of_an_answer_without_delay() -> None:
    async def accepted() -> int:
        met: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

        class Meeting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                met.set_result(transport)

        listening = listen("127.0.0.1", 0)
        server = await asyncio.get_running_loop().create_server(Meeting, sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        transport = await met
        told: int = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        transport.close()
        server.close()
        return told

    assert asyncio.run(accepted()) == 1


def test_if_a_port_is_taken_the_server_uses_a_higher_one() -> None:
    with listen("127.0.0.1", 0) as first, listen("127.0.0.1", first.getsockname()[1]) as second:
        assert second.getsockname()[1] > first.getsockname()[1]


def test_an_address_of_another_machine_is_refused_with_the_settings_to_change() -> None:
    with pytest.raises(BadSettings) as refused:
        listen("192.0.2.1", 0)  # TEST-NET-1
    assert refused.value.subcode == "port_unavailable"
    assert str(refused.value) == (
        "The server cannot listen on port 0 of '192.0.2.1': Cannot assign requested address. Choose another address "
        "with HOLDFAST_HOST, or another port with HOLDFAST_PORT."
    )
