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
        self._require_shorter(self.heartbeat < self.lease, "heartbeat", "lease", "a claim would end before its renewal")
        self._require_shorter(self.lease < self.deadline, "lease", "deadline", "an attempt would end before its claim")
        self._require_shorter(
            self.backoff <= self.backoff_cap, "backoff", "backoff_cap", "no wait could be long enough"
        )

    def _check_numbers(self) -> None:
        for name in POSITIVE_DURATIONS:
            if getattr(self, name) <= timedelta():
                raise BadSettings(f"{ENV_PREFIX}{name.upper()} must be longer than nothing.")
        for name in POSITIVE_COUNTS:
            if getattr(self, name) < 1:
                raise BadSettings(f"{ENV_PREFIX}{name.upper()} must be at least 1, not {getattr(self, name)}.")
        for name in ("embedding_price", "chat_price_read", "chat_price_written"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < math.inf:
                raise BadSettings(f"{ENV_PREFIX}{name.upper()} must be a price of 0 or more, not {price}.")
        if self.compact_limit < 0:
            raise BadSettings(f"{ENV_PREFIX}COMPACT_LIMIT must be 0 or more megabytes, not {self.compact_limit}.")
        if not 0 <= self.backoff_jitter < 1:
            raise BadSettings(f"{ENV_PREFIX}BACKOFF_JITTER must be from 0 to below 1, not {self.backoff_jitter}.")
        if not 0 <= self.port < 2**16:
            raise BadSettings(f"{ENV_PREFIX}PORT must be from 0 to 65535, not {self.port}.")

    def _check_choices(self) -> None:
        if self.keys not in KEY_MODES:
            raise BadSettings(f"{ENV_PREFIX}KEYS is {self.keys!r}; write {' or '.join(KEY_MODES)}.")
        if self.log not in LOG_LEVELS:
            raise BadSettings(f"{ENV_PREFIX}LOG is {self.log!r}; write {', '.join(LOG_LEVELS[1:])}, or nothing.")
        for root in self.allowed_roots:
            if not Path(root).is_absolute():
                raise BadSettings(
                    f"{ENV_PREFIX}FOLDER_ROOTS has {root!r}; write absolute paths, with colons between them."
                )
        for purpose in ("embedding", "chat"):
            if bool(getattr(self, f"{purpose}_url")) != bool(getattr(self, f"{purpose}_model")):
                name = f"{ENV_PREFIX}{purpose.upper()}"
                raise BadSettings(f"{name}_URL and {name}_MODEL go together: set both or neither.")

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
                f"There is no setting {ENV_PREFIX}{name.upper()}; known are "
                + ", ".join(ENV_PREFIX + setting.upper() for setting in known)
                + "."
            )
        return cls(**{name: _parse(name, text, known[name].default) for name, text in given.items()})

    def _require_shorter(self, holds: bool, smaller: str, larger: str, why: str) -> None:
        if not holds:
            raise BadSettings(
                f"{ENV_PREFIX}{smaller.upper()} ({getattr(self, smaller)}) must be shorter than "
                f"{ENV_PREFIX}{larger.upper()} ({getattr(self, larger)}): {why}. Change one of them."
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
        wanted = "a duration like 90, 30s, 45m, 6h or 30d" if isinstance(default, timedelta) else "a number"
        raise BadSettings(f"{ENV_PREFIX}{name.upper()} is {text!r}; write {wanted}.") from error


def _parse_duration(text: str) -> timedelta:
    match = DURATION_PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    number, unit = match.groups()
    seconds = float(number) * UNIT_SECONDS[unit or "s"]
    if seconds > MAX_DURATION.total_seconds():
        raise ValueError(text)
    return timedelta(seconds=seconds)
