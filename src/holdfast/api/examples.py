"""What people would send to each operation and get from it, for the description of the API.

All examples speak of one small base. Answers are made of the values that the routes return, so they cannot have other
fields; the tests check them against the schemas beside which they stand, and send what is to be sent to a server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_core import to_jsonable_python

from holdfast.api.asking import Found
from holdfast.api.documents import Replies
from holdfast.api.jobs import Paused
from holdfast.api.session import Session
from holdfast.api.system import About, Setting
from holdfast.front import values as v
from holdfast.front.asking import MEANING

JSON = "application/json"

JOB = "18b7f0c2a4d93e5f0c1d2e3f4a5b6c7d"
AT = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
LATER = AT + timedelta(seconds=2)
NAME = "leave.md"
TEXT = "# Parental leave\n\nParental leave is twelve weeks. Ada Byron signed the charter of Grey Island.\n"
SIGNED = "Ada Byron signed the charter of Grey Island."

# ---------------------------------------------------------------- what is sent

PARAMETERS: dict[str, Any] = {
    "base": "handbook",
    "document": 1,
    "chunk": 1,
    "job": JOB,
    "webhook": 1,
    "delivery": 1,
    "action": "reindex",
    "if-match": '"g1"',
    "name": NAME,
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
    "hours": 48,
    "topic": ["job", "document.deleted"],
    "after": "0-812",
    "fix": False,
    "deep": True,
}
# Where the same name stands for something else.
OWN_PARAMETERS: dict[str, dict[str, Any]] = {
    "list_documents": {"cursor": "name-down/1/leave.md", "parent": 0},
    "list_chunks": {"cursor": "1.19"},
    "get_entity": {"key": "ada byron"},
    "list_entities": {"text": "ada"},
    "restore_base": {"name": "handbook-2"},
    "list_jobs": {"cursor": f"ended/1794823202000000/{JOB}"},
    "list_events": {"cursor": "0-812"},
    "read_on": {"cursor": "0-812"},
    "revoke_key": {"key": 1},
}
BODIES: dict[str, list[Any]] = {
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

# ---------------------------------------------------------------- what is answered

BASE = v.Base(
    id=1,
    name="handbook",
    status=v.BaseStatus.READY,
    problem=None,
    settings=v.BaseSettings(indexes=("vector", "fulltext", "graph")),
    not_enabled={},
)
REPLY = v.Reply(
    verdict=v.Verdict.ACCEPTED,
    reason="content_changed",
    message="Accepted.",
    name=NAME,
    document=1,
    job=JOB,
    status=v.Status.QUEUED,
    generation=1,
)
REPLIES = Replies(replies=[REPLY])
SUMMARY = v.Summary(found=12, accepted=11, answers={"accepted: retry": 11, "joined: already_in_progress": 1})
COUNTS = v.Counts(
    documents=12,
    by_status={v.Status.SUCCESS: 11, v.Status.FAILED: 1},
    containers=1,
    bytes=184_320,
)
DOCUMENT = v.Document(
    id=1,
    name=NAME,
    kind=v.Kind.FILE,
    status=v.Status.SUCCESS,
    searchable=True,
    generation=1,
    built=1,
    base="handbook",
    parent=None,
    size=len(TEXT),
    sha256="3f0a7c9d5be1428e90d1b6c44e0f7a62c5d81e9b3a274f60817cd25be94a1f03",
    source=None,
    every=None,
    metadata={"team": "people"},
    created_at=AT,
    changed_at=AT,
    chunks=1,
    indexes=[
        v.Index(
            kind="fulltext",
            state=v.SlotState.READY,
            wanted=1,
            built=1,
            attempts=1,
            attempts_max=4,
            chunks=1,
            missing=0,
            made_by="words 1",
            queued_at=AT,
            claimed_at=AT,
        )
    ],
    jobs=[JOB],
)
STANDING = v.Standing(
    id=1, name=NAME, kind=v.Kind.FILE, status=v.Status.SUCCESS, searchable=True, generation=1, built=1
)
PLACE = v.Place(
    document=1, name=NAME, chunk=1, generation=1, start=0, end=len(TEXT), headings=["Parental leave"], text=TEXT
)
HIT = v.Hit(
    document=1,
    name=NAME,
    chunk=1,
    generation=1,
    start=0,
    end=len(TEXT),
    headings=["Parental leave"],
    text=TEXT,
    rank=1,
    score=1.0,
    title="Parental leave",
    channels={"vector": v.Scored(score=0.72, rank=1), "fulltext": v.Scored(score=4.1, rank=1)},
)
CARD = v.Card(
    place=1,
    question="How long is parental leave?",
    answer="Twelve weeks.",
    document=1,
    name=NAME,
    chunk=1,
    headings=["Parental leave"],
    passage=TEXT,
)
ENDED = v.Job(
    id=JOB,
    base="handbook",
    document=1,
    name=NAME,
    subject="document",
    operation=v.Operation.CHANGE,
    cause="user",
    requester="reports",
    priority=5,
    state="success",
    outcome=v.Outcome.SUCCESS,
    generation=1,
    created_at=AT,
    finished_at=LATER,
    results={"content": {"state": "ready", "missing": 0}, "fulltext": {"state": "ready", "missing": 0}},
)
QUEUE = v.Queue(
    active={"queued": 3, "indexing": 1},
    ended={"success": 96, "failed": 4},
    window_seconds=86_400,
    per_hour=4.2,
    failure_rate=0.04,
    oldest_queued=AT,
    paused=False,
    paused_bases=[],
)
EVENT = v.Event(
    id="0-812",
    type="job.success",
    at=LATER,
    base=1,
    document=1,
    owner="1",
    kind=None,
    job=JOB,
    generation=1,
    data={"results": {"fulltext": {"state": "ready", "missing": 0}}, "status": "success"},
)
ADA = v.Entity(key="ada byron", label="Ada Byron", kind="person", documents=1)
ISLAND = v.Entity(key="grey island", label="Grey Island", kind="place", documents=1)
SPENT = v.Spent(kind="", texts=1, tokens_in=31, tokens_out=0, price=0.0000006, unpriced=0)
SAVED = v.Spent(kind="", texts=2, tokens_in=62, tokens_out=0, price=0.0000012, unpriced=0)
BY_KIND = {
    "kinds_spent": [v.Spent(kind="vector", texts=1, tokens_in=31, tokens_out=0, price=0.0000006, unpriced=0)],
    "kinds_saved": [v.Spent(kind="vector", texts=2, tokens_in=62, tokens_out=0, price=0.0000012, unpriced=0)],
}
KEY = v.Key(
    id=1,
    name="reports",
    prefix="_dDRYBvc",
    scope="read",
    bases=["handbook"],
    created_at=AT,
    expires_at=AT + timedelta(days=90),
    revoked_at=None,
    used_at=None,
)
WEBHOOK = v.Webhook(
    id=1,
    url="https://example.org/hook",
    types=["job.*"],
    bases=None,
    enabled=True,
    disabled_reason=None,
    failures=0,
    failing_since=None,
    created_at=AT,
    state="healthy",
    retry_at=None,
    waiting=0,
)
SIGNING = v.NewWebhook(webhook=WEBHOOK, secret="whsec_…")  # noqa: S106 - none
DELIVERY = v.Delivery(
    id=1,
    webhook=1,
    event="0-812",
    message="msg_0f3c5c1c2f4b4e0e9f7d6a5b4c3d2e1f",
    type="job.success",
    state="sent",
    attempts=1,
    status=204,
    reason=None,
    created_at=LATER,
    tried_at=LATER,
    next_at=None,
    ended_at=LATER,
)

ANSWERS: dict[str, Any] = {
    "list_bases": [BASE],
    "create_base": BASE,
    "get_base": BASE,
    "change_base": BASE,
    "delete_base": None,
    "clear_base": None,
    "repair_base": BASE,
    "test_providers": [
        v.Trial(
            role="embedding",
            provider="offline",
            model="wordllama/l2_supercat_256",
            ok=True,
            took_ms=0.4,
            message="This machine embeds by itself; nobody is asked.",
            code=None,
        )
    ],
    "count_documents": COUNTS,
    "read_usage": v.Balance(base="handbook", spent=SPENT, saved=SAVED, budget_tokens=1_000_000, **BY_KIND),
    "list_waiting": [
        v.Waiting(job=JOB, base="handbook", document=1, name=NAME, reasons=["It is the next of its kind."])
    ],
    "upload_files": REPLIES,
    "add_note": REPLIES,
    "add_source": REPLIES,
    "preview_folder": v.Preview(
        added=["travel.md"], changed=[NAME], removed=["old/leave.md"], unchanged=40, skipped={"hidden": 2}
    ),
    "list_documents": v.Page(items=[DOCUMENT], next_cursor="active/1/2", total=12),
    "read_statuses": [STANDING],
    "get_document": DOCUMENT,
    "read_text": v.Text(
        document=1, generation=1, title="Parental leave", start=0, length=len(TEXT), text=TEXT, following=None
    ),
    "list_chunks": v.Page(
        items=[
            v.Chunk(
                document=1,
                chunk=1,
                generation=1,
                ordinal=0,
                start=0,
                end=len(TEXT),
                tokens=24,
                headings=["Parental leave"],
                text=TEXT,
            )
        ]
    ),
    "read_passage": v.Passage(
        document=1,
        name=NAME,
        generation=1,
        chunk=1,
        start=0,
        end=len(TEXT),
        page=None,
        headings=["Parental leave"],
        before="",
        text=TEXT,
        after="",
    ),
    "list_document_entities": [v.Mentioned(key="ada byron", name="Ada Byron", kind="person", mentions=1)],
    "list_document_cards": v.Page(items=[CARD]),
    "list_document_missing": [
        v.Missing(
            index="vector",
            chunk=1,
            ordinal=0,
            start=0,
            end=len(TEXT),
            text=TEXT,
            problem=v.Problem(
                code="content_refused",
                message="The provider refuses this content by its policy. Change the content, or choose a provider "
                "that accepts it.",
                params={"status": "400", "provider_code": "content_filter"},
            ),
        )
    ],
    "read_document_usage": v.Cost(document=1, name=NAME, spent=SPENT, saved=SAVED, **BY_KIND),
    "read_document_history": [
        v.Happening(
            at=LATER, what="success", job=JOB, generation=1, operation=v.Operation.CHANGE, requester="", seconds=2.0
        ),
        v.Happening(at=AT, what="added"),
    ],
    "act_on_document": REPLY,
    "delete_document": v.Reply(
        verdict=v.Verdict.ACCEPTED,
        reason="delete",
        message="Accepted.",
        name=NAME,
        document=1,
        job=JOB,
        status=v.Status.DELETING,
        generation=2,
    ),
    "act_on_documents": SUMMARY,
    "search": Found(hits=[HIT], took_ms=12.5),
    "ask": v.Answer(
        outcome=v.AnswerOutcome.ANSWERED,
        message=MEANING[v.AnswerOutcome.ANSWERED],
        mode=v.Mode.MIX,
        text="Ada Byron signed it [1].",
        citations=[
            v.Citation(
                number=1,
                document=1,
                name=NAME,
                chunk=1,
                generation=1,
                start=TEXT.index(SIGNED),
                end=TEXT.index(SIGNED) + len(SIGNED),
                quote=SIGNED,
            )
        ],
        context=[PLACE],
        facts=["Ada Byron signed the charter of Grey Island."],
    ),
    "list_entities": [ADA, ISLAND],
    "get_entity": v.Portrait(
        entity=ADA,
        description="Signed the charter of Grey Island.",
        merged=False,
        relations=[
            v.Fact(
                keys=("ada byron", "grey island"),
                label="Ada Byron, Grey Island",
                kind="signed",
                text=SIGNED,
                chunks=(1,),
                merged=False,
            )
        ],
        mentions=[v.Mention(document=1, name=NAME, chunk=1)],
        neighbours=[v.Neighbour(entity=ISLAND, together=1, labels=("signed",))],
    ),
    "draw_graph": v.GraphView(
        nodes=[
            v.Node(key="ada byron", name="Ada Byron", kind="person", documents=1, mentions=1),
            v.Node(key="grey island", name="Grey Island", kind="place", documents=1, mentions=1),
        ],
        edges=[v.Edge(source="ada byron", target="grey island", weight=1, kind="signed")],
        cut=False,
    ),
    "list_evidence": [PLACE],
    "list_cards": v.Page(items=[CARD]),
    "read_cards": v.Cards(status=v.Status.SUCCESS, generation=1, cards=1, job=None, progress=None, error=None),
    "generate_cards": v.Reply(
        verdict=v.Verdict.ACCEPTED,
        reason="force",
        message="Accepted.",
        job=JOB,
        status=v.Status.QUEUED,
        generation=1,
    ),
    "cancel_cards": v.Reply(
        verdict=v.Verdict.ACCEPTED, reason="cancel", message="Accepted.", job=JOB, status=v.Status.NOT_INDEXED
    ),
    "export_cards": [
        {
            "question": CARD.question,
            "answer": CARD.answer,
            "document": NAME,
            "headings": ["Parental leave"],
            "passage": TEXT,
            "tags": [],
        }
    ],
    "restore_base": v.Restored(base="handbook-2", documents=12, memos=340, skipped=0),
    "list_jobs": v.Page(items=[ENDED], next_cursor=f"ended/1794823202000000/{JOB}", total=100),
    "read_queue": QUEUE,
    "get_job": ENDED,
    "cancel_job": REPLY,
    "retry_job": REPLY,
    "prioritise_job": REPLY,
    "cancel_all_jobs": v.Summary(found=4, accepted=0, answers={}, dry_run=True),
    "retry_all_failed": SUMMARY,
    "pause_queue": Paused(changed=True),
    "resume_queue": Paused(changed=True),
    "list_events": v.Page(items=[EVENT], next_cursor="0-812"),
    "read_on": v.Page(items=[EVENT], next_cursor="0-812"),
    "list_duplicates": v.Page(
        items=[
            v.Refusal(
                id=1,
                at=AT,
                base="handbook",
                document=1,
                subject="1",
                operation=v.Operation.CHANGE,
                verdict="joined",
                reason="same_content",
                job=JOB,
                requester="reports",
                cost=0.0,
            )
        ]
    ),
    "count_duplicates": [v.Refused(base="handbook", requester="reports", reason="same_content", count=3, cost=0.0)],
    "list_keys": [KEY],
    "create_key": v.NewKey(key=KEY, secret="hf_…"),  # noqa: S106 - none
    "revoke_key": KEY,
    "list_webhooks": [WEBHOOK],
    "create_webhook": SIGNING,
    "get_webhook": WEBHOOK,
    "enable_webhook": WEBHOOK,
    "disable_webhook": WEBHOOK,
    "rotate_secret": SIGNING,
    "list_deliveries": v.Page(items=[DELIVERY]),
    "redeliver_event": DELIVERY,
    "read_session": Session(needs_key=True, signed_in=True, scope="read", name="reports"),
    "read_overview": v.Overview(
        bases=1,
        documents=COUNTS,
        queue=QUEUE,
        workers=2,
        working=1,
        tokens_spent=31,
        tokens_saved=62,
        price_spent=0.0000006,
        price_saved=0.0000012,
        duplicates=3,
        series=[v.Bucket(at=AT, success=4, failed=1)],
    ),
    "read_about": About(
        version="0.1.0",
        scope="admin",
        bases_limited=False,
        settings=[Setting(name="workers", value=2, meaning="worker processes")],
    ),
    "run_doctor": [
        v.Finding(
            code="file_left",
            where="files",
            count=2,
            sentence="2 files belong to no document, and no upload is writing them. Fix removes them.",
            examples=["3f/3f0a7c9d5be1"],
            fixable=True,
            fixed=0,
        )
    ],
}


def illustrate(operation: dict[str, Any]) -> None:
    """Add to the description of an operation what people would send, and what they would get."""
    name = operation["operationId"]
    known = PARAMETERS | OWN_PARAMETERS.get(name, {})
    for one in operation.get("parameters", ()):
        if one["name"] in known:
            one["example"] = known[one["name"]]
    if name in BODIES:
        body = operation["requestBody"]["content"][JSON]
        body["examples"] = {str(number): {"value": one} for number, one in enumerate(BODIES[name], 1)}
    for code, answer in operation["responses"].items():
        if code.startswith("2") and name in ANSWERS:
            answer["content"][JSON]["example"] = to_jsonable_python(ANSWERS[name])
