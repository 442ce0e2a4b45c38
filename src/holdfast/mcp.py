"""Tools for language models: the Model Context Protocol over stdio or HTTP.

The server always offers the tools that read, and with `writes` also the tools that add or delete. They call the
operations of the service, like every interface. An error of a tool is JSON with the same code as over HTTP, after
"Error executing tool".
"""

from __future__ import annotations

import json
import logging
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast import __version__
from holdfast.errors import Conflict, HoldfastError, Unauthorized
from holdfast.extras import importing_extra
from holdfast.messages import format_message
from holdfast.service.client import Holdfast

with importing_extra("mcp"):
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations
    from pydantic import TypeAdapter, ValidationError

    from holdfast.service.local import LocalService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import uvicorn

log = logging.getLogger("holdfast")

P = ParamSpec("P")
T = TypeVar("T")

INSTRUCTIONS = (
    "Holdfast has bases of documents. List the bases, search one of them, and open the hits: `document` and `chunk` of "
    "a hit identify its passage, and `read_passage` returns it with the text around it. Name the documents that "
    "support your answer."
)
READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MUTATING = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True)
DESTRUCTIVE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)
MAX_HITS = 20
MAX_READ_CHARS = 50_000
HTTP_PATH = "/mcp"


def run(
    where: str | Path | None = None,
    *,
    key: str | None = None,
    http: bool = False,
    writes: bool = False,
    port: int = 0,
) -> None:
    """Serve a library over stdio until the client disconnects, or over HTTP on 127.0.0.1, and print the address."""
    with Holdfast(where, key=key) as library:
        server = make_server(library, writes=writes)
        if not http:
            server.run("stdio")
            return
        from holdfast.api.listen import listen  # noqa: PLC0415 - only HTTP needs it

        with listen("127.0.0.1", port) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}{HTTP_PATH}"
            print(f"MCP at {address}", file=sys.stderr, flush=True)  # noqa: T201 - the output of a command
            make_http_server(server).run(sockets=[listening])


def make_http_server(server: MCPServer[Any], **config: Any) -> uvicorn.Server:
    """Return an HTTP server for the tools, with the connection limits and deadlines of the API server."""
    import uvicorn  # noqa: PLC0415 - only HTTP needs it

    from holdfast.api.connections import ConnectionLimits, make_limited_protocol  # noqa: PLC0415

    app = server.streamable_http_app(streamable_http_path=HTTP_PATH, host="127.0.0.1")
    protocol = make_limited_protocol(ConnectionLimits.for_process())
    return uvicorn.Server(uvicorn.Config(app, **{"http": protocol, "log_config": None, "access_log": False} | config))


def make_server(library: Holdfast, *, writes: bool = False) -> MCPServer[Any]:
    """Return an MCP server with the tools of a library; with `writes`, also the tools that change documents."""
    server = ToolServer("holdfast", instructions=INSTRUCTIONS, version=__version__)
    tools = McpTools(library)
    offered: dict[Callable[..., Any], ToolAnnotations] = dict.fromkeys(
        (tools.list_bases, tools.search, tools.read_document, tools.read_passage, tools.status), READ_ONLY
    )
    if writes:
        offered |= dict.fromkeys((tools.add_note, tools.add_url, tools.retry_document), MUTATING)
        offered[tools.delete_document] = DESTRUCTIVE
    for tool, kind in offered.items():
        server.add_tool(_report_errors(tool), name=tool.__name__, annotations=kind)
    return server


