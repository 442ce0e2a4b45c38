"""A key in a cookie: kept out of reach, of use to our own pages only, and forgotten when it opens nothing any more."""

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
    """A server that needs a key."""
    made: HttpSite = open_site(needs_key=True)
    return made


def sign_in(site: HttpSite, scope: str = "admin") -> str:
    """Let the client keep a key in its cookie; return the key."""
    secret = site.key(scope)["Authorization"].removeprefix("Bearer ")
    answer = site.http.post("/session", json={"key": secret})
    assert (answer.status_code, answer.content) == (204, b"")
    return secret


def test_a_browser_keeps_a_key_where_no_script_and_no_other_site_reaches_it(locked: HttpSite) -> None:
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


def test_over_https_the_cookie_is_sent_over_https_only(locked: HttpSite) -> None:
    secret = locked.key("read")["Authorization"].removeprefix("Bearer ")
    answer = locked.http.post("/session", json={"key": secret}, headers={"X-Forwarded-Proto": "https"})
    assert "; Secure" in answer.headers["set-cookie"]


def test_a_wrong_key_is_not_kept(locked: HttpSite) -> None:
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
def test_by_a_cookie_nothing_is_changed_unless_a_page_of_ours_asks(locked: HttpSite, headers: dict[str, str]) -> None:
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
    if not headers:  # a header is never sent by itself
        by_header = {"X-API-Key": secret}
        assert locked.http.post("/bases", json={"name": "by header"}, headers=by_header).status_code == 201


def test_a_page_of_ours_changes_things_by_the_cookie(locked: HttpSite) -> None:
    sign_in(locked)
    assert locked.http.post("/bases", json={"name": "a"}, headers=SAME).status_code == 201
    assert locked.http.post("/bases", json={"name": "b"}, headers={"Origin": locked.address}).status_code == 201


def test_what_the_cookie_holds_has_its_scope_and_a_header_goes_before_it(locked: HttpSite) -> None:
    sign_in(locked, "read")
    refused = locked.http.post("/bases", json={"name": "a"}, headers=SAME)
    assert (refused.status_code, problem(refused)["code"]) == (403, "forbidden")
    admin = locked.key("admin")
    assert locked.http.post("/bases", json={"name": "a"}, headers=SAME | admin).status_code == 201
    assert locked.http.get("/bases", headers={"X-API-Key": "hf_wrong"}).status_code == 401
    assert locked.http.get("/bases").status_code == 200  # and the cookie is still there


@pytest.mark.parametrize("why", ["revoked", "expired"])
def test_a_key_that_opens_nothing_any_more_is_forgotten_by_the_browser(locked: HttpSite, why: str) -> None:
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


def test_where_no_key_is_needed_the_cookie_of_another_server_does_no_harm(site: HttpSite) -> None:
    site.http.cookies.set("holdfast_key", "hf_of_another_server")
    assert site.http.get("/bases").status_code == 200
    assert site.http.get("/session").json() == {"needs_key": False, "signed_in": False, "scope": "admin", "name": ""}
    assert site.http.post("/bases", json={"name": "b"}, headers=SAME).status_code == 201
    assert site.http.cookies["holdfast_key"]
