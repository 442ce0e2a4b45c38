"""The study-card service without protection, as many teams write it: FastAPI, Celery, and the state of jobs in Redis.

`job:<id>` is a job, and `project_job:<project>` names the active job of a project. A request reads that key, and
later sets it; every end of a task deletes it. Both keys expire after a day, in case a task dies.
"""

import json
import logging
import os
from typing import Any
from uuid import uuid4

import httpx
import redis
from celery import Celery
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from examples.study_cards.pipeline import Pair, call_backend, drop_repeats, embed, make_pairs, split

DAY_SECONDS = 86_400
ACTIVE = ("queued", "running")

Job = dict[str, Any]
log = logging.getLogger(__name__)


class JobStorage:
    """The jobs, and the active job of each project, in Redis."""

    def __init__(self, url: str) -> None:
        self._redis: Any = redis.Redis.from_url(url, decode_responses=True)

    def save(self, job: Job) -> None:
        self._redis.setex(f"job:{job['job']}", DAY_SECONDS, json.dumps(job))

    def find(self, job_id: str) -> Job | None:
        found = self._redis.get(f"job:{job_id}")
        return json.loads(found) if found else None

    def set_active(self, project_id: int, job_id: str) -> None:
        self._redis.setex(f"project_job:{project_id}", DAY_SECONDS, job_id)

    def find_active(self, project_id: int) -> Job | None:
        """Return the active job of a project. A key that names an ended or expired job is deleted."""
        job_id = self._redis.get(f"project_job:{project_id}")
        if job_id is None:
            return None
        job = self.find(job_id)
        if job is None or job["state"] not in ACTIVE:
            self.clear_active(project_id)
            return None
        return job

    def clear_active(self, project_id: int) -> None:
        self._redis.delete(f"project_job:{project_id}")


app = Celery("plain")
app.config_from_object("examples.study_cards.celeryconfig")
storage = JobStorage(os.environ["REDIS_URL"])
api = FastAPI()


@app.task  # type: ignore[untyped-decorator]  # Celery has no types
def generate_cards(job_id: str, project_id: int, documents: list[str]) -> None:
    """Run the pipeline for a project, and report the end to the backend."""
    job = storage.find(job_id) or new_job(job_id, project_id)
    try:
        pairs = run_pipeline(job, documents)
        end(job, "succeeded", pairs)
    except httpx.HTTPError as error:
        end(job, "failed", [], f"The provider failed: {error}")
    except Exception as error:
        log.exception("The job %s failed", job_id)
        end(job, "failed", [], f"Unexpected error: {error}")


def run_pipeline(job: Job, documents: list[str]) -> list[Pair]:
    """Split, embed, and make pairs of questions and answers. The job shows the progress."""
    project_id = job["project_id"]
    chunks = split(documents)
    show_progress(job, "embedding", 0, len(chunks), [])
    chunks = drop_repeats(chunks, embed(project_id, chunks)["vectors"])
    pairs: list[Pair] = []
    for number, chunk in enumerate(chunks):
        show_progress(job, "pairs", number, len(chunks), pairs)
        pairs += make_pairs(project_id, chunk)["pairs"]
    return pairs


def show_progress(job: Job, stage: str, done: int, total: int, pairs: list[Pair]) -> None:
    job |= {"state": "running", "progress": {"stage": stage, "done": done, "total": total}, "partial": pairs}
    job["counters"] = {"qa_pairs": len(pairs)}
    storage.save(job)


def end(job: Job, state: str, pairs: list[Pair], error: str | None = None) -> None:
    """Store the end of a job, free its project, and then call the backend, which may request the next job at once."""
    job |= {"state": state, "result": pairs, "counters": {"qa_pairs": len(pairs)}, "error": error}
    storage.save(job)
    storage.clear_active(job["project_id"])
    try:
        call_backend(job["job"], job["project_id"], state, pairs)
    except httpx.HTTPError:
        log.exception("The backend did not accept the end of %s", job["job"])


class GenerateRequest(BaseModel):
    project_id: int
    user_id: int
    documents: list[str]


def new_job(job_id: str, project_id: int) -> Job:
    return {"job": job_id, "project_id": project_id, "state": "queued", "counters": {"qa_pairs": 0}}


@api.post("/api/generate-qa", status_code=202)
def generate_qa(request: GenerateRequest) -> Job:
    """Begin a job, or answer 409 if the project has an active one."""
    active = storage.find_active(request.project_id)
    if active is not None:
        log.warning("Duplicate request of user %s for project %s", request.user_id, request.project_id)
        detail = f"A study plan generation is already in progress for this project (status: {active['state']})."
        raise HTTPException(409, f"{detail} Please wait for it to complete.")
    job = new_job(str(uuid4()), request.project_id)
    storage.save(job)
    storage.set_active(request.project_id, job["job"])
    generate_cards.apply_async((job["job"], request.project_id, request.documents), task_id=job["job"])
    return job


@api.get("/api/generate-qa/{job_id}")
def show_job(job_id: str) -> Job:
    job = storage.find(job_id)
    if job is None:
        raise HTTPException(404, "No such job.")
    return job


@api.post("/api/generate-qa/{job_id}/cancel")
def cancel_job(job_id: str) -> Job:
    job = show_job(job_id)
    app.control.revoke(job_id, terminate=True)
    storage.clear_active(job["project_id"])
    return {"job": job_id, "state": "cancelled"}
