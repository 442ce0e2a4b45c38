"""`/overview`: all at a glance."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.auth import Service
from holdfast.service.schemas import Overview

router = APIRouter(prefix="/overview", tags=["system"])


@router.get("")
def read_overview(
    front: Service,
    hours: Annotated[int, Query(ge=1, le=24 * 30, description="how far back the queue is looked at")] = 24,
) -> Overview:
    """Return all at a glance: documents by status, the queue, who works, what was spent, how jobs ended lately."""
    return front.overview(hours)
