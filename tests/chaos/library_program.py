"""A program of a user that imports the library: `python -m tests.chaos.library_program WHERE`.

It reads one operation as JSON from each line of its input, and prints what came of it. A run may kill it at any time.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from holdfast import File, Holdfast
from holdfast.errors import HoldfastError

COMMIT_UNKNOWN = "commit_unknown"


def operate(library: Holdfast, call: dict[str, Any]) -> dict[str, Any]:
    """Carry out one operation and return its result."""
    name, base, document = call["name"], call["base"], call.get("document", 0)
    if name == "put":
        file = File(name=f"{call['key']}.md", content=call["text"].encode())
        (reply,) = library.documents.add(base, [file], on_duplicate="replace")
        return {"replies": [_reply(reply)]}
    if name == "chunks":
        return {"items": [_passage(one) for one in library.documents.chunks(base, document, limit=500).items]}
    if name == "search":
        return {"hits": [_passage(one) for one in library.search(base, call["query"], limit=50)]}
    return _reply(getattr(library.documents, name)(base, document))


def _reply(reply: Any) -> dict[str, Any]:
    fields = ("verdict", "reason", "document", "job", "generation")
    return {name: getattr(reply, name) for name in fields}


def _passage(one: Any) -> dict[str, Any]:
    return {"document": one.document, "generation": one.generation, "text": one.text}


def main(where: str) -> None:
    with Holdfast(where) as library:
        for line in sys.stdin:
            try:
                told: dict[str, Any] = {"outcome": "ok", "content": operate(library, json.loads(line))}
            except HoldfastError as error:
                outcome = "unknown" if error.code in (COMMIT_UNKNOWN, "internal_error") else "fail"
                told = {"outcome": outcome, "code": error.code}
            sys.stdout.write(json.dumps(told | {"now": time.time()}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
