"""The same study-card service with the guard. It has no state of its own: the guard stores jobs, progress and results.

A quota limits the generations of each project, and each refused request is recorded.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from examples.study_cards.pipeline import Pair, call_backend, drop_repeats, embed, make_pairs, split
from holdfast.errors import HoldfastError
from holdfast.guard import Finished, Guard, Run
from holdfast.guard.celery import guarded

GENERATIONS_PER_DAY = 20  # of each project

app = Celery("guarded")
app.config_from_object("examples.study_cards.celeryconfig")
guard = Guard(os.environ["GUARD_DATABASE"])


def report_end(end: Finished) -> None:
    """Report the end of a job to the backend. The guard repeats this until it succeeds."""
    call_backend(end.job, int(end.key), end.state, end.result or [])


@guarded(app, guard, key="project_id", name="study_cards", operation="force", on_finished=report_end)
def generate_cards(run: Run, project_id: int, documents: list[str]) -> list[Pair]:
    """Split, embed, and make pairs of questions and answers."""
    chunks = split(documents)
    run.checkpoint(stage="embedding", total=len(chunks))
    embedded = embed(project_id, chunks)
    run.spent(tokens=embedded["tokens"], price=embedded["price"])
    chunks = drop_repeats(chunks, embedded["vectors"])
    pairs: list[Pair] = []
    for number, chunk in enumerate(chunks):
        run.checkpoint(stage="pairs", done=number, total=len(chunks), counters={"qa_pairs": len(pairs)})
        answer = make_pairs(project_id, chunk)
        run.spent(tokens=answer["tokens"], price=answer["price"])
        pairs += answer["pairs"]
        run.partial(pairs)
    run.checkpoint(stage="pairs", done=len(chunks), total=len(chunks), counters={"qa_pairs": len(pairs)})
    return pairs


cards = guard.works["study_cards"]


@asynccontextmanager
async def set_quota(_: FastAPI) -> AsyncIterator[None]:
    """Set the quota when the service starts."""
    await guard.in_thread(cards.set_quota, GENERATIONS_PER_DAY, scope="project")
    yield


api = FastAPI(lifespan=set_quota)


class GenerateRequest(BaseModel):
    project_id: int
    user_id: int
    documents: list[str]


@api.post("/api/generate-qa")
def generate_qa(request: GenerateRequest) -> JSONResponse:
    """Begin a job (202), or answer 409 if the project has an active one, and 429 if its quota is used up."""
    asked = generate_cards.apply_async(
        (request.project_id, request.documents), requester=f"user-{request.user_id}", project=str(request.project_id)
    )
    return JSONResponse(asked.admission.body(), asked.admission.http_status)


@api.get("/api/generate-qa/{job_id}")
def show_job(job_id: str) -> dict[str, Any]:
    return guard.job(job_id).as_dict()


@api.post("/api/generate-qa/{job_id}/cancel")
def cancel_job(job_id: str) -> JSONResponse:
    admission = cards.cancel(guard.job(job_id).key, job=job_id)
    return JSONResponse(admission.body(), admission.http_status)


@api.get("/api/projects/{project_id}/refusals")
def list_refusals(project_id: str) -> list[dict[str, Any]]:
    """Return the refused requests of a project, each with the estimated cost of the work that it did not start."""
    return [refusal.as_dict() for refusal in cards.refusals(project_id)]


@api.exception_handler(HoldfastError)
def explain(_: Request, error: HoldfastError) -> JSONResponse:
    return JSONResponse({"message": str(error)}, error.http_status or 500)
