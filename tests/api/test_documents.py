"""Documents over HTTP: upload, index, read and delete them, and the errors of these requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import StoreReadOnly
from tests.support.http_site import API, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.support.http_site import HttpSite

WHALES = "# Whales\n\nThe blue whale eats krill in the cold sea.\n"


def test_an_upload_returns_its_job_and_is_found_after_indexing(site: HttpSite) -> None:
    answer = site.upload("whales.md", WHALES)
    assert answer.status_code == 202
    (reply,) = answer.json()["replies"]
    assert answer.headers["location"] == f"{API}/jobs/{reply['job']}"
    job = site.http.get(answer.headers["location"].removeprefix(API)).json()
    assert (job["state"], job["document"], job["base"]) == ("queued", reply["document"], "shelf")
    site.rig.work()
    found = site.http.post("/bases/shelf/search", json={"query": "krill"}).json()["hits"]
    assert [(hit["document"], hit["name"]) for hit in found] == [(reply["document"], "whales.md")]
    assert found[0]["channels"]["fulltext"]["rank"] == 1
    assert site.http.get(f"/jobs/{reply['job']}").json()["outcome"] == "success"


def test_a_job_shows_what_it_made_and_what_it_used(site: HttpSite) -> None:
    site.upload("whales.md", WHALES)
    site.rig.work()
    changed = site.upload("whales.md", WHALES + "\nA whale sings.\n", params={"on_duplicate": "replace"})
    (reply,) = changed.json()["replies"]
    site.rig.work()
    job = site.http.get(f"/jobs/{reply['job']}").json()
    assert set(job["results"]) == {"content", "fulltext"}
    result = job["results"]["fulltext"]
    assert [result[name] for name in ("state", "attempts", "written", "kept", "removed")] == ["ready", 1, 1, 0, 1]
    assert result["peak_kb"] > 0
    assert job["cost"] is None  # nothing is paid for on this machine
    assert site.http.get("/jobs").json()["items"][0] == {**job, "waiting_for": []}
    history = site.http.get(f"/bases/shelf/documents/{reply['document']}/history").json()
    attempt = next(one for one in history if (one["kind"], one["what"]) == ("fulltext", "ready"))
    assert [attempt[name] for name in ("written", "kept", "removed")] == [1, 0, 1]
    assert attempt["peak_bytes"] >= 1024
    assert attempt["cpu_seconds"] > 0


def test_a_form_can_hold_many_files_and_each_gets_its_own_reply(site: HttpSite) -> None:
    files = [("file", ("a.md", b"# A\n\nalpha")), ("file", ("b.md", b"# B\n\nbeta")), ("file", ("a.md", b"# other"))]
    answer = site.http.post("/bases/shelf/documents", files=files, data={"metadata": '{"team": "sea"}'})
    assert answer.status_code == 202
    assert [(one["name"], one["verdict"], one["reason"]) for one in answer.json()["replies"]] == [
        ("a.md", "accepted", "content_changed"),
        ("b.md", "accepted", "content_changed"),
        ("a.md", "rejected", "name_taken"),
    ]
    listed = site.http.get("/bases/shelf/documents").json()["items"]
    assert [one["metadata"] for one in listed] == [{"team": "sea"}] * 2


def test_of_fifty_identical_simultaneous_uploads_one_is_accepted_and_49_name_its_job(site: HttpSite) -> None:
    site.upload("first.md", "so that the base is warm")
    with ThreadPoolExecutor(50) as crowd:
        answers = list(crowd.map(lambda _: site.upload("whales.md", WHALES), range(50)))
    (accepted,) = [one.json()["replies"][0] for one in answers if one.status_code == 202]
    conflicts = [problem(one) for one in answers if one.status_code == 409]
    assert len(conflicts) == 49
    assert {(one["job"], one["document"], one["state"]) for one in conflicts} == {
        (accepted["job"], accepted["document"], "queued")
    }
    counted = site.http.get("/duplicates/counts").json()
    assert [(one["base"], one["reason"], one["count"]) for one in counted] == [("shelf", "same_content", 49)]
    listed = site.http.get("/duplicates", params={"limit": 500}).json()["items"]
    assert {one["job"] for one in listed} == {accepted["job"]}


def test_simultaneous_reindex_requests_make_one_job_and_conflicts_that_name_it(site: HttpSite) -> None:
    document = site.index("whales.md", WHALES)
    with ThreadPoolExecutor(10) as crowd:
        answers = list(crowd.map(lambda _: site.http.post(f"/bases/shelf/documents/{document}:force"), range(10)))
    assert sorted(one.status_code for one in answers) == [202, *[409] * 9]
    job = next(one.json()["job"] for one in answers if one.status_code == 202)
    assert {(problem(one)["job"], problem(one)["state"]) for one in answers if one.status_code == 409} == {
        (job, "queued")
    }


def test_a_document_is_returned_with_its_status_indexes_text_and_chunks(site: HttpSite) -> None:
    document = site.index("whales.md", WHALES)
    found = site.http.get(f"/bases/shelf/documents/{document}")
    told = found.json()
    assert (told["status"], told["searchable"], told["progress"], told["why"]) == ("success", True, None, None)
    assert told["sha256"]
    assert [(one["kind"], one["state"], one["attempts"], one["attempts_max"]) for one in told["indexes"]] == [
        ("content", "ready", 1, 4),
        ("fulltext", "ready", 1, 4),
    ]
    assert found.headers["etag"] == '"g1"'
    text = site.http.get(f"/bases/shelf/documents/{document}/text").json()
    assert text["text"] == WHALES.strip()
    chunks = site.http.get(f"/bases/shelf/documents/{document}/chunks").json()["items"]
    assert [one["text"].strip() for one in chunks] == [WHALES.strip()]
    passage = site.http.get(f"/bases/shelf/documents/{document}/passages/{chunks[0]['chunk']}").json()
    assert "krill" in passage["text"]


def test_the_original_is_sent_as_a_download_that_browsers_do_not_run(site: HttpSite) -> None:
    page = "<script>alert(1)</script>"
    document = site.index("page.html", page)
    answer = site.http.get(f"/bases/shelf/documents/{document}/original")
    assert answer.text == page
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_part_of_the_original_is_sent_if_the_file_is_still_the_same(site: HttpSite) -> None:
    path = f"/bases/shelf/documents/{site.index('鲸.md', WHALES)}/original"
    whole = site.http.get(path)
    assert (whole.status_code, whole.headers["content-length"]) == (200, str(len(WHALES)))
    assert whole.headers["content-disposition"] == "attachment; filename*=utf-8''%E9%B2%B8.md"
    for tag, status, text in ((whole.headers["etag"], 206, WHALES[-4:]), ('"other"', 200, WHALES)):
        answer = site.http.get(path, headers={"Range": "bytes=-4", "If-Range": tag})
        assert (answer.status_code, answer.text) == (status, text)
    outside = site.http.get(path, headers={"Range": f"bytes={len(WHALES)}-"})
    assert (outside.status_code, outside.text) == (416, "")
    assert outside.headers["content-range"] == f"bytes */{len(WHALES)}"


def test_the_description_names_the_responses_to_a_part_of_the_original(site: HttpSite) -> None:
    paths = site.http.get("/openapi.json").json()["paths"]
    described = paths["/api/v1/bases/{base}/documents/{document}/original"]["get"]
    for code in ("206", "416"):
        assert "Content-Range" in described["responses"][code]["headers"]
    assert described["responses"]["206"]["content"] == described["responses"]["200"]["content"]
    assert "content" not in described["responses"]["416"]
    assert {"Range", "If-Range"} <= {one["name"] for one in described["parameters"] if one["in"] == "header"}


def test_a_delete_with_an_outdated_etag_is_refused(site: HttpSite) -> None:
    document = site.index("whales.md", WHALES)
    refused = site.http.delete(f"/bases/shelf/documents/{document}", headers={"If-Match": '"g0"'})
    assert (refused.status_code, problem(refused)["code"]) == (412, "changed_meanwhile")
    assert site.http.delete(f"/bases/shelf/documents/{document}", headers={"If-Match": '"g1"'}).status_code == 202
    assert problem(site.http.get(f"/bases/shelf/documents/{document}"))["code"] == "unknown_document"
    deleting = site.http.get("/bases/shelf/documents", params={"deleting": True}).json()["items"]
    assert [(one["id"], one["status"]) for one in deleting] == [(document, "deleting")]
    site.rig.work()
    while site.rig.library.sweep(100):
        pass
    assert site.http.get("/bases/shelf/documents", params={"deleting": True}).json()["items"] == []


def test_a_repeated_request_with_an_idempotency_key_gets_the_first_response(site: HttpSite) -> None:
    first, second = (site.upload("whales.md", WHALES, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.content == second.content
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotency-replayed"] == "true"
    other = site.upload("whales.md", "another body", headers={"Idempotency-Key": "k"})
    assert (other.status_code, problem(other)["code"]) == (422, "key_reused")
    refused = [site.upload("whales.md", "x", headers={"Idempotency-Key": "r"}) for _ in range(2)]
    assert (refused[0].status_code, problem(refused[0])["code"]) == (409, "name_taken")
    assert refused[0].content == refused[1].content
    assert refused[1].headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("answered", ["accepted", "failed"])
def test_the_response_does_not_depend_on_whether_it_can_be_stored(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, answered: str
) -> None:
    """A committed upload that is answered with an error would be repeated, although it took effect."""

    def refuse(*_: Any) -> bool:
        raise StoreReadOnly("database_read_only", path="holdfast.db")

    def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError

    state = site.rig.library.idempotency
    monkeypatch.setattr(type(state), "finish", refuse)
    monkeypatch.setattr(type(state), "release", refuse)
    if answered == "failed":
        monkeypatch.setattr(type(site.rig.library.adder), "add", break_down)
        answer = site.upload("whales.md", WHALES, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, problem(answer)["code"]) == (500, "internal_error")
        return
    answer = site.upload("whales.md", WHALES, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 202
    repeated = site.upload("whales.md", WHALES, headers={"Idempotency-Key": "k"})
    assert (repeated.status_code, problem(repeated)["code"]) == (409, "in_flight")
    site.rig.work()
    assert [one["status"] for one in site.http.get("/bases/shelf/documents").json()["items"]] == ["success"]


def test_simultaneous_requests_with_one_idempotency_key_are_carried_out_once(site: HttpSite) -> None:
    def send(_: int) -> httpx2.Response:
        return site.upload("whales.md", WHALES, headers={"Idempotency-Key": "same"})

    with ThreadPoolExecutor(20) as crowd:
        answers = list(crowd.map(send, range(20)))
    told = {one.json()["replies"][0]["job"] for one in answers if one.status_code == 202}
    assert len(told) == 1
    assert {problem(one)["code"] for one in answers if one.status_code != 202} <= {"in_flight"}
    assert site.rig.store.refusals() == []


def test_one_request_reads_many_statuses_and_leaves_out_unknown_ids(site: HttpSite) -> None:
    ids = [site.index(f"{name}.md", f"# {name}") for name in "abc"]
    found = site.http.post("/bases/shelf/documents/status", json={"documents": [*ids, 999_999]}).json()
    assert [(one["id"], one["status"]) for one in found] == [(id_, "success") for id_ in ids]
    many = site.http.post("/bases/shelf/documents/status", json={"documents": list(range(1, 1002))})
    assert (many.status_code, problem(many)["code"]) == (422, "invalid_request")


def test_pages_have_a_total_and_a_cursor(site: HttpSite) -> None:
    site.http.post("/bases/shelf/documents", files=[("file", (f"{n}.md", f"text {n}".encode())) for n in range(5)])
    first = site.http.get("/bases/shelf/documents", params={"page_size": 2}).json()
    assert (len(first["items"]), first["total"]) == (2, 5)
    second = site.http.get("/bases/shelf/documents", params={"page": 2, "page_size": 2}).json()
    onward = site.http.get("/bases/shelf/documents", params={"cursor": first["next_cursor"], "page_size": 2}).json()
    assert second["items"] == onward["items"]
    wrong = site.http.get("/bases/shelf/documents", params={"cursor": "nonsense"})
    assert problem(wrong)["code"] == "bad_request"


PROBLEMS: list[tuple[Callable[[httpx2.Client], httpx2.Response], int, str]] = [
    (lambda http: http.get("/bases/none"), 404, "unknown_base"),
    (lambda http: http.get("/nowhere"), 404, "no_such_address"),
    (lambda http: http.put("/bases"), 405, "method_not_allowed"),
    (lambda http: http.get("/bases/shelf/documents/77"), 404, "unknown_document"),
    (lambda http: http.get("/bases/shelf/documents/x"), 422, "invalid_request"),
    (lambda http: http.get("/jobs/none"), 404, "unknown_job"),
    (lambda http: http.post("/bases", json={"name": "shelf"}), 409, "name_taken"),
    (lambda http: http.post("/bases", json={"name": "a/b"}), 422, "bad_request"),
    (lambda http: http.post("/bases", json={"name": "b", "id": 7}), 422, "invalid_request"),
    (lambda http: http.post("/bases", json={"name": "b", "indexes": ["none"]}), 422, "bad_settings"),
    (lambda http: http.post("/bases", content=b"{"), 422, "invalid_request"),
    (lambda http: http.post("/bases/shelf/documents", content=b"x"), 415, "unsupported_media_type"),
    (lambda http: http.post("/bases/shelf/documents", files=[], data={"a": "b"}), 415, "unsupported_media_type"),
    (lambda http: http.post("/bases/shelf/search", json={"query": "x" * 10_001}), 422, "invalid_request"),
    (lambda http: http.post("/bases/shelf/search", json={"query": "x", "channels": ["no"]}), 422, "bad_request"),
    (lambda http: http.get("/bases/shelf/graph/entities/nobody"), 404, "unknown_entity"),
    (lambda http: http.post("/bases/shelf/cards:generate"), 409, "not_enabled"),
    (lambda http: http.post("/jobs:cancel", json={"base": "none"}), 404, "unknown_base"),
    (lambda http: http.get("/jobs", params={"state": "odd"}), 422, "bad_request"),
    (lambda http: http.delete("/keys/5"), 404, "unknown_key"),
    (lambda http: http.get("/webhooks/5"), 404, "unknown_webhook"),
    (lambda http: http.get("/events", params={"topic": "odd"}), 422, "bad_request"),
]


def test_every_error_is_a_problem_document_with_a_code(site: HttpSite) -> None:
    told = [(answer.status_code, problem(answer)["code"]) for send, _, _ in PROBLEMS for answer in [send(site.http)]]
    assert told == [(status, code) for _, status, code in PROBLEMS]


FIELD_ONLY = b'--edge\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--edge--\r\n'
FORM = "multipart/form-data"
REJECTED: dict[str, tuple[int, str, str | None, dict[str, Any]]] = {
    "The server cannot read a body of this content type here. Send the files as a form (`multipart/form-data`), or "
    "send the bytes of one file and its name as `?name=`.": (415, "unsupported_media_type", None, {"content": b"x"}),
    "The server cannot read the body of the request: Missing boundary in multipart. Correct the body and send it "
    "again. Nothing was changed.": (
        400, "bad_request", "malformed_body",
        {"content": b"x", "headers": {"Content-Type": FORM}},
    ),
    "The form contains no file. Send each file as a part with a file name. Nothing was changed.": (
        400, "bad_request", "form_without_files",
        {"content": FIELD_ONLY, "headers": {"Content-Type": f"{FORM}; boundary=edge"}},
    ),
    "The form field 'metadata' is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
    "(char 1). Send a JSON object. Nothing was changed.": (
        422, "bad_request", "metadata_not_json",
        {"files": [("file", ("a.md", b"a"))], "data": {"metadata": "{"}},
    ),
    "The form field 'metadata' is JSON, but not an object. Send a JSON object with names and values. Nothing was "
    "changed.": (
        422, "bad_request", "metadata_not_an_object",
        {"files": [("file", ("a.md", b"a"))], "data": {"metadata": "[1]"}},
    ),
    "The request is not valid: /query/priority: Input should be less than or equal to 9. Correct it and send it again. "
    "Nothing was changed.": (422, "invalid_request", None, {"content": b"x", "params": {"name": "a", "priority": 10}}),
}  # fmt: skip


def test_a_rejected_upload_says_what_to_correct(site: HttpSite) -> None:
    for sentence, (status, code, subcode, request) in REJECTED.items():
        answer = site.http.post("/bases/shelf/documents", **request)
        told = problem(answer)
        assert (told["status"], told["code"], told["subcode"], told["detail"]) == (status, code, subcode, sentence)
    assert site.http.get("/bases/shelf/documents").json()["items"] == []


def test_a_body_over_the_limit_is_refused_during_the_upload(open_site: Callable[..., HttpSite]) -> None:
    site = open_site(upload_limit=1)

    def endless() -> object:
        for _ in range(100):
            yield b"x" * 100_000

    answer = site.http.post("/bases/shelf/documents", params={"name": "big"}, content=endless())  # type: ignore[arg-type]
    assert (answer.status_code, problem(answer)["code"]) == (413, "too_large")
    announced = site.http.post("/bases/shelf/documents", params={"name": "big"}, content=b"x" * 1_000_001)
    assert (problem(announced)["code"], problem(announced)["subcode"]) == ("too_large", "request_too_large")
    assert problem(announced)["params"] == {"largest": "1000000"}
    assert site.http.get("/bases/shelf/documents").json()["items"] == []


def test_a_request_over_the_quota_gets_a_retry_after_header(site: HttpSite) -> None:
    site.http.post("/bases", json={"name": "small", "jobs_per_day": 1})
    assert site.upload("a.md", "alpha", "small").status_code == 202
    answer = site.upload("b.md", "beta", "small")
    assert (answer.status_code, problem(answer)["code"], problem(answer)["retryable"]) == (429, "quota_exhausted", True)
    assert 0 < int(answer.headers["retry-after"]) <= 86_400


def test_a_server_that_is_shutting_down_answers_503(site: HttpSite) -> None:
    site.served.draining.set()
    answer = site.http.get("/bases")
    assert (answer.status_code, problem(answer)["code"], answer.headers["retry-after"]) == (503, "draining", "5")


def test_a_long_poll_waits_until_the_job_ends_or_the_time_is_over(site: HttpSite) -> None:
    reply = site.upload("whales.md", WHALES).json()["replies"][0]
    early = site.http.get(f"/jobs/{reply['job']}", params={"wait": 0.2}).json()
    assert early["outcome"] is None
    with ThreadPoolExecutor(2) as waiting:
        job = waiting.submit(site.http.get, f"/jobs/{reply['job']}", params={"wait": 60})
        document = waiting.submit(site.http.get, f"/bases/shelf/documents/{reply['document']}", params={"wait": 60})
        site.rig.work()
        assert job.result().json()["outcome"] == "success"
        assert document.result().json()["status"] == "success"


def test_an_unknown_address_is_answered_with_a_link_to_the_api_description(site: HttpSite) -> None:
    assert f"{API}/openapi.json" in problem(site.http.get(f"{site.address}/nowhere"))["detail"]
    assert f"{API}/openapi.json" in problem(site.http.put("/bases"))["detail"]


def test_an_operation_accepts_either_a_filter_or_document_ids(site: HttpSite) -> None:
    site.index("whales.md", WHALES)
    path = "/bases/shelf/documents:reindex"
    counted = site.http.post(path, json={"filter": {"status": ["success"]}, "dry_run": True})
    assert (counted.status_code, counted.json()) == (
        202,
        {"found": 1, "accepted": 0, "answers": {}, "dry_run": True, "jobs": []},
    )
    assert site.http.post(path, json={"filter": {"kind": ["note"]}}).json()["found"] == 0
    assert site.http.post(path, json={"filter": {}}).json()["answers"] == {"accepted: reindex": 1}
    wrong: list[dict[str, Any]] = [
        {},
        {"documents": [1], "filter": {}},
        {"documents": [1], "dry_run": True},
        {"filter": {"state": ["failed"]}},
        {"filter": {"status": []}},
    ]
    for body in wrong:
        refused = site.http.post(path, json=body)
        assert (refused.status_code, problem(refused)["code"]) == (422, "invalid_request"), body
    refused = site.http.post("/bases/shelf/documents:delete", json={"filter": {}})
    assert (refused.status_code, problem(refused)["code"]) == (422, "bad_request")
    assert "clear" in problem(refused)["detail"]
