"""The HTTP API: `/api/v1`, one module a resource, each a thin coat over `holdfast.front`."""
