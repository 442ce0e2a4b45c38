"""A key in a cookie: scripts cannot read it, only our own pages can use it, and an invalid one is removed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.auth.principal import Scope
from holdfast.clock import Moment, micros
from tests.support.http_site import problem

if TYPE_CHECKING:
    from tests.support.http_site import HttpSite

SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def locked(open_site: Any) -> HttpSite:
    """Start a server that requires a key."""
    made: HttpSite = open_site(needs_key=True)
    return made


def sign_in(site: HttpSite, scope: str = "admin") -> str:
    """Sign in, so that the client has a key in its cookie, and return the key."""
    secret = site.key(scope)["Authorization"].removeprefix("Bearer ")
    answer = site.http.post("/session", json={"key": secret})
    assert (answer.status_code, answer.content) == (204, b"")
    return secret


def test_the_cookie_of_a_key_is_http_only_and_same_site(locked: HttpSite) -> None:
    assert locked.http.get("/session").json() == {"needs_key": True, "signed_in": False, "scope": None, "name": ""}
    assert locked.http.get("/bases").status_code == 401
    secret = locked.key("write")["Authorization"].removeprefix("Bearer ")
    answer = locked.http.post("/session", json={"key": secret})
    name, *parts = answer.headers["set-cookie"].split("; ")
    assert name == f"holdfast_key={secret}"
    assert {part.lower() for part in parts} == {"httponly", "path=/", "samesite=strict"}
    assert locked.http.get("/bases").status_code == 200
    told = {"needs_key": True, "signed_in": True, "scope": "write", "name": "tester"}
    assert locked.http.get("/session").json() == told
    assert locked.http.delete("/session", headers=SAME).status_code == 204
    assert locked.http.get("/bases").status_code == 401


def test_over_https_the_cookie_is_marked_as_secure(locked: HttpSite) -> None:
    secret = locked.key("read")["Authorization"].removeprefix("Bearer ")
    answer = locked.http.post("/session", json={"key": secret}, headers={"X-Forwarded-Proto": "https"})
    assert "; Secure" in answer.headers["set-cookie"]


def test_a_wrong_key_sets_no_cookie(locked: HttpSite) -> None:
    answer = locked.http.post("/session", json={"key": "hf_wrong"})
    assert (answer.status_code, problem(answer)["code"]) == (401, "unauthorized")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_cookie_authorizes_no_changes_from_other_origins(locked: HttpSite, headers: dict[str, str]) -> None:
    secret = sign_in(locked)
    for method, path in [
        ("POST", "/bases"),
        ("PATCH", "/bases/shelf"),
        ("DELETE", "/bases/shelf"),
        ("DELETE", "/session"),
    ]:
        answer = locked.http.request(method, path, headers=headers, json={"name": "b"})
        assert (answer.status_code, problem(answer)["code"]) == (403, "wrong_origin"), (method, path)
    assert [base["name"] for base in locked.http.get("/bases").json()] == ["shelf"]
    if not headers:  # a browser never sends this header by itself
        by_header = {"X-API-Key": secret}
        assert locked.http.post("/bases", json={"name": "by header"}, headers=by_header).status_code == 201


def test_a_cookie_authorizes_changes_from_our_own_pages(locked: HttpSite) -> None:
    sign_in(locked)
    assert locked.http.post("/bases", json={"name": "a"}, headers=SAME).status_code == 201
    assert locked.http.post("/bases", json={"name": "b"}, headers={"Origin": locked.address}).status_code == 201


def test_the_key_in_a_cookie_keeps_its_scope_and_a_header_takes_precedence(locked: HttpSite) -> None:
    sign_in(locked, "read")
    refused = locked.http.post("/bases", json={"name": "a"}, headers=SAME)
    assert (refused.status_code, problem(refused)["code"]) == (403, "forbidden")
    admin = locked.key("admin")
    assert locked.http.post("/bases", json={"name": "a"}, headers=SAME | admin).status_code == 201
    assert locked.http.get("/bases", headers={"X-API-Key": "hf_wrong"}).status_code == 401
    assert locked.http.get("/bases").status_code == 200  # the cookie is kept


@pytest.mark.parametrize("why", ["revoked", "expired"])
def test_the_cookie_of_a_revoked_or_expired_key_is_removed(locked: HttpSite, why: str) -> None:
    library, clock = locked.rig.library, locked.rig.clock
    ends = Moment(clock.now() + micros(timedelta(hours=1)))
    key, secret = library.keys.create("browser", Scope.ADMIN, expires_at=ends)
    assert locked.http.post("/session", json={"key": secret}).status_code == 204
    assert locked.http.get("/bases").status_code == 200
    if why == "revoked":
        library.keys.revoke(key.id)
    else:
        clock.advance(timedelta(hours=2))
    answer = locked.http.get("/bases")
    assert (answer.status_code, problem(answer)["code"]) == (401, "unauthorized")
    assert "holdfast_key" not in locked.http.cookies
    assert locked.http.get("/session").json()["signed_in"] is False


def test_the_cookie_of_another_server_is_ignored_when_no_key_is_required(site: HttpSite) -> None:
    site.http.cookies.set("holdfast_key", "hf_of_another_server")
    assert site.http.get("/bases").status_code == 200
    assert site.http.get("/session").json() == {"needs_key": False, "signed_in": False, "scope": "admin", "name": ""}
    assert site.http.post("/bases", json={"name": "b"}, headers=SAME).status_code == 201
    assert site.http.cookies["holdfast_key"]
