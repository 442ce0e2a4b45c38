"""`/bases/{base}/providers:test`: whether those answer that a base asks.

No answer is kept for a repeated request: whoever asks again wants to know how it is now.
"""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.api.auth import Front
from holdfast.api.bases import Name
from holdfast.service.schemas import Trial

router = APIRouter(prefix="/bases/{base}/providers", tags=["bases"])


@router.post(":test")
def test_providers(front: Front, base: Name) -> list[Trial]:
    """Ask each provider of a base something harmless, and tell what came of it; a paid answer is on its ledger."""
    return front.bases.test_providers(base)