class ToolServer(MCPServer[Any]):
    """A server that reports invalid arguments with the code of HTTP."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.__cause__.errors()]
            message = format_message("problem.invalid_request", {"detail": "; ".join(wrong)})
            raise ToolError(f"Error executing tool {name}: {_error_json('invalid_request', message)}") from error


class McpTools:
    """The tools. Their docstrings are the descriptions that language models read."""

    def __init__(self, library: Holdfast) -> None:
        self._library = library

    def list_bases(self, context: Context[Any, Any]) -> list[dict[str, Any]]:
        """List the bases: collections of documents that are searched together.

        If `documents_is_exact` is false, the base has at least as many documents.
        """
        service = self._service_for(context)
        bases = [(base, service.bases.counts(base.name)) for base in service.bases.list()]
        return [
            {
                "name": base.name,
                "status": base.status,
                "documents": counts.documents,
                "documents_is_exact": not counts.more,
            }
            for base, counts in bases
        ]

    def search(self, base: str, query: str, context: Context[Any, Any], limit: int = 5) -> dict[str, Any]:
        """Search a base. `hits` are the passages that match best, each with its document, chunk and headings.

        `notices` lists the channels that could not be searched, and why.
        """
        hits = self._service_for(context).asking.search(base, query, limit=max(1, min(limit, MAX_HITS)))
        return {
            "hits": [_to_jsonable(hit) for hit in hits],
            "notices": [_to_jsonable(notice) for notice in hits.notices],
        }

    def read_document(
        self, base: str, document: int, context: Context[Any, Any], start: int = 0, length: int = 20_000
    ) -> dict[str, Any]:
        """Read the text of a document, or a part of it. `following` is the start of the next part."""
        length = max(1, min(length, MAX_READ_CHARS))
        return _to_jsonable(self._service_for(context).documents.text(base, document, start=start, length=length))

    def read_passage(self, base: str, document: int, chunk: int, context: Context[Any, Any]) -> dict[str, Any]:
        """Read the passage of a hit with the text around it."""
        return _to_jsonable(self._service_for(context).documents.passage(base, document, chunk))

    def status(self, base: str, document: int, context: Context[Any, Any]) -> dict[str, Any]:
        """Return the status of a document: whether search finds it, its progress, why it waits, and what failed."""
        return _to_jsonable(self._service_for(context).documents.get(base, document))

    def add_note(self, base: str, name: str, text: str, context: Context[Any, Any]) -> dict[str, Any]:
        """Add a text as a document. If the name exists, the setting `on_duplicate` of the base decides."""
        return _to_jsonable(self._service_for(context).documents.note(base, name, text))

    def add_url(self, base: str, address: str, context: Context[Any, Any]) -> dict[str, Any]:
        """Add a web page. Holdfast fetches and indexes it."""
        return _to_jsonable(self._service_for(context).documents.url(base, address))

    def retry_document(self, base: str, document: int, context: Context[Any, Any]) -> dict[str, Any]:
        """Build what failed or is missing in a document. If the document is being deleted, retry the clean-up."""
        return _to_jsonable(self._service_for(context).documents.retry(base, document))

    def delete_document(self, base: str, document: int, context: Context[Any, Any]) -> dict[str, Any]:
        """Delete a document, or a container with everything in it. This cannot be undone."""
        return _to_jsonable(self._service_for(context).documents.delete(base, document))

    def _service_for(self, context: Context[Any, Any]) -> Any:
        """Return the operations with the rights of the caller: over HTTP, the rights of its key if keys exist."""
        request = context.request_context.request
        library = self._library.local
        if request is None or library is None or not library.keys.any_created():
            return self._library
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("key_required")
        key = library.keys.verify(secret.strip())
        if key is None:
            raise Unauthorized("key_not_valid")
        return LocalService(library, key.caller)


def _report_errors(tool: Callable[P, T]) -> Callable[P, T]:
    """Return a tool that reports errors as JSON with the codes of `holdfast.errors`."""

    @wraps(tool)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return tool(*args, **kwargs)
        except HoldfastError as error:
            raise ToolError(_error_json(error.code, str(error), **_error_details(error))) from error
        except Exception as error:
            log.exception("mcp.failed tool=%s", tool.__name__)
            failure = HoldfastError("tool_failed", tool=tool.__name__)
            raise ToolError(_error_json(failure.code, str(failure), **_error_details(failure))) from error

    return call


def _error_details(error: HoldfastError) -> dict[str, Any]:
    details: dict[str, Any] = {"subcode": error.subcode} if error.subcode else {}
    if isinstance(error, Conflict):
        details |= {"verdict": error.verdict, "status": error.status, "document": error.document, "job": error.job}
    return details


def _error_json(code: str, message: str, **details: Any) -> str:
    return json.dumps({"code": code, "message": message, **details}, ensure_ascii=False)


def _to_jsonable(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = TypeAdapter(type(value)).dump_python(value, mode="json")
    return plain
