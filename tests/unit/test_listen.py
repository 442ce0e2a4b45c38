"""Where a server listens."""

from __future__ import annotations

import asyncio
import socket

from holdfast.api.listen import listen


def test_an_answer_is_sent_at_once_also_its_second_part() -> None:
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


def test_a_port_that_is_taken_leads_to_the_next() -> None:
    with listen("127.0.0.1", 0) as first, listen("127.0.0.1", first.getsockname()[1]) as second:
        assert second.getsockname()[1] > first.getsockname()[1]
