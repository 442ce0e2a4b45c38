"""The HTTP API: `/api/v1`, one module a resource, each a thin coat over `holdfast.service`."""

PROBLEM_JSON = "application/problem+json"  # the media type of every error, as in RFC 9457
