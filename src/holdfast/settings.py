"""All settings, read once from the environment.

Each field is an environment variable: `lease` is `HOLDFAST_LEASE`. Durations are written as seconds or with a unit:
`90`, `30s`, `45m`, `6h`, `30d`. Contradictory settings are refused before anything starts.

    settings = Settings.from_environment()
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine import RetryPolicy, Rules
from holdfast.errors import BadSettings
from holdfast.messages import format_message
from holdfast.url_secrets import MASK, mask_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_PREFIX = "HOLDFAST_"
DATABASE_FILE, DATA_FOLDER = "holdfast.db", "files"  # in the home folder
KEY_MODES = ("auto", "on")
LOG_LEVELS = ("", "debug", "info", "warning")
POSITIVE_DURATIONS = (
    "heartbeat",
    "stall",
    "overtaken",
    "period",
    "ring_again",
    "backoff",
    "lock_held_delay",
    "retention",
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
)
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DURATION = timedelta(days=36_500)  # a hundred years, so that times fit into the database
MAX_PORT = 2**16 - 1
EXAMPLE_NUMBER = 0.5
DURATION_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


class DescribedSetting(NamedTuple):
    name: str
    value: Any
    meaning: str
    secret: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each setting with its default. The catalogue has their meanings. Invalid values raise `BadSettings`."""

    home: str = ""
    database: str = ""
    data: str = ""
    scheduler: str = "embedded"
    workers: int = 2
    claim_batch: int = 100

    lease: timedelta = timedelta(seconds=120)
    heartbeat: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(hours=6)
    stall: timedelta = timedelta(minutes=45)
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

    streams: int = 1000
    streams_per_key: int = 100

    secret_key: str = field(default="", repr=False)
    fetch_allow: str = ""
    folder_roots: str = ""
    webhook_allow: str = ""

    log: str = ""

    compact_limit: int = 512
    words_memory: int = 60

    embedding_url: str = ""
    embedding_model: str = ""
    embedding_key: str = field(default="", repr=False)
    embedding_price: float | None = None
    chat_url: str = ""
    chat_model: str = ""
    chat_key: str = field(default="", repr=False)
    chat_price_read: float | None = None
    chat_price_written: float | None = None

    def __post_init__(self) -> None:
        self._fill_defaults()
        self._check_order()
        self._check_numbers()
        self._check_choices()

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
        for name in ("embedding_price", "chat_price_read", "chat_price_written"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < math.inf:
                raise BadSettings("setting_price", name=_variable(name), value=price)
        if self.compact_limit < 0:
            raise BadSettings("setting_below_zero", name=_variable("compact_limit"), value=self.compact_limit)
        if not 0 <= self.backoff_jitter < 1:
            raise BadSettings("setting_jitter", name=_variable("backoff_jitter"), value=self.backoff_jitter)
        if not 0 <= self.port <= MAX_PORT:
            raise BadSettings("setting_port", name=_variable("port"), value=self.port, largest=MAX_PORT)

    def _check_choices(self) -> None:
        for name, choices in (("keys", KEY_MODES), ("log", LOG_LEVELS)):
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

    @property
    def allowed_roots(self) -> list[str]:
        """The folders below which callers with a key may name folders."""
        return [part.strip() for part in self.folder_roots.split(os.pathsep) if part.strip()]

    @property
    def rules(self) -> Rules:
        """The settings of the engine."""
        return Rules(
            lease=self.lease,
            heartbeat=self.heartbeat,
            stall=self.stall,
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

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings. Unknown variables with our prefix are refused, so that a typing error is noticed."""
        environment = os.environ if environment is None else environment
        given = {
            name[len(ENV_PREFIX) :].lower(): text for name, text in environment.items() if name.startswith(ENV_PREFIX)
        }
        known = {setting.name: setting for setting in fields(cls)}
        for name in given.keys() - known.keys():
            raise BadSettings(
                "unknown_environment_variable", name=_variable(name), known=", ".join(map(_variable, known))
            )
        return cls(**{name: _parse(name, text, known[name].default) for name, text in given.items()})

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


def default_home() -> Path:
    """Return the home folder for an empty `HOLDFAST_HOME`."""
    data_home = os.environ.get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "holdfast"


def _mask(value: Any, *, secret: bool) -> Any:
    if not isinstance(value, str):
        return value
    return MASK if secret and value else mask_secrets(value)


def _parse(name: str, text: str, default: Any) -> Any:
    """Parse a value as the type of its default."""
    try:
        if isinstance(default, timedelta):
            return _parse_duration(text)
        if default is None:
            return float(text) if text else None
        return type(default)(text)
    except ValueError as error:
        variable = _variable(name)
        if isinstance(default, timedelta):
            longest = _format_duration(MAX_DURATION)
            raise BadSettings("setting_not_a_duration", name=variable, value=text, longest=longest) from error
        if isinstance(default, int):
            raise BadSettings("setting_not_an_integer", name=variable, value=text, default=default) from error
        raise BadSettings("setting_not_a_number", name=variable, value=text, example=EXAMPLE_NUMBER) from error


def _variable(setting: str) -> str:
    """Return the name of the environment variable of a setting."""
    return ENV_PREFIX + setting.upper()


def _format_duration(duration: timedelta) -> str:
    """Return a duration in the form in which users write it, such as `2m` for 120 seconds."""
    seconds = duration.total_seconds()
    unit = next((unit for unit in "dhm" if seconds and not seconds % UNIT_SECONDS[unit]), "s")
    return f"{seconds / UNIT_SECONDS[unit]:g}{unit}"


def _parse_duration(text: str) -> timedelta:
    match = DURATION_PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    number, unit = match.groups()
    seconds = float(number) * UNIT_SECONDS[unit or "s"]
    if seconds > MAX_DURATION.total_seconds():
        raise ValueError(text)
    return timedelta(seconds=seconds)
