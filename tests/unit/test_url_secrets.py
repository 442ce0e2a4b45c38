"""Secrets in URLs are masked for display and detected before storage, and other text is not changed."""

from __future__ import annotations

import pytest

from holdfast.url_secrets import MASK, find_secret, mask_secrets


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://user:swordfish@host/v1", f"http://{MASK}@host/v1"),
        ("https://swordfish@host/v1", f"https://{MASK}@host/v1"),
        ("HTTPS://user:sword@fish@host:8443/", f"HTTPS://{MASK}@host:8443/"),
        ("https://host/v1?api-key=swordfish", f"https://host/v1?api-key={MASK}"),
        ("https://host/v1?API_KEY=swordfish&v=1", f"https://host/v1?API_KEY={MASK}&v=1"),
        ("https://host/?a=1&password=swordfish#top", f"https://host/?a=1&password={MASK}#top"),
        ("https://host/#access_token=swordfish", f"https://host/#access_token={MASK}"),
        ("https://host/?api%2Dkey=swordfish&%70assword=swordfish", f"https://host/?api%2Dkey={MASK}&%70assword={MASK}"),
        ("https://host/?X-Amz-Signature=swordfish", f"https://host/?X-Amz-Signature={MASK}"),
        ("https://host/?key=swordfish", f"https://host/?key={MASK}"),
        ("postgresql+psycopg://me:swordfish@db/x", f"postgresql+psycopg://me:{MASK}@db/x"),
        ("postgresql://me:sword/fish@db/x", f"postgresql://me:{MASK}@db/x"),
        ("postgresql://me:sword@fish@db/x", f"postgresql://me:{MASK}@db/x"),
        ("redis://:swordfish@cache:6379/0", f"redis://:{MASK}@cache:6379/0"),
        ("postgresql://db/x?user=me&password=swordfish", f"postgresql://db/x?user=me&password={MASK}"),
        (
            'POST http://a:swordfish@h/v1 "200", GET http://b:swordfish@h/',
            f'POST http://{MASK}@h/v1 "200", GET http://{MASK}@h/',
        ),
    ],
)
def test_a_secret_in_a_url_is_masked(given: str, shown: str) -> None:
    assert mask_secrets(given) == shown
    assert mask_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "postgresql+psycopg://postgres@127.0.0.1:5432/holdfast",
        "sqlite:////home/me/holdfast.db",
        "https://example.org:8443/a@b?keyword=tide&tokens=3&monkey=1",
        "me:swordfish@host is no address",
        "job=17 a=b",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://user:swordfish@host/", "user"),
        ("https://swordfish@host/", "user"),
        ("https://host/?api-key=x", "api-key"),
        ("https://host/?a=1&Password=x", "Password"),
        ("https://host/?access%5Ftoken=x", "access_token"),
        ("https://host/?client_secret=x", "client_secret"),
        ("https://host/?X-Amz-Security-Token=x", "X-Amz-Security-Token"),
        ("https://host/#access_token=x", "access_token"),
        ("https://host/#/page?token=x", "token"),
        ("https://host/#token", None),
        ("https://host/page?keyword=tide&key=about&passage=3&author=me", None),
        ("https://host/a@b", None),
        ("https://[broken/", None),
    ],
)
def test_a_secret_in_a_url_is_reported_by_the_name_of_its_part(url: str, found: str | None) -> None:
    assert find_secret(url) == found
