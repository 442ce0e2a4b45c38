"""Every setting has its documented default, is read from its variable and is refused if it is invalid."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.db import ConnectionOptions
from holdfast.engine.rules import Rules
from holdfast.errors import BadSettings
from holdfast.llm.openai import Endpoint
from holdfast.settings import ENV_PREFIX, Settings, read_given_values

NAMES = [one.name for one in fields(Settings)]
NUMBERS = [one.name for one in fields(Settings) if type(one.default) in (int, float)]

# A second, independent copy of the documented defaults.
DEFAULTS = {
    "config": "",
    "production": False,
    "home": str(Path.home() / ".local/share/holdfast"),
    "database": f"sqlite:///{Path.home()}/.local/share/holdfast/holdfast.db",
    "data": str(Path.home() / ".local/share/holdfast/files"),
    "s3_endpoint": "",
    "scheduler": "embedded",
    "broker": "",
    "queue_prefix": "holdfast",
    "workers": 2,
    "claim_batch": 100,
    "database_pool": 8,
    "database_overflow": 32,
    "database_wait": timedelta(seconds=30),
    "database_connect": timedelta(seconds=10),
    "database_lock": timedelta(seconds=30),
    "database_idle": timedelta(seconds=60),
    "database_statement": timedelta(),
    "database_retry": timedelta(seconds=10),
    "database_pooler": "",
    "database_direct": "",
    "lease": timedelta(seconds=120),
    "heartbeat": timedelta(seconds=30),
    "deadline": timedelta(hours=6),
    "stall": timedelta(minutes=45),
    "overtaken": timedelta(minutes=10),
    "long_running": timedelta(minutes=30),
    "period": timedelta(seconds=30),
    "ring_again": timedelta(seconds=60),
    "rings_per_worker": 2,
    "attempts": 1 + 3,
    "backoff": timedelta(seconds=60),
    "backoff_cap": timedelta(minutes=15),
    "backoff_jitter": 0.2,
    "lock_held_delay": timedelta(seconds=15),
    "lock_held_tries": 10,
    "retention": timedelta(days=30),
    "host": "127.0.0.1",
    "port": 7340,
    "hosts": "",
    "key": "",
    "keys": "auto",
    "upload_limit": 200,
    "drain": timedelta(minutes=10),
    "health_port": 0,
    "metrics_token": "",
    "streams": 1000,
    "streams_per_key": 100,
    "secret_key": "",
    "fetch_allow": "",
    "folder_roots": "",
    "webhook_allow": "",
    "log": "",
    "log_format": "text",
    "compact_limit": 512,
    "search_memory": 512,
    "embedding_url": "",
    "embedding_model": "",
    "embedding_version": "1",
    "embedding_key": "",
    "embedding_price": None,
    "chat_url": "",
    "chat_model": "",
    "chat_version": "1",
    "chat_key": "",
    "chat_price_read": None,
    "chat_price_written": None,
}
CHOICES = {"keys": "on", "log": "debug", "log_format": "json", "database_pooler": "transaction"}
PRICES = [name for name, default in DEFAULTS.items() if default is None]
PAIRS = [{f"{purpose}_url", f"{purpose}_model"} for purpose in ("embedding", "chat")]  # set both or neither


@pytest.mark.parametrize("name", NAMES)
def test_every_default_is_the_documented_value(name: str) -> None:
    assert getattr(Settings(), name) == DEFAULTS[name]


def test_the_rules_are_derived_from_the_settings() -> None:
    assert Settings().rules == Rules()
    rules = Settings(
        lease=timedelta(seconds=7),
        heartbeat=timedelta(seconds=2),
        stall=timedelta(seconds=3),
        overtaken=timedelta(seconds=4),
        deadline=timedelta(seconds=8),
        ring_again=timedelta(seconds=5),
        attempts=6,
        backoff=timedelta(seconds=9),
        backoff_cap=timedelta(seconds=10),
        backoff_jitter=0.25,
    ).rules
    assert [rules.lease.seconds, rules.heartbeat.seconds, rules.stall.seconds, rules.overtaken_after.seconds] == [
        7,
        2,
        3,
        4,
    ]
    assert [rules.deadline.seconds, rules.ring_again.seconds] == [8, 5]
    assert [rules.retry.max_attempts, rules.retry.first_delay.seconds, rules.retry.max_delay.seconds] == [6, 9, 10]
    assert rules.retry.jitter == 0.25


def test_a_worker_stops_itself_before_its_lease_can_have_ended() -> None:
    assert Settings().rules.renewal_timeout == timedelta(seconds=105)


def read(**settings: str) -> Settings:
    return Settings.from_environment({ENV_PREFIX + name.upper(): text for name, text in settings.items()})


def test_without_variables_every_setting_has_its_default() -> None:
    assert Settings.from_environment({"PATH": "/bin", "LEASE": "1", "holdfast_lease": "1"}) == Settings()


def test_without_an_argument_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORKERS", "17")
    assert Settings.from_environment().workers == 17


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", timedelta(seconds=90)),
        ("30s", timedelta(seconds=30)),
        ("45m", timedelta(minutes=45)),
        ("6h", timedelta(hours=6)),
        ("30d", timedelta(days=30)),
        ("1500ms", timedelta(seconds=1.5)),
        ("0.5h", timedelta(minutes=30)),
        (" 2m ", timedelta(minutes=2)),
    ],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, expected: timedelta) -> None:
    assert read(retention=text).retention == expected


@pytest.mark.parametrize("text", ["", "m", "-5", "1w", "5 m", "1h30m", "1e3", "nan", "five", "5M", "0x10", "1,5"])
def test_a_duration_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadSettings) as refused:
        read(retention=text)
    assert refused.value.subcode == "setting_not_a_duration"
    assert str(refused.value) == (
        f"HOLDFAST_RETENTION is '{text}', which is not a duration. Write seconds, or a number with a unit: 90, 30s, "
        "45m, 6h or 30d, at most 36500d."
    )


def test_a_duration_beyond_the_range_of_the_calendar_is_refused() -> None:
    assert read(retention="36500d").retention == timedelta(days=36_500)
    with pytest.raises(BadSettings, match=r"HOLDFAST_RETENTION is '999999999999d', .* at most 36500d"):
        read(retention="999999999999d")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["", "many", "1 000", "0x10"])
def test_a_number_that_cannot_be_read_is_refused(name: str, text: str) -> None:
    with pytest.raises(
        BadSettings, match=re.escape(f"HOLDFAST_{name.upper()} is '{text}', which is not a ")
    ) as refused:
        read(**{name: text})
    expected = "setting_not_a_number" if name == "backoff_jitter" else "setting_not_an_integer"
    assert refused.value.subcode == expected


PRODUCTION = {
    "production": "on",
    "database": "postgresql+psycopg://db/holdfast",
    "secret_key": "s" * 32,
    "keys": "on",
}


@pytest.mark.parametrize(
    ("missing", "subcode"),
    [("database", "production_sqlite"), ("secret_key", "production_secret_key"), ("keys", "production_keys")],
)
def test_production_refuses_settings_for_one_machine(missing: str, subcode: str) -> None:
    assert read(**PRODUCTION).production
    with pytest.raises(BadSettings) as refused:
        read(**{name: text for name, text in PRODUCTION.items() if name != missing})
    assert refused.value.subcode == subcode
    assert f"HOLDFAST_{missing.upper()}" in str(refused.value)


@pytest.mark.parametrize(("text", "value"), [("on", True), ("1", True), ("TRUE", True), ("off", False), ("0", False)])
def test_a_switch_is_on_or_off(text: str, value: object) -> None:
    assert read(**(PRODUCTION | {"production": text})).production is value


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"HOLDFAST_PRODUCTION is 'maybe'\. Set it to `on` or `off`"):
        read(production="maybe")


@pytest.mark.parametrize("name", PRICES)
def test_a_price_is_a_number_or_not_known(name: str) -> None:
    assert getattr(read(**{name: ""}), name) is None
    assert getattr(read(**{name: "0"}), name) == 0
    assert getattr(read(**{name: "0.13"}), name) == 0.13
    with pytest.raises(BadSettings, match=f"HOLDFAST_{name.upper()} is 'cheap', which is not a number."):
        read(**{name: "cheap"})
    for nonsense in ("-1.0", "nan", "inf"):
        with pytest.raises(BadSettings, match=f"HOLDFAST_{name.upper()} is {nonsense}, which is not a price."):
            read(**{name: nonsense})


def test_the_type_of_a_default_decides_how_a_variable_is_parsed() -> None:
    settings = read(workers="8", backoff_jitter="0.5", database="postgresql+psycopg://db/holdfast", scheduler="inline")
    assert (settings.workers, settings.backoff_jitter) == (8, 0.5)
    assert (settings.database, settings.scheduler) == ("postgresql+psycopg://db/holdfast", "inline")


@pytest.mark.parametrize("name", NAMES[2:])  # the first names the file; the second needs others
def test_every_setting_is_read_from_its_own_variable(name: str) -> None:
    default = getattr(Settings(), name)
    text = {timedelta: "61s", int: "3", float: "0.3", str: "other", type(None): "0.3"}[type(default)]
    if name in ("deadline", "backoff_cap"):
        text = "4h"
    if name == "heartbeat":
        text = "29s"
    if name in CHOICES:
        text = CHOICES[name]
    if name == "folder_roots":
        text = "/srv/docs"
    together = next((pair for pair in PAIRS if name in pair), {name})
    changed = read(**dict.fromkeys(together, text))
    together |= {"database", "data"} if name == "home" else set()
    assert getattr(changed, name) != default
    assert {one for one in NAMES if getattr(changed, one) != getattr(Settings(), one)} == together


@pytest.mark.parametrize("name", CHOICES)
def test_an_invalid_choice_is_refused_with_the_valid_choices(name: str) -> None:
    choices = r"(auto, on|debug, info, warning|text, json|transaction)\."
    with pytest.raises(BadSettings, match=f"HOLDFAST_{name.upper()} is 'loud'. Set it to one of: {choices}"):
        read(**{name: "loud"})


@pytest.mark.parametrize("name", [name for pair in PAIRS for name in sorted(pair)])
def test_an_endpoint_and_its_model_are_set_together_or_not_at_all(name: str) -> None:
    purpose, _, given = name.upper().partition("_")
    other = "MODEL" if given == "URL" else "URL"
    with pytest.raises(BadSettings) as refused:
        read(**{name: "something"})
    assert str(refused.value) == (
        f"HOLDFAST_{purpose}_{given} is set, but HOLDFAST_{purpose}_{other} is not. Set both or neither."
    )


def test_keys_and_passwords_are_not_shown() -> None:
    settings = read(embedding_key="secret-one", chat_key="secret-two", database="postgresql://me:secret-three@db/one")
    assert "secret" not in repr(settings)
    assert "@db/one" in repr(settings)
    assert "secret" not in repr(Endpoint(base_url="https://me:secret@example.org/v1", embedding_model="m"))


def test_an_unknown_variable_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(BadSettings, match=r"No setting is named HOLDFAST_LEESE\. .*HOLDFAST_LEASE") as refused:
        read(leese="5")
    assert refused.value.subcode == "unknown_environment_variable"
    assert all(ENV_PREFIX + name.upper() in str(refused.value) for name in NAMES)


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("settings", "first", "second"),
    [
        ({"heartbeat": timedelta(seconds=120)}, "HOLDFAST_HEARTBEAT is 2m", "HOLDFAST_LEASE, which is 2m"),
        ({"lease": timedelta(seconds=29)}, "HOLDFAST_HEARTBEAT is 30s", "HOLDFAST_LEASE, which is 29s"),
        ({"lease": timedelta(hours=6)}, "HOLDFAST_LEASE is 6h", "HOLDFAST_DEADLINE, which is 6h"),
        ({"deadline": timedelta(seconds=61.5)}, "HOLDFAST_LEASE is 2m", "HOLDFAST_DEADLINE, which is 61.5s"),
        ({"backoff": timedelta(days=1)}, "HOLDFAST_BACKOFF is 1d", "HOLDFAST_BACKOFF_CAP, which is 15m"),
    ],
)
def test_two_contradicting_settings_are_refused_with_a_message_that_names_both(
    settings: dict[str, Any], first: str, second: str
) -> None:
    words = "(must be shorter than|must not be longer than)"
    with pytest.raises(BadSettings, match=f"^{re.escape(first)}, but {words} {re.escape(second)}") as refused:
        Settings(**settings)
    assert str(refused.value).endswith("Change one of them.")


def test_the_error_for_contradicting_settings_gives_the_reason() -> None:
    with pytest.raises(BadSettings) as refused:
        Settings(lease=timedelta(seconds=20))
    assert str(refused.value) == (
        "HOLDFAST_HEARTBEAT is 30s, but must be shorter than HOLDFAST_LEASE, which is 20s: a claim would expire before "
        "the worker renews it. Change one of them."
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"heartbeat": timedelta(seconds=119)},
        {"lease": timedelta(hours=6) - SECOND},
        {"backoff": timedelta(minutes=15)},
        {"backoff_jitter": 0.0},
        {"workers": 1, "claim_batch": 1, "rings_per_worker": 1, "attempts": 1, "lock_held_tries": 1},
        {"stall": timedelta(microseconds=1)},
    ],
    ids=str,
)
def test_settings_just_inside_the_limits_are_accepted(settings: dict[str, Any]) -> None:
    taken = Settings(**settings)
    assert {name: getattr(taken, name) for name in settings} == settings


@pytest.mark.parametrize(
    "name", ["heartbeat", "stall", "overtaken", "period", "ring_again", "backoff", "lock_held_delay", "retention"]
)
@pytest.mark.parametrize("nothing", [timedelta(), -SECOND])
def test_a_duration_of_zero_or_less_is_refused(name: str, nothing: timedelta) -> None:
    shown = f"HOLDFAST_{name.upper()} is {'-1s' if nothing else '0s'}. Set it to a duration longer than 0"
    with pytest.raises(BadSettings, match=re.escape(shown)):
        Settings(**dict[str, Any]({name: nothing}))


@pytest.mark.parametrize("name", ["workers", "claim_batch", "rings_per_worker", "attempts", "lock_held_tries"])
@pytest.mark.parametrize("number", [0, -3])
def test_a_count_below_one_is_refused(name: str, number: int) -> None:
    with pytest.raises(BadSettings, match=f"HOLDFAST_{name.upper()} is {number}. Set it to 1 or more."):
        Settings(**dict[str, Any]({name: number}))


@pytest.mark.parametrize("jitter", [-0.1, 1.0, float("nan")])
def test_a_jitter_that_could_reduce_a_delay_to_zero_is_refused(jitter: float) -> None:
    with pytest.raises(BadSettings, match=f"HOLDFAST_BACKOFF_JITTER is {jitter}. .* from 0 to less than 1"):
        Settings(backoff_jitter=jitter)


def test_allowed_roots_are_absolute_paths_separated_by_colons() -> None:
    assert Settings(folder_roots="/srv/docs: /mnt/team ").allowed_roots == ["/srv/docs", "/mnt/team"]
    assert Settings().allowed_roots == []
    with pytest.raises(BadSettings, match="HOLDFAST_FOLDER_ROOTS contains 'docs', which is not an absolute path"):
        Settings(folder_roots="/srv:docs")


def test_the_connections_are_derived_from_the_settings() -> None:
    assert Settings().connections == ConnectionOptions()
    changed = Settings(
        database_pool=2,
        database_overflow=3,
        database_wait=4 * SECOND,
        database_connect=5.5 * SECOND,
        database_lock=6 * SECOND,
        database_idle=7 * SECOND,
        database_statement=8 * SECOND,
        database_retry=9 * SECOND,
        database_pooler="transaction",
        database_direct="postgresql+psycopg://db/holdfast",
    ).connections
    assert changed == ConnectionOptions(
        pool=2,
        overflow=3,
        wait=4 * SECOND,
        connect=5.5 * SECOND,
        lock=6 * SECOND,
        idle=7 * SECOND,
        statement=8 * SECOND,
        retry=9 * SECOND,
        pooler="transaction",
        direct="postgresql+psycopg://db/holdfast",
    )
    assert changed.connect_seconds == 6
    assert changed.session_settings == {
        "lock_timeout": "6000",
        "idle_in_transaction_session_timeout": "7000",
        "statement_timeout": "8000",
        "jit": "off",
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


def test_the_file_gives_values_and_the_environment_wins(file: Path) -> None:
    file.write_text(
        'workers = 8\nlease = "3m"\nheartbeat = 20\nbackoff_jitter = 0.5\nchat_price_read = 2\nhost = "::1"\n'
    )
    settings = read(config=str(file), lease="4m")
    assert (settings.workers, settings.lease, settings.heartbeat) == (8, timedelta(minutes=4), timedelta(seconds=20))
    assert (settings.backoff_jitter, settings.chat_price_read, settings.host) == (0.5, 2.0, "::1")
    assert settings.config == str(file)
    given = read_given_values({"HOLDFAST_CONFIG": str(file), "HOLDFAST_LEASE": "4m", "PATH": "/bin"})
    origins = {name: value.origin for name, value in given.items()}
    in_file = dict.fromkeys(("workers", "heartbeat", "backoff_jitter", "chat_price_read", "host"), str(file))
    assert origins == {**in_file, "config": "environment", "lease": "environment"}


def refuse(file: Path, content: bytes | str) -> BadSettings:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadSettings) as refused:
        read(config=str(file))
    return refused.value


@pytest.mark.parametrize("name", ["leese", "config", "HOLDFAST_LEASE", "LEASE"])
def test_an_unknown_name_in_the_file_is_refused_with_the_file_and_the_name(file: Path, name: str) -> None:
    error = refuse(file, f"{name} = 5")
    assert error.subcode == "unknown_config_name"
    assert f"The settings file '{file}' contains '{name}', which is not a setting." in str(error)
    assert "heartbeat, deadline" in str(error)


def test_a_value_in_the_file_that_cannot_be_read_is_refused_with_the_file_and_the_name(file: Path) -> None:
    for content, words in {
        'lease = "soon"': f"`lease` in {file} is 'soon', which is not a duration.",
        "workers = 2.5": f"`workers` in {file} is '2.5', which is not a whole number.",
        'backoff_jitter = "high"': f"`backoff_jitter` in {file} is 'high', which is not a number.",
        'hosts = ["a", "b"]': f"In the settings file '{file}', 'hosts' is of type list.",
        "[lease]\nseconds = 5": f"In the settings file '{file}', 'lease' is of type dict.",
    }.items():
        assert words in str(refuse(file, content))


@pytest.mark.parametrize("content", ["workers: 4", "workers = 1\nworkers = 2", b"workers = \xff"])
def test_a_file_that_is_not_toml_is_refused(file: Path, content: bytes | str) -> None:
    error = refuse(file, content)
    assert error.subcode == "config_not_toml"
    assert f"The settings file '{file}' is not valid TOML" in str(error)


def test_a_file_that_does_not_exist_is_refused(file: Path) -> None:
    with pytest.raises(BadSettings, match=f"HOLDFAST_CONFIG names '{file}', which cannot be read .No such file"):
        read(config=str(file))


@pytest.mark.parametrize("name", ["compact_limit", "database_overflow"])
def test_a_limit_below_zero_is_refused(name: str) -> None:
    with pytest.raises(BadSettings, match=f"HOLDFAST_{name.upper()} is -1. Set it to 0 or more."):
        Settings(**dict[str, Any]({name: -1}))
