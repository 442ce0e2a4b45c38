"""Long operations over HTTP: 202 with the address of a job, which reports progress and can be cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import Moment, as_datetime
from holdfast.documents import bulk
from holdfast.documents.requests import Upload
from tests.support.http_site import API, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.support.http_site import HttpSite


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process at most three items in a request."""
    monkeypatch.setattr(bulk, "ITEMS_AT_ONCE", 3)


def fill(site: HttpSite, count: int = 5) -> list[int]:
    uploads = [Upload(f"{number}.md", f"Krill {number}".encode()) for number in range(count)]
    ids = [reply.item or 0 for reply in site.rig.library.adder.add(site.rig.base, uploads)]
    site.rig.work()
    return ids


def follow(site: HttpSite, answer: httpx2.Response, **more: Any) -> httpx2.Response:
    """Read the job that a response names."""
    assert answer.headers["location"].startswith(f"{API}/jobs/")
    return site.http.get(answer.headers["location"].removeprefix(API), **more)


def test_an_operation_on_many_documents_is_a_job(site: HttpSite) -> None:
    ids = fill(site)
    for body in ({"documents": ids}, {"filter": {"kind": ["file"]}}):
        answer = site.http.post("/bases/shelf/documents:reindex", json=body)
        assert answer.status_code == 202
        summary = answer.json()
        assert answer.headers["location"] == f"{API}/jobs/{summary.pop('jobs')[0]}"
        assert summary == {"found": 5, "accepted": 0, "answers": {}, "dry_run": False}
        job = follow(site, answer).json()
        assert (job["state"], job["progress"]["done"], job["progress"]["total"]) == ("queued", 0, 5)
        site.rig.work()
        job = follow(site, answer).json()
        assert job["outcome"] == "success"
        assert job["bulk"] == {
            "action": "reindex", "found": 5, "done": 5, "total": 5, "answers": {"accepted: reindex": 5},
        }  # fmt: skip


def test_a_few_documents_get_a_reply_each(site: HttpSite) -> None:
    ids = fill(site)
    answer = site.http.post("/bases/shelf/documents:delete", json={"documents": ids[:3]})
    assert [one["document"] for one in answer.json()["replies"]] == ids[:3]
    assert "location" not in answer.headers


def test_a_request_names_at_most_ten_thousand_documents(site: HttpSite) -> None:
    refused = site.http.post("/bases/shelf/documents:delete", json={"documents": list(range(1, 10_002))})
    assert (refused.status_code, problem(refused)["code"]) == (422, "invalid_request")


def test_a_bulk_job_can_be_cancelled(site: HttpSite) -> None:
    ids = fill(site)
    answer = site.http.post("/bases/shelf/documents:delete", json={"documents": ids})
    path = f"/jobs/{answer.json()['jobs'][0]}:cancel"
    assert site.http.post(path).status_code == 202
    site.rig.work()
    assert follow(site, answer).json()["outcome"] == "cancelled"
    assert site.http.get("/bases/shelf/documents").json()["total"] == 5
    assert problem(site.http.post(path))["code"] == "nothing_active"


def test_a_repeat_with_the_same_idempotency_key_names_the_same_job(site: HttpSite) -> None:
    ids = fill(site)
    send = {"json": {"documents": ids}, "headers": {"Idempotency-Key": "again"}}
    first = site.http.post("/bases/shelf/documents:force", **send)  # type: ignore[arg-type]
    site.rig.work()
    jobs = site.rig.count("jobs")
    again = site.http.post("/bases/shelf/documents:force", **send)  # type: ignore[arg-type]
    assert (again.json(), again.headers["location"]) == (first.json(), first.headers["location"])
    assert site.rig.count("jobs") == jobs


def test_keys_see_and_start_only_jobs_of_their_scope_and_bases(open_site: Callable[..., HttpSite]) -> None:
    site = open_site(needs_key=True)
    ids = fill(site)
    site.rig.library.bases.create("other")
    path, body = "/bases/shelf/documents:reindex", {"documents": ids}
    reader, writer, stranger = site.key("read", "shelf"), site.key("write", "shelf"), site.key("write", "other")
    assert site.http.post(path, json=body, headers=reader).status_code == 403
    assert site.http.post(path, json=body, headers=stranger).status_code == 404
    answer = site.http.post(path, json=body, headers=writer)
    job = f"/jobs/{answer.json()['jobs'][0]}"
    assert site.http.get(job, headers=reader).status_code == 200
    assert site.http.get(job, headers=stranger).status_code == 404
    assert site.http.post(f"{job}:cancel", headers=reader).status_code == 403
    assert site.http.post(f"{job}:cancel", headers=stranger).status_code == 404
    assert site.http.post(f"{job}:cancel", headers=writer).status_code == 202


