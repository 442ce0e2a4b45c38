"""The HTTP client verifies the certificate of its server."""

from __future__ import annotations

import ssl

import pytest

from holdfast.service.http_client import HttpClient


@pytest.mark.parametrize(
    ("address", "trust"),
    [("https://holdfast.example", ssl.CERT_REQUIRED), ("HTTPS://holdfast.example/", ssl.CERT_REQUIRED)],
)
def test_the_certificate_of_an_https_server_is_verified(address: str, trust: ssl.VerifyMode) -> None:
    wire = HttpClient(address, None)
    pool = wire._client._transport._pool  # type: ignore[attr-defined]
    assert pool._ssl_context.verify_mode is trust
    wire.close()
