"""`/bases/{base}/providers:test`: whether those answer that a base asks.

No answer is kept for a repeated request: whoever asks again wants to know how it is now.
"""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName
from holdfast.service.schemas import ProviderTestResult

router = APIRouter(prefix="/bases/{base}/providers", tags=["bases"])


@router.post(":test")
def test_providers(front: Service, base: BaseName) -> list[ProviderTestResult]:
    """Ask each provider of a base something harmless, and tell what came of it; a paid answer is on its ledger."""
    return front.bases.test_providers(base)