def test_the_delete_of_a_base_names_its_job(site: HttpSite) -> None:
    fill(site)
    answer = site.http.delete("/bases/shelf")
    assert (answer.status_code, answer.json()["status"]) == (202, "deleting")
    job = follow(site, answer).json()
    assert (job["state"], job["progress"]["done"], job["progress"]["total"]) == ("deleting", 0, 5)
    refused = site.http.post(f"/jobs/{job['id']}:cancel")
    assert (refused.status_code, problem(refused)["code"]) == (409, "delete_not_cancelled")
    assert "cannot be cancelled" in problem(refused)["detail"]


def test_a_change_of_settings_names_the_job_that_applies_it(site: HttpSite) -> None:
    fill(site)
    assert site.http.patch("/bases/shelf", json={"auto_index": False}).status_code == 200
    answer = site.http.patch("/bases/shelf", json={"chunk_size": 96, "chunk_overlap": 0})
    assert answer.status_code == 202
    job = follow(site, answer).json()
    assert (job["id"], job["subject"]) == (answer.json()["rollout_job"], "rollout")
    assert site.http.post(f"/jobs/{job['id']}:cancel").status_code == 202
    assert site.http.get("/bases/shelf").json()["rollout_job"] is None


def test_clearing_a_large_base_is_a_job(site: HttpSite) -> None:
    fill(site)
    answer = site.http.post("/bases/shelf:clear")
    assert answer.status_code == 202
    assert answer.json()["found"] == 5
    site.rig.worker.run_next(1)
    job = follow(site, answer).json()
    assert (job["id"], job["outcome"], job["bulk"]["done"]) == (answer.json()["jobs"][0], "success", 5)
    assert site.http.get("/bases/shelf/documents").json()["total"] == 0
    assert site.http.post("/bases/shelf:clear").json()["jobs"] == []


def test_cancelling_or_retrying_a_long_queue_is_a_job(site: HttpSite) -> None:
    uploads = [Upload(f"{number}.md", b" " * (number + 1)) for number in range(5)]  # no text, so they fail
    site.rig.library.adder.add(site.rig.base, uploads)
    for action, found in (("cancel", "accepted: cancel"), ("retry", "accepted: not_complete")):
        if action == "retry":
            assert site.http.post("/jobs:retry", json={"base": "shelf"}).json()["found"] == 0, "they are cancelled"
            site.http.post("/bases/shelf/documents:retry", json={"filter": {}})
            site.rig.work()
        answer = site.http.post(f"/jobs:{action}", json={"base": "shelf"})
        assert (answer.status_code, answer.json()["found"], len(answer.json()["jobs"])) == (202, 5, 1)
        site.rig.worker.run_next(1)
        job = follow(site, answer).json()
        assert (job["outcome"], job["bulk"]["answers"]) == ("success", {found: 5})
    assert site.http.post("/jobs:cancel", json={}).json()["jobs"], "all bases"


def test_jobs_that_run_for_long_are_listed_by_how_long_they_run(site: HttpSite) -> None:
    jobs = [site.upload(f"{name}.md", name).json()["replies"][0]["job"] for name in ("first", "second", "queued")]
    for _ in range(2):
        assert len(site.rig.store.claim_next(("content",), "worker", 1)) == 1
        site.rig.clock.advance(timedelta(seconds=30))

    def listed(seconds: int) -> list[str]:
        return [one["id"] for one in site.http.get("/jobs", params={"longer_than": seconds}).json()["items"]]

    assert (listed(30), listed(31), listed(60), listed(61)) == (jobs[:2], jobs[:1], jobs[:1], [])
    first, queued = (site.http.get(f"/jobs/{job}").json() for job in (jobs[0], jobs[2]))
    assert first["running_since"] == as_datetime(Moment(site.rig.clock.now() - 60_000_000)).isoformat().replace(
        "+00:00", "Z"
    )
    assert queued["running_since"] is None
    assert problem(site.http.get("/jobs", params={"longer_than": "soon"}))["status"] == 422
    assert site.http.get("/jobs/overview").json()["long_running_seconds"] == 1800
