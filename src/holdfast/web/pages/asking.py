"""To be written."""

from fastapi import APIRouter

router = APIRouter()
