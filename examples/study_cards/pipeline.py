"""The stages of the pipeline, and the callback to the backend. Both versions of the service use them."""

import os
from typing import Any

import httpx

Pair = dict[str, str]  # question and answer


def split(documents: list[str]) -> list[str]:
    """Return the paragraphs of all documents."""
    return [part.strip() for document in documents for part in document.split("\n\n") if part.strip()]


def embed(project_id: int, chunks: list[str]) -> dict[str, Any]:
    """Pay for the vectors of all chunks. The answer has `vectors`, `tokens` and `price`."""
    return _pay("embeddings", project_id, chunks)


def drop_repeats(chunks: list[str], vectors: list[list[float]]) -> list[str]:
    """Return the chunks without those that say the same as another one."""
    return list({tuple(vector): chunk for chunk, vector in zip(chunks, vectors, strict=True)}.values())


def make_pairs(project_id: int, chunk: str) -> dict[str, Any]:
    """Pay for questions and answers about a chunk. The answer has `pairs`, `tokens` and `price`."""
    return _pay("pairs", project_id, [chunk])


def call_backend(job: str, project_id: int, state: str, pairs: list[Pair]) -> None:
    """Report the end of a job to the backend, with its result."""
    report = {"job": job, "project_id": project_id, "state": state, "pairs": pairs}
    httpx.post(f"{os.environ['BACKEND_URL']}/callbacks/study-plans", json=report, timeout=30).raise_for_status()


def _pay(call: str, project_id: int, texts: list[str]) -> dict[str, Any]:
    asked = {"project": project_id, "texts": texts}
    answer = httpx.post(f"{os.environ['PROVIDER_URL']}/{call}", json=asked, timeout=30)
    paid: dict[str, Any] = answer.raise_for_status().json()
    return paid
