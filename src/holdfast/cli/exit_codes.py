"""Exit codes of errors and replies. The exit code of each error class is in `holdfast.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict, ExitCode, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["ExitCode", "combine_exit_codes", "error_exit_code", "error_to_dict", "reply_exit_code"]

QUOTA_EXHAUSTED = "quota_exhausted"  # the only refusal that ends by itself, the next day


def error_exit_code(error: HoldfastError) -> ExitCode:
    return ExitCode.TEMPORARY if error.code == QUOTA_EXHAUSTED else error.exit_code


def error_to_dict(error: HoldfastError) -> dict[str, Any]:
    """Return an error as `--json` prints it. A conflict has the document and the job that prevent the request."""
    details: dict[str, Any] = {"code": error.code, "message": str(error), "exit": int(error_exit_code(error))}
    if isinstance(error, Conflict):
        details |= {"verdict": error.verdict, "status": error.status, "document": error.document, "job": error.job}
    return {"error": details}


def reply_exit_code(verdict: str, reason: str) -> ExitCode:
    """Return the exit code for the reply to one request."""
    if verdict in ("accepted", "skipped"):
        return ExitCode.OK
    return ExitCode.TEMPORARY if reason == QUOTA_EXHAUSTED else ExitCode.CONFLICT


def combine_exit_codes(codes: Collection[ExitCode]) -> ExitCode:
    """Return the exit code of several requests: their common code, or `PARTIAL` if some succeeded."""
    different = set(codes)
    if len(different) <= 1:
        return different.pop() if different else ExitCode.OK
    return ExitCode.PARTIAL if ExitCode.OK in different or ExitCode.PARTIAL in different else ExitCode.FAILED
