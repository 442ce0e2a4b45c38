"""The HTTP API under `/api/v1`. Each module has the routes of one resource and calls `holdfast.service`."""

PROBLEM_JSON = "application/problem+json"  # the media type of every error (RFC 9457)
