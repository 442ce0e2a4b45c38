"""The guarded service of examples/study_cards, which appends each response that it sends to a file.

RECORDED_RESPONSES is the path of that file. Each line is JSON with `status`, `content_type` and `body`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.study_cards import guarded

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

FILE = Path(os.environ["RECORDED_RESPONSES"])


async def api(scope: Scope, receive: Receive, send: Send) -> None:
    """Run the service. A response is in the file before its last byte is sent."""
    sent: dict[str, Any] = {"body": ""}

    async def record(message: Message) -> None:
        if message["type"] == "http.response.start":
            sent["status"] = message["status"]
            sent["content_type"] = dict(message["headers"])[b"content-type"].decode()
        elif message["type"] == "http.response.body":
            sent["body"] += message.get("body", b"").decode()
            if not message.get("more_body"):
                append(sent)
        await send(message)

    await guarded.api(scope, receive, record)


def append(response: dict[str, Any]) -> None:
    """Append a response in one write: the service has several processes."""
    with FILE.open("ab", buffering=0) as file:
        file.write(json.dumps(response).encode() + b"\n")
