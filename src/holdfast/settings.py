"""All settings, read once from the environment and from the TOML file that `HOLDFAST_CONFIG` names.

Each field is an environment variable: `lease` is `HOLDFAST_LEASE`, and `lease` in the file. The environment wins.
Durations are written as seconds or with a unit: `90`, `30s`, `45m`, `6h`, `30d`. Contradictory settings are refused
before anything starts.

    settings = Settings.from_environment()
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine import RetryPolicy, Rules
from holdfast.errors import BadSettings
from holdfast.logs import LOG_FORMATS, TEXT
from holdfast.messages import format_message
from holdfast.url_secrets import MASK, mask_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.db import ConnectionOptions

ENV_PREFIX = "HOLDFAST_"
CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"  # the path of the TOML file
FROM_DEFAULT, FROM_ENVIRONMENT = "default", "environment"
DATABASE_FILE, DATA_FOLDER = "holdfast.db", "files"  # in the home folder
KEY_MODES = ("auto", "on")
POOLERS = ("", "transaction")
LOG_LEVELS = ("", "debug", "info", "warning")
POSITIVE_DURATIONS = (
    "drain",
    "heartbeat",
    "stall",
    "overtaken",
    "period",
    "ring_again",
    "backoff",
    "lock_held_delay",
    "retention",
    "database_wait",
    "database_connect",
)
POSITIVE_COUNTS = (
    "workers",
    "claim_batch",
    "rings_per_worker",
    "attempts",
    "lock_held_tries",
    "upload_limit",
    "streams",
    "streams_per_key",
    "database_pool",
)
COUNTS_FROM_ZERO = ("compact_limit", "database_overflow")
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DURATION = timedelta(days=36_500)  # a hundred years, so that times fit into the database
MAX_PORT = 2**16 - 1
EXAMPLE_NUMBER = 0.5
DURATION_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


class GivenValue(NamedTuple):
    """A value that somebody has set."""

    text: str
    origin: str  # `FROM_ENVIRONMENT`, or the path of the file
    shown_name: str  # in messages


class DescribedSetting(NamedTuple):
    name: str
    value: Any
    meaning: str
    secret: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each setting with its default. The catalogue has their meanings. Invalid values raise `BadSettings`."""

    config: str = ""
    production: bool = False
    home: str = ""
    database: str = ""
    data: str = ""
    s3_endpoint: str = ""
    scheduler: str = "embedded"
    broker: str = ""
    queue_prefix: str = "holdfast"
    workers: int = 2
    claim_batch: int = 100

    database_pool: int = 8
    database_overflow: int = 32
    database_wait: timedelta = timedelta(seconds=30)
    database_connect: timedelta = timedelta(seconds=10)
    database_lock: timedelta = timedelta(seconds=30)
    database_idle: timedelta = timedelta(seconds=60)
    database_statement: timedelta = timedelta()
    database_retry: timedelta = timedelta(seconds=10)
    database_pooler: str = ""
    database_direct: str = ""

    lease: timedelta = timedelta(seconds=120)
    heartbeat: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(hours=6)
    stall: timedelta = timedelta(minutes=45)
    long_running: timedelta = timedelta(minutes=30)
    overtaken: timedelta = timedelta(minutes=10)
    period: timedelta = timedelta(seconds=30)
    ring_again: timedelta = timedelta(seconds=60)
    rings_per_worker: int = 2

    attempts: int = 4
    backoff: timedelta = timedelta(seconds=60)
    backoff_cap: timedelta = timedelta(minutes=15)
    backoff_jitter: float = 0.2
    lock_held_delay: timedelta = timedelta(seconds=15)
    lock_held_tries: int = 10

    retention: timedelta = timedelta(days=30)

    host: str = "127.0.0.1"
    port: int = 7340
    hosts: str = ""
    key: str = field(default="", repr=False)
    keys: str = "auto"
    upload_limit: int = 200
    drain: timedelta = timedelta(minutes=10)
    health_port: int = 0
    metrics_token: str = field(default="", repr=False)

    streams: int = 1000
    streams_per_key: int = 100

    secret_key: str = field(default="", repr=False)
    fetch_allow: str = ""
    folder_roots: str = ""
    webhook_allow: str = ""

    log: str = ""
    log_format: str = TEXT

    compact_limit: int = 512
    search_memory: int = 512

    embedding_url: str = ""
    embedding_model: str = ""
    embedding_version: str = "1"
    embedding_key: str = field(default="", repr=False)
    embedding_price: float | None = None
    chat_url: str = ""
    chat_model: str = ""
    chat_version: str = "1"
    chat_key: str = field(default="", repr=False)
    chat_price_read: float | None = None
    chat_price_written: float | None = None

    def __post_init__(self) -> None:
        self._fill_defaults()
        self._check_order()
        self._check_numbers()
        self._check_ports()
        self._check_choices()
        if self.production:
            self._check_production()

    def __repr__(self) -> str:
        shown = (f"{setting.name}={getattr(self, setting.name)!r}" for setting in fields(self) if setting.repr)
        return mask_secrets(f"Settings({', '.join(shown)})")

    def describe(self) -> list[DescribedSetting]:
        """Return all settings for display, with secrets masked."""
        return [
            DescribedSetting(
                setting.name,
                _mask(getattr(self, setting.name), secret=not setting.repr),
                format_message(f"setting.{setting.name}", {}),
                secret=not setting.repr,
            )
            for setting in fields(self)
        ]

    def _fill_defaults(self) -> None:
        """Set the paths that follow from the home folder."""
        home = Path(self.home).expanduser() if self.home else default_home()
        defaults = {"home": str(home), "database": f"sqlite:///{home / DATABASE_FILE}", "data": str(home / DATA_FOLDER)}
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    def _check_order(self) -> None:
        self._require_shorter("heartbeat", "lease", why="lease_without_renewal")
        self._require_shorter("lease", "deadline", why="attempt_within_lease")
        if self.backoff > self.backoff_cap:
            raise BadSettings(
                "duration_above_cap",
                name=_variable("backoff"),
                value=_format_duration(self.backoff),
                other=_variable("backoff_cap"),
                limit=_format_duration(self.backoff_cap),
            )

    def _check_numbers(self) -> None:
        for name in POSITIVE_DURATIONS:
            duration = getattr(self, name)
            if duration <= timedelta():
                raise BadSettings("duration_not_positive", name=_variable(name), value=_format_duration(duration))
        for name in POSITIVE_COUNTS:
            if getattr(self, name) < 1:
                raise BadSettings("setting_below_one", name=_variable(name), value=getattr(self, name))
        for name in COUNTS_FROM_ZERO:
            if getattr(self, name) < 0:
                raise BadSettings("setting_below_zero", name=_variable(name), value=getattr(self, name))
        self._check_ranges()

    def _check_ranges(self) -> None:
        for name in ("embedding_price", "chat_price_read", "chat_price_written"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < math.inf:
                raise BadSettings("setting_price", name=_variable(name), value=price)
        if not 0 <= self.backoff_jitter < 1:
            raise BadSettings("setting_jitter", name=_variable("backoff_jitter"), value=self.backoff_jitter)

    def _check_ports(self) -> None:
        for name in ("port", "health_port"):
            if not 0 <= getattr(self, name) <= MAX_PORT:
                raise BadSettings("setting_port", name=_variable(name), value=getattr(self, name), largest=MAX_PORT)

    def _check_choices(self) -> None:
        for name, choices in (
            ("keys", KEY_MODES),
            ("log", LOG_LEVELS),
            ("log_format", LOG_FORMATS),
            ("database_pooler", POOLERS),
        ):
            if getattr(self, name) not in choices:
                known = ", ".join(filter(None, choices))
                raise BadSettings("setting_choice", name=_variable(name), value=getattr(self, name), choices=known)
        for root in self.allowed_roots:
            if not Path(root).is_absolute():
                raise BadSettings("setting_path_relative", name=_variable("folder_roots"), value=root)
        for url, model in (("embedding_url", "embedding_model"), ("chat_url", "chat_model")):
            if bool(getattr(self, url)) != bool(getattr(self, model)):
                given, other = (url, model) if getattr(self, url) else (model, url)
                raise BadSettings("provider_half_set", name=_variable(given), other=_variable(other))

    def _check_production(self) -> None:
        """Refuse settings that work only on one machine, or without protection."""
        if self.database.startswith("sqlite"):
            raise BadSettings("production_sqlite", name=_variable("database"))
        if not self.secret_key:
            raise BadSettings("production_secret_key", name=_variable("secret_key"))
        if self.keys != "on":
            raise BadSettings("production_keys", name=_variable("keys"), value=self.keys)

    @property
    def allowed_roots(self) -> list[str]:
        """The folders below which callers with a key may name folders."""
        return [part.strip() for part in self.folder_roots.split(os.pathsep) if part.strip()]

    @property
    def needs_key(self) -> bool:
        """Whether every request needs a key, also before the first key exists."""
        return self.keys == "on" or bool(self.hosts) or not _is_loopback(self.host)

    @property
    def rules(self) -> Rules:
        """The settings of the engine."""
        return Rules(
            lease=self.lease,
            heartbeat=self.heartbeat,
            stall=self.stall,
            long_running=self.long_running,
            overtaken_after=self.overtaken,
            deadline=self.deadline,
            ring_again=self.ring_again,
            retry=RetryPolicy(
                max_attempts=self.attempts,
                first_delay=self.backoff,
                max_delay=self.backoff_cap,
                jitter=self.backoff_jitter,
            ),
        )

    @property
    def connections(self) -> ConnectionOptions:
        """The settings of connections to PostgreSQL."""
        from holdfast.db import ConnectionOptions  # noqa: PLC0415 - loads SQLAlchemy, which few commands need

        return ConnectionOptions(
            pool=self.database_pool,
            overflow=self.database_overflow,
            wait=self.database_wait,
            connect=self.database_connect,
            lock=self.database_lock,
            idle=self.database_idle,
            statement=self.database_statement,
            retry=self.database_retry,
            pooler=self.database_pooler,
            direct=self.database_direct,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings. Unknown names are refused, so that a typing error is noticed."""
        known = {setting.name: setting for setting in fields(cls)}
        given = read_given_values(os.environ if environment is None else environment)
        return cls(**{name: _parse(value, known[name].default) for name, value in given.items()})

    def _require_shorter(self, name: str, other: str, *, why: str) -> None:
        duration, limit = getattr(self, name), getattr(self, other)
        if duration >= limit:
            raise BadSettings(
                "duration_not_shorter",
                name=_variable(name),
                value=_format_duration(duration),
                other=_variable(other),
                limit=_format_duration(limit),
                why=why,
            )


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def read_given_values(environment: Mapping[str, str]) -> dict[str, GivenValue]:
    """Return the values from the environment and from the TOML file that it names. The environment wins."""
    known = [setting.name for setting in fields(Settings)]
    given = {
        name[len(ENV_PREFIX) :].lower(): GivenValue(text, FROM_ENVIRONMENT, name)
        for name, text in environment.items()
        if name.startswith(ENV_PREFIX)
    }
    for name in given.keys() - known:
        raise BadSettings("unknown_environment_variable", name=_variable(name), known=", ".join(map(_variable, known)))
    path = environment.get(CONFIG_VARIABLE, "")
    return {**_read_config_file(path, known[1:]), **given} if path else given  # a file names no other file


def _read_config_file(path: str, known: list[str]) -> dict[str, GivenValue]:
    """Read a TOML file. Its keys are the names of settings in lower case."""
    try:
        with Path(path).expanduser().open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        detail = error.strerror or error
        raise BadSettings("config_unreadable", name=CONFIG_VARIABLE, path=path, detail=detail) from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise BadSettings("config_not_toml", path=path, detail=error) from error
    return {name: _read_config_value(path, name, value, known) for name, value in content.items()}


def _read_config_value(path: str, name: str, value: object, known: list[str]) -> GivenValue:
    if name not in known:
        raise BadSettings("unknown_config_name", path=path, name=name, known=", ".join(known))
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, str | int | float):
        raise BadSettings("config_value_type", path=path, name=name, type=type(value).__name__)
    return GivenValue(str(value), path, f"`{name}` in {path}")


def default_home() -> Path:
    """Return the home folder for an empty `HOLDFAST_HOME`."""
    data_home = os.environ.get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "holdfast"


def _mask(value: Any, *, secret: bool) -> Any:
    if not isinstance(value, str):
        return value
    return MASK if secret and value else mask_secrets(value)


def _parse(value: GivenValue, default: Any) -> Any:
    """Parse a value as the type of its default."""
    name, text = value.shown_name, value.text
    try:
        if isinstance(default, bool):
            return _parse_switch(text)
        if isinstance(default, timedelta):
            return parse_duration(text)
        if default is None:
            return float(text) if text else None
        return type(default)(text)
    except ValueError as error:
        if isinstance(default, bool):
            raise BadSettings("setting_not_a_switch", name=name, value=text) from error
        if isinstance(default, timedelta):
            longest = _format_duration(MAX_DURATION)
            raise BadSettings("setting_not_a_duration", name=name, value=text, longest=longest) from error
        if isinstance(default, int):
            raise BadSettings("setting_not_an_integer", name=name, value=text, default=default) from error
        raise BadSettings("setting_not_a_number", name=name, value=text, example=EXAMPLE_NUMBER) from error


def _variable(setting: str) -> str:
    """Return the name of the environment variable of a setting."""
    return ENV_PREFIX + setting.upper()


def _format_duration(duration: timedelta) -> str:
    """Return a duration in the form in which users write it, such as `2m` for 120 seconds."""
    seconds = duration.total_seconds()
    unit = next((unit for unit in "dhm" if seconds and not seconds % UNIT_SECONDS[unit]), "s")
    return f"{seconds / UNIT_SECONDS[unit]:g}{unit}"


def _parse_switch(text: str) -> bool:
    words = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
    if text.strip().lower() not in ({*words, ""}):
        raise ValueError(text)
    return words.get(text.strip().lower(), False)


def parse_duration(text: str) -> timedelta:
    """Parse a duration as users write it, such as `90`, `90s` or `2h`; ValueError if it is none or too long."""
    match = DURATION_PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    number, unit = match.groups()
    seconds = float(number) * UNIT_SECONDS[unit or "s"]
    if seconds > MAX_DURATION.total_seconds():
        raise ValueError(text)
    return timedelta(seconds=seconds)
