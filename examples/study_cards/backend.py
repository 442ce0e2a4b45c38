"""The backend that browsers use. It serves the page, passes requests to the private service, and stores the cards.

The status and the body of the service reach the browser unchanged. The backend stores the cards of a job once, also if
its callback is repeated.
"""

import os
import sqlite3
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse

USER_ID = 7  # a real backend has sessions
DOCUMENTS = [  # a real backend has uploads
    "Krill are small crustaceans. They live in all oceans.\n\nMost krill eat phytoplankton. Whales eat krill.",
    "Tides follow the moon. Spring tides are the highest.\n\nA neap tide comes a week later. It is the lowest.",
    "Corals are animals. They live in colonies.\n\nReefs need warm water. They protect coasts from storms.",
]

backend = FastAPI()
service = httpx.AsyncClient(base_url=os.environ["SERVICE_URL"], timeout=30, trust_env=False)
database = sqlite3.connect(":memory:")
database.executescript(
    "CREATE TABLE cards (project INTEGER, question TEXT, answer TEXT, job TEXT);"
    "CREATE TABLE ends (job TEXT PRIMARY KEY, project INTEGER, state TEXT, callbacks INTEGER);"
)


async def forward(method: str, path: str, body: Any = None) -> Response:
    """Pass a request to the service, and its answer to the browser: the same status, type and body."""
    answer = await service.request(method, path, json=body)
    return Response(answer.content, answer.status_code, {"Content-Type": answer.headers["Content-Type"]})


@backend.get("/projects/{project_id}")
async def show_page(project_id: int) -> FileResponse:  # noqa: ARG001 - the script of the page reads it
    return FileResponse(Path(__file__).with_name("page.html"))


@backend.post("/projects/{project_id}/study-plan")
async def generate(project_id: int) -> Response:
    asked = {"project_id": project_id, "user_id": USER_ID, "documents": DOCUMENTS}
    return await forward("POST", "/api/generate-qa", asked)


@backend.get("/study-plans/{job_id}")
async def show_job(job_id: str) -> Response:
    return await forward("GET", f"/api/generate-qa/{job_id}")


@backend.post("/study-plans/{job_id}/cancel")
async def cancel(job_id: str) -> Response:
    return await forward("POST", f"/api/generate-qa/{job_id}/cancel")


@backend.get("/projects/{project_id}/cards")
async def list_cards(project_id: int) -> dict[str, Any]:
    """Return the cards of a project, and how often the service has reported the end of each of its jobs."""
    cards = database.execute("SELECT question, answer FROM cards WHERE project = ?", (project_id,))
    ends = database.execute("SELECT job, state, callbacks FROM ends WHERE project = ?", (project_id,))
    return {
        "cards": [{"question": question, "answer": answer} for question, answer in cards],
        "ends": [{"job": job, "state": state, "callbacks": callbacks} for job, state, callbacks in ends],
    }


@backend.post("/callbacks/study-plans", status_code=204)
async def receive_end(request: Request) -> None:
    """Store the cards of an ended job, unless this callback is a repetition."""
    end = await request.json()
    with database:
        ((callbacks,),) = database.execute(
            "INSERT INTO ends VALUES (:job, :project_id, :state, 1)"
            " ON CONFLICT (job) DO UPDATE SET callbacks = callbacks + 1 RETURNING callbacks",
            end,
        ).fetchall()
        if callbacks == 1:
            rows = [(end["project_id"], pair["question"], pair["answer"], end["job"]) for pair in end["pairs"]]
            database.executemany("INSERT INTO cards VALUES (?, ?, ?, ?)", rows)
