"""Adds examples to the OpenAPI description: a request to each operation, and its response.

The requests are in this module, and the tests send each of them to a server. The responses are generated from their
schemas, so they always have the right fields. The value of a field is `FIELD_VALUES["Type.field"]` or
`FIELD_VALUES["field"]`, else the default of its schema. All values describe one small base.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

JSON_TYPE = "application/json"

JOB_ID = "18b7f0c2a4d93e5f0c1d2e3f4a5b6c7d"
STARTED_AT = datetime(2026, 11, 16, 10, 0, tzinfo=UTC).isoformat()
ENDED_AT = datetime(2026, 11, 16, 10, 0, 2, tzinfo=UTC).isoformat()
DOCUMENT_NAME = "leave.md"
DOCUMENT_TEXT = "# Parental leave\n\nParental leave is twelve weeks. Ada Byron signed the charter of Grey Island.\n"
QUOTE = "Ada Byron signed the charter of Grey Island."

PARAMETERS: dict[str, Any] = {
    "base": "handbook",
    "document": 1,
    "chunk": 1,
    "job": JOB_ID,
    "webhook": 1,
    "delivery": 1,
    "action": "reindex",
    "if-match": '"g1"',
    "Range": "bytes=0-99",
    "If-Range": f'"{"0" * 64}"',
    "name": DOCUMENT_NAME,
    "parent": 2,
    "on_duplicate": "replace",
    "index": True,
    "priority": 3,
    "status": ["failed", "degraded"],
    "kind": ["file"],
    "state": ["queued", "failed"],
    "text": "leave",
    "deleting": False,
    "order": "name",
    "reverse": True,
    "page": 1,
    "page_size": 50,
    "limit": 20,
    "cursor": "20",
    "wait": 30,
    "start": 0,
    "length": 2000,
    "around": "ada byron",
    "source": "ada byron",
    "target": "grey island",
    "depth": 2,
    "form": "anki",
    "memos": False,
    "requester": "reports",
    "longer_than": 1800,
    "hours": 48,
    "topic": ["job", "document.deleted"],
    "after": "0-812",
    "fix": False,
    "deep": True,
    "exact": True,
}
# Values for parameters that mean something else in these operations.
OPERATION_PARAMETERS: dict[str, dict[str, Any]] = {
    "list_documents": {"cursor": "name-down/1/leave.md", "parent": 0},
    "list_chunks": {"cursor": "1.19"},
    "get_entity": {"key": "ada byron"},
    "list_entities": {"text": "ada"},
    "restore_base": {"name": "handbook-2"},
    "list_jobs": {"cursor": f"running/1794823202000000/{JOB_ID}"},
    "list_events": {"cursor": "0-812"},
    "list_events_after": {"cursor": "0-812"},
    "revoke_key": {"key": 1},
}
REQUEST_BODIES: dict[str, list[Any]] = {
    "create_base": [{"name": "handbook", "indexes": ["vector", "fulltext", "graph"]}],
    "change_base": [{"chunk_size": 256, "languages": ["en"]}, {"name": "guide"}],
    "add_note": [{"name": "holidays", "text": "The office is closed on 24 December.", "metadata": {"team": "people"}}],
    "add_source": [
        {"kind": "url", "source": "https://example.org/", "every": 86_400},
        {"kind": "sitemap", "source": "https://example.org/sitemap.xml"},
    ],
    "preview_folder": [{"path": "/srv/handbook"}],
    "read_statuses": [{"documents": [1, 2]}],
    "act_on_documents": [{"documents": [1, 2]}, {"filter": {"status": ["failed"]}, "dry_run": True}],
    "search": [{"query": "how long is parental leave", "limit": 5}],
    "ask": [{"question": "Who signed the charter?"}],
    "ask_streaming": [{"question": "Who signed the charter?", "mode": "naive"}],
    "prioritise_job": [{"priority": 0}],
    "cancel_all_jobs": [{"base": "handbook", "dry_run": True}],
    "retry_all_failed": [{"base": "handbook", "degraded": True}],
    "pause_queue": [{"base": "handbook", "stop": True}],
    "resume_queue": [{"base": "handbook"}],
    "create_key": [{"name": "reports", "scope": "read", "bases": ["handbook"], "days": 90}],
    "create_webhook": [{"url": "https://example.org/hook", "types": ["job.*"]}],
    "sign_in": [{"key": "hf_…"}],
}

RESULT: dict[str, Any] = {
    "state": "ready", "missing": 0, "attempts": 1, "cpu_ms": 2.1, "peak_kb": 141_304, "ran_ms": 2.4, "waited_ms": 3,
    "written": 1, "kept": 9, "removed": 1,
}  # fmt: skip
FIELD_VALUES: dict[str, Any] = {
    "About.scope": "admin",
    "answer": "Twelve weeks.",
    "Answer.message": "The answer is supported by the documents.",
    "Answer.mode": "mix",
    "Answer.text": "Ada Byron signed it [1].",
    "attempts_max": 4,
    "base": "handbook",
    "Base.name": "handbook",
    "bases": ["handbook"],
    "bases_limited": False,
    "OutcomeBucket.success": 4,
    "budget_tokens": 1_000_000,
    "by_status": {"success": 11, "failed": 1},
    "bytes": 184_320,
    "CardSetStatus.job": None,
    "cause": "user",
    "channels": {"vector": {"score": 0.72, "rank": 1}, "fulltext": {"score": 4.1, "rank": 1}},
    "chunks": 1,
    "Citation.end": DOCUMENT_TEXT.index(QUOTE) + len(QUOTE),
    "Citation.start": DOCUMENT_TEXT.index(QUOTE),
    "claimed_at": STARTED_AT,
    "code": "content_refused",
    "cost": 0.0,
    "DocumentCounts.documents": 12,
    "cut": False,
    "data": {"status": "success", "results": {"fulltext": RESULT}},
    "Delivery.message": "msg_0f3c5c1c2f4b4e0e9f7d6a5b4c3d2e1f",
    "Delivery.reason": None,
    "Delivery.state": "sent",
    "Delivery.status": 204,
    "description": "Signed the charter of Grey Island.",
    "document": 1,
    "Document.job": None,
    "Document.source": None,
    "Edge.kind": "signed",
    "end": len(DOCUMENT_TEXT),
    "ended_at": ENDED_AT,
    "event": "0-812",
    "Event.base": 1,
    "Event.id": "0-812",
    "Event.kind": None,
    "expires_at": "2027-02-14T10:00:00+00:00",
    "Fact.kind": "signed",
    "Fact.label": "Ada Byron, Grey Island",
    "Fact.text": QUOTE,
    "facts": [QUOTE],
    "failure_rate": 0.04,
    "failures": 0,
    "ErasureStage.obstacle": "reader",
    "ErasureStage.sentence": "A program keeps a read transaction open, so the write-ahead log cannot be truncated. "
    "Wait until it has ended, or close that program.",
    "Finding.code": "file_left",
    "Finding.count": 2,
    "Finding.examples": ["3f/3f0a7c9d5be1"],
    "Finding.sentence": "2 files belong to no document, and no upload is writing them. The repair removes them.",
    "Finding.params": {"count": "2"},
    "Finding.where": "files",
    "finished_at": ENDED_AT,
    "fixed": 0,
    "generation": 1,
    "HistoryEntry.kind": None,
    "headings": ["Parental leave"],
    "index": "vector",
    "IndexStatus.kind": "fulltext",
    "IndexStatus.state": "ready",
    "job": JOB_ID,
    "Job.id": JOB_ID,
    "Job.outcome": "success",
    "Job.priority": 5,
    "Job.state": "success",
    "jobs": [JOB_ID],
    "key": "ada byron",
    "ApiKey.name": "reports",
    "keys": ["ada byron", "grey island"],
    "kind": "person",
    "label": "Ada Byron",
    "labels": ["signed"],
    "length": len(DOCUMENT_TEXT),
    "made_by": "words 1",
    "WebhookSecretResponse.secret": "whsec_…",
    "meaning": "worker processes",
    "DocumentEntity.name": "Ada Byron",
    "merged": False,
    "message": "Accepted.",
    "metadata": {"team": "people"},
    "missing": 0,
    "name": DOCUMENT_NAME,
    "Neighbour.entity": {"key": "grey island", "label": "Grey Island", "kind": "place", "documents": 1},
    "Node.name": "Ada Byron",
    "notices": [],
    "oldest_queued": STARTED_AT,
    "ordinal": 0,
    "owner": "1",
    "passage": DOCUMENT_TEXT,
    "PassageInContext.after": "",
    "PassageInContext.before": "",
    "paused": False,
    "paused_bases": [],
    "per_hour": 4.2,
    "prefix": "_dDRYBvc",
    "SyncPreview.added": ["travel.md"],
    "SyncPreview.changed": [DOCUMENT_NAME],
    "SyncPreview.removed": ["old/leave.md"],
    "price": 0.0000006,
    "price_saved": 0.0000012,
    "price_spent": 0.0000006,
    "Problem.message": "The provider refused this content. Change the content, or choose another provider.",
    "provider": "offline",
    "question": "How long is parental leave?",
    "QueueStats.active": {"queued": 3, "indexing": 1},
    "QueueStats.ended": {"success": 96, "failed": 4},
    "queued_at": STARTED_AT,
    "quote": QUOTE,
    "reason": "content_changed",
    "reasons": ["It is the next in the queue."],
    "RefusedRequest.reason": "same_content",
    "RefusedRequest.verdict": "joined",
    "RefusalCount.reason": "same_content",
    "Reply.status": "queued",
    "requester": "reports",
    "RestoredBase.base": "handbook-2",
    "results": {"content": RESULT, "fulltext": RESULT},
    "role": "embedding",
    "scope": "read",
    "seconds": 2.0,
    "secret": "hf_…",
    "Session.name": "reports",
    "Setting.name": "workers",
    "Setting.value": 2,
    "sha256": "3f0a7c9d5be1428e90d1b6c44e0f7a62c5d81e9b3a274f60817cd25be94a1f03",
    "size": len(DOCUMENT_TEXT),
    "skipped": 0,
    "source": "ada byron",
    "UsageTotal.kind": "vector",
    "DocumentStatus.job": None,
    "start": 0,
    "status": "success",
    "subject": "document",
    "BulkSummary.accepted": 11,
    "BulkSummary.answers": {"accepted: retry": 11, "joined: already_in_progress": 1},
    "BulkSummary.found": 12,
    "target": "grey island",
    "text": DOCUMENT_TEXT,
    "title": "Parental leave",
    "tokens": 24,
    "tokens_in": 31,
    "tokens_out": 0,
    "tokens_saved": 62,
    "tokens_spent": 31,
    "took_ms": 12.5,
    "ProviderTestResult.code": None,
    "ProviderTestResult.message": "This machine computes the embeddings itself.",
    "ProviderTestResult.params": {},
    "ProviderTestResult.model": "wordllama/l2_supercat_256",
    "tried_at": ENDED_AT,
    "type": "job.success",
    "types": ["job.*"],
    "unpriced": 0,
    "url": "https://example.org/hook",
    "verdict": "accepted",
    "version": "0.1.0",
    "waiting_for": [],
    "what": "success",
    "window_seconds": 86_400,
}
# Responses whose schema has no fields.
OPERATION_RESPONSES: dict[str, Any] = {
    "export_cards": [{"question": "How long is parental leave?", "answer": "Twelve weeks.", "document": DOCUMENT_NAME}],
}

PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict
}  # fmt: skip
DEFAULTS_BY_TYPE: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True}


def add_examples(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add examples to the description of an operation; `schemas` are the components of the description."""
    name = operation["operationId"]
    known = PARAMETERS | OPERATION_PARAMETERS.get(name, {})
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in known:
            parameter["example"] = known[parameter["name"]]
    if name in REQUEST_BODIES:
        body = operation["requestBody"]["content"][JSON_TYPE]
        body["examples"] = {str(number): {"value": value} for number, value in enumerate(REQUEST_BODIES[name], 1)}
    for code, response in operation["responses"].items():
        if code.startswith("2") and JSON_TYPE in response.get("content", {}):
            content = response["content"][JSON_TYPE]
            content["example"] = OPERATION_RESPONSES.get(name) or _make_example(content["schema"], schemas)


