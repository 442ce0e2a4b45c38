"""Access rights of every route for every scope and base, and protection against requests from other web sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast.auth.principal import Scope
from holdfast.catalog.repository import BaseSettings
from tests.support.harness import Rig
from tests.support.http_site import API, HttpSite, problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

    from tests.support.clock import FakeClock

CANARY = "xylocanary"
RANKS = ("read", "write", "admin")


class Route(NamedTuple):
    """The scope that a route needs, and an example of a valid request."""

    scope: str
    everywhere: bool = False  # only for keys that are not limited to bases
    body: Any = None
    params: Any = None
    content: bytes | None = None


READ, WRITE, ADMIN = Route("read"), Route("write"), Route("admin")
CROSS = Route("admin", everywhere=True)
ROUTES = {
    "list_bases": READ,
    "create_base": CROSS._replace(body={"name": "another"}),
    "get_base": READ,
    "change_base": ADMIN._replace(body={"auto_index": True}),
    "delete_base": ADMIN,
    "clear_base": ADMIN,
    "repair_base": ADMIN,
    "test_providers": ADMIN,
    "count_documents": READ,
    "read_usage": READ,
    "list_waiting": READ,
    "upload_files": WRITE._replace(params={"name": "new.md"}, content=b"new"),
    "add_note": WRITE._replace(body={"name": "n", "text": "t"}),
    "add_source": WRITE._replace(body={"kind": "url", "source": "https://example.org/"}),
    "preview_folder": ADMIN._replace(body={"path": "/nowhere"}, everywhere=True),
    "list_documents": READ,
    "read_statuses": READ._replace(body={"documents": [1]}),
    "get_document": READ,
    "read_text": READ,
    "download_original": READ,
    "list_chunks": READ,
    "read_passage": READ,
    "list_document_entities": READ,
    "list_document_cards": READ,
    "list_document_missing": READ,
    "read_document_usage": READ,
    "read_document_history": READ,
    "act_on_document": WRITE,
    "delete_document": WRITE,
    "act_on_documents": WRITE._replace(body={"documents": []}),
    "search": READ._replace(body={"query": CANARY}),
    "ask": READ._replace(body={"question": CANARY}),
    "ask_streaming": READ._replace(body={"question": CANARY}),
    "list_entities": READ,
    "get_entity": READ,
    "draw_graph": READ,
    "list_evidence": READ._replace(params={"source": "whale", "target": "krill"}),
    "list_cards": READ,
    "read_cards": READ,
    "generate_cards": WRITE,
    "cancel_cards": WRITE,
    "export_cards": READ,
    "list_jobs": READ._replace(params={"base": "{base}"}),
    "read_queue": READ._replace(params={"base": "{base}"}),
    "get_job": READ,
    "cancel_job": WRITE,
    "retry_job": WRITE,
    "prioritise_job": WRITE._replace(body={"priority": 3}),
    "cancel_all_jobs": WRITE._replace(body={"base": "{base}"}),
    "retry_all_failed": WRITE._replace(body={"base": "{base}"}),
    "pause_queue": WRITE._replace(body={"base": "{base}"}),
    "resume_queue": WRITE._replace(body={"base": "{base}"}),
    "list_events": READ._replace(params={"base": "{base}"}),
    "list_events_after": READ._replace(params={"base": "{base}", "cursor": "0-0"}),
    "follow_events": READ._replace(params={"base": "{base}"}),
    "list_duplicates": READ._replace(params={"base": "{base}"}),
    "count_duplicates": READ._replace(params={"base": "{base}"}),
    "export_base": ADMIN,
    "restore_base": CROSS._replace(content=b"no archive"),
    "list_keys": CROSS,
    "create_key": CROSS._replace(body={"name": "k"}),
    "revoke_key": CROSS,
    "list_webhooks": CROSS,
    "create_webhook": CROSS._replace(body={"url": "https://example.org/"}),
    "get_webhook": CROSS,
    "delete_webhook": CROSS,
    "enable_webhook": CROSS,
    "disable_webhook": CROSS,
    "rotate_secret": CROSS,
    "list_deliveries": CROSS,
    "redeliver_event": CROSS,
    "read_session": READ,
    "sign_in": READ._replace(body={"key": "hf_wrong"}),
    "sign_out": READ,
    "read_overview": READ,
    "read_about": READ,
    "run_doctor": CROSS,
    "read_erasure": CROSS,
    "erase": CROSS,
}
OPEN_ENDED = {"follow_events"}  # the response is an endless stream
UNLOCKED = {"read_session", "sign_in", "sign_out"}  # available without a key


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_pattern: Path) -> Iterator[HttpSite]:
    """Start one server for all routes. The tests create the bases in it."""
    from tests.support.clock import FakeClock  # noqa: PLC0415

    clock: FakeClock = FakeClock()
    folder = tmp_path_factory.mktemp("access")
    path = folder / "holdfast.db"
    path.write_bytes(sqlite_pattern.read_bytes())
    roots = {"folder_roots": "/nowhere"}  # the path that ROUTES uses for preview_folder
    rig = Rig(f"sqlite:///{path}", folder / "blobs", clock, indexes=("fulltext",), settings=roots)
    site = HttpSite(rig, needs_key=True)
    yield site
    site.close()
    rig.close()


class Ground:
    """Two bases with one document each. Limited keys of every scope open only the first base."""

    def __init__(self, site: HttpSite, name: str) -> None:
        self.site = site
        self.ours, self.theirs = f"ours-{name}", f"theirs-{name}"
        library = site.rig.library
        for base in (self.ours, self.theirs):
            library.catalog.create_base(base, BaseSettings(indexes=("fulltext",)))
        self.keys = {scope: site.key(scope, self.ours) for scope in RANKS}
        self.keys |= {f"{scope} of all": site.key(scope) for scope in RANKS}
        admin = self.keys["admin of all"]
        answers = {
            base: site.upload(f"{word}.md", f"# {word}\n\n{word} swims.", base, headers=admin).json()["replies"][0]
            for base, word in ((self.ours, "whale"), (self.theirs, CANARY))
        }
        self.places = {
            base: {"base": base, "document": str(one["document"]), "job": one["job"]} for base, one in answers.items()
        }
        self.spare = str(library.keys.create("spare", Scope.READ)[0].id)
        self.hook = str(library.webhooks.create("https://example.org/x", ["*"])[0].id)

    def ask(self, operation: Any, base: str, headers: dict[str, str]) -> httpx2.Response:
        """Send the example request of a route for a base."""
        method, path, name = operation
        route = ROUTES[name]
        fill = {**self.places.get(base, {"base": base, "document": "1", "job": "none"}), "chunk": "1"}
        fill |= {"key": self.spare if "keys" in path else "whale", "webhook": self.hook}
        fill |= {"delivery": "1", "action": "force"}
        url = path.removeprefix(API)
        for word, value in fill.items():
            url = url.replace(f"{{{word}}}", value)
        how: dict[str, Any] = {"params": _filled(route.params or {}, base), "headers": headers}
        if route.body is not None:
            how["json"] = _filled(route.body, base)
        if route.content is not None:
            how["content"] = route.content
        if name in OPEN_ENDED:
            with self.site.http.stream(method, url, **how) as answer:
                if answer.is_error:
                    answer.read()
                return answer
        return self.site.http.request(method, url, **how)


def _filled(value: Any, base: str) -> Any:
    return {name: base if one == "{base}" else one for name, one in value.items()} if isinstance(value, dict) else value


def operations(site: HttpSite) -> list[tuple[str, str, str]]:
    return [
        (method.upper(), path, one["operationId"])
        for path, methods in site.app.openapi()["paths"].items()
        for method, one in methods.items()
    ]


def concerns_a_base(operation: tuple[str, str, str]) -> bool:
    route = ROUTES[operation[2]]
    named = "{base}" in operation[1] or "{base}" in str(route.params) + str(route.body)
    return named or "{job}" in operation[1]


def test_every_route_is_in_the_table_of_scopes(shared: HttpSite) -> None:
    assert {name for _, _, name in operations(shared)} == ROUTES.keys()


def test_a_key_gives_access_only_to_its_scope_and_its_bases(shared: HttpSite) -> None:
    looked_at = Ground(shared, "looking")
    for operation in operations(shared):
        if operation[2] in UNLOCKED:
            continue
        route = ROUTES[operation[2]]
        ground = looked_at if route.scope == "read" else Ground(shared, operation[2])  # other routes change data
        shared.rig.work()
        assert ground.ask(operation, ground.ours, {}).status_code == 401, operation
        assert ground.ask(operation, ground.ours, {"X-API-Key": "hf_wrong"}).status_code == 401, operation
        for scope in RANKS:
            for limited in (True, False):
                key = ground.keys[scope if limited else f"{scope} of all"]
                allowed = RANKS.index(scope) >= RANKS.index(route.scope) and not (limited and route.everywhere)
                if concerns_a_base(operation) and limited:
                    foreign = ground.ask(operation, ground.theirs, key)
                    unknown = ground.ask(operation, "nobodys", key)
                    assert foreign.status_code == 404, (operation, scope, foreign.text)
                    told, none = problem(foreign), problem(unknown)
                    assert told["code"] == none["code"], (operation, scope)
                    assert told["detail"].replace(ground.theirs, "").replace(
                        ground.places[ground.theirs]["job"], ""
                    ) == none["detail"].replace("nobodys", "").replace("none", ""), (operation, scope)
                answer = ground.ask(operation, ground.ours, key)
                if allowed:
                    assert answer.status_code not in (401, 403), (operation, scope, limited, answer.text)
                    assert answer.status_code < 500, (operation, scope, limited, answer.text)
                else:
                    assert answer.status_code == 403, (operation, scope, limited, answer.text)
                if limited and operation[2] not in OPEN_ENDED:
                    assert CANARY not in answer.text.replace(f'"{CANARY}"', ""), (operation, scope)
                    assert ground.theirs not in answer.text, (operation, scope)
        assert ground.site.rig.library.catalog.find_base(ground.theirs), operation


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7340", "127.0.0.1.evil.example", "", "[::1", "2130706433"]
)
def test_an_unknown_host_header_is_refused_to_prevent_dns_rebinding(site: HttpSite, host: str) -> None:
    answer = site.http.get("/bases", headers={"Host": host})
    assert (answer.status_code, problem(answer)["code"]) == (421, "wrong_host")
    assert "add the name to HOLDFAST_HOSTS and restart the server" in problem(answer)["detail"]


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


def test_cross_site_requests_are_refused_and_change_nothing(site: HttpSite) -> None:
    for headers in FOREIGN:
        for method, path in [("POST", "/bases"), ("DELETE", "/bases/shelf"), ("PATCH", "/bases/shelf")]:
            answer = site.http.request(method, path, headers=headers, json={"name": "b"})
            assert (answer.status_code, problem(answer)["code"]) == (403, "wrong_origin"), headers
    assert [base["name"] for base in site.http.get("/bases").json()] == ["shelf"]
    own = {"Origin": site.address, "Sec-Fetch-Site": "same-origin"}
    assert site.http.post("/bases", json={"name": "b"}, headers=own).status_code == 201


def test_requests_need_a_key_after_the_first_key_exists_and_a_wrong_key_is_refused(site: HttpSite) -> None:
    assert site.http.get("/bases").status_code == 200
    wrong = site.http.get("/bases", headers={"Authorization": "Bearer hf_no"})
    assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, 'Bearer realm="holdfast"')
    assert (problem(wrong)["code"], problem(wrong)["subcode"]) == ("unauthorized", "key_not_valid")
    key = site.key("read")
    missing = problem(site.http.get("/bases"))
    assert (missing["status"], missing["code"], missing["subcode"]) == (401, "unauthorized", "key_required")
    assert site.http.get("/bases", headers=key).status_code == 200
    assert site.http.get("/bases", headers={b"Authorization": "Bearer ключ".encode()}).status_code == 401


def test_secret_settings_are_never_returned(open_site: Any) -> None:
    site = open_site(
        chat_url="http://127.0.0.1:9",
        chat_model="m",
        chat_key="sk-canary",
        database="postgresql+psycopg://ann:sk-canary@db/x",
    )
    told = site.http.get("/about")
    assert "chat_model" in told.text
    assert "ann:********@db" in told.text
    assert "sk-canary" not in told.text


def test_an_admin_key_of_one_base_can_neither_rename_it_nor_set_its_tenant(site: HttpSite) -> None:
    for name, tenant in (("alpha", "us"), ("beta", "them")):
        site.http.post("/bases", json={"name": name, "tenant": tenant})
    key = site.key("admin", "alpha")
    answers = [
        site.http.patch("/bases/alpha", json=changes, headers=key)
        for changes in ({"name": "beta"}, {"name": "free"}, {"name": "beta", "chunk_size": 300}, {"tenant": "them"})
    ]
    assert [problem(answer)["code"] for answer in answers] == ["forbidden"] * 4
    taken, free, *_ = (problem(answer)["detail"] for answer in answers)
    assert taken == free  # the answer does not reveal which names are taken
    same = site.http.patch("/bases/alpha", json={"name": "alpha", "tenant": "us", "chunk_size": 300}, headers=key)
    assert (same.status_code, same.json()["settings"]["chunk_size"]) == (202, 300)
    everywhere = site.key("admin")
    bases = {one["name"]: one["settings"]["tenant"] for one in site.http.get("/bases", headers=everywhere).json()}
    assert bases == {"alpha": "us", "beta": "them", "shelf": ""}
    assert site.http.patch("/bases/alpha", json={"name": "gamma"}, headers=everywhere).status_code == 200


def test_a_repeated_request_for_a_key_creates_one_key_and_hides_the_secret(site: HttpSite) -> None:
    admin = site.key("admin", name="operator")
    repeat = admin | {"Idempotency-Key": "make-reports"}
    first = site.http.post("/keys", json={"name": "reports"}, headers=repeat)
    again = site.http.post("/keys", json={"name": "reports"}, headers=repeat)
    assert (first.status_code, again.status_code) == (201, 201)
    assert (again.json()["key"]["id"], again.headers["Idempotency-Replayed"]) == (first.json()["key"]["id"], "true")
    assert (first.json()["note"], again.json()["secret"]) == (None, None)
    assert "Only the first response contained the secret." in again.json()["note"]
    assert [one["name"] for one in site.http.get("/keys", headers=admin).json()] == ["operator", "reports"]
    with site.rig.store.database.reading() as tx:
        ((kept,),) = tx.run_sql("SELECT body FROM access_repeats WHERE key = 'make-reports'")
    assert first.json()["secret"].encode() not in bytes(kept)
    other = site.http.post("/keys", json={"name": "others"}, headers=repeat)
    assert problem(other)["code"] == "key_reused"
    unnamed = site.http.post("/keys", json={"name": " "}, headers=admin | {"Idempotency-Key": "wrong"})
    assert unnamed.status_code == site.http.post("/keys", json={"name": " "}, headers=admin).status_code == 422


def test_a_repeated_request_for_a_webhook_hides_the_secret(site: HttpSite) -> None:
    repeat = {"Idempotency-Key": "hook"}
    wanted = {"url": "https://example.org/hook"}
    first, again = (site.http.post("/webhooks", json=wanted, headers=repeat).json() for _ in range(2))
    assert (again["webhook"]["id"], again["secret"]) == (first["webhook"]["id"], None)
    assert len(site.http.get("/webhooks").json()) == 1
    path = f"/webhooks/{first['webhook']['id']}:rotate"
    turned, same = (site.http.post(path, headers={"Idempotency-Key": "turn"}).json() for _ in range(2))
    assert (turned["secret"] is None, same["secret"]) == (False, None)