def _make_example(schema: dict[str, Any], schemas: dict[str, Any], key: str = "") -> Any:
    """Return a value of this schema; `key` is `Type.field`."""
    for known in (key, key.rpartition(".")[2]):
        if known in FIELD_VALUES and _fits(FIELD_VALUES[known], schema, schemas):
            return FIELD_VALUES[known]
    if "$ref" in schema:
        kind = schema["$ref"].rpartition("/")[2]
        return _make_example(schemas[kind], schemas, kind)
    if "default" in schema:
        return schema["default"]
    if "anyOf" in schema:
        return None if {"type": "null"} in schema["anyOf"] else _make_example(schema["anyOf"][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _make_example(field, schemas, f"{key}.{name}") for name, field in fields.items()}
        case "array":
            return [_make_example(schema["items"], schemas, key)]
        case "string" if schema.get("format") == "date-time":
            return STARTED_AT
        case kind:
            return DEFAULTS_BY_TYPE.get(kind or "")


def _fits(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    if "$ref" in schema:
        return _fits(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return any(_fits(value, choice, schemas) for choice in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema.get("type")
    if kind == "array":
        return isinstance(value, list) and all(_fits(item, schema["items"], schemas) for item in value)
    if kind in ("null", None):
        return value is None or kind is None
    return isinstance(value, PYTHON_TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)
