"""How a process connects to PostgreSQL: pool, timeouts, and a pooler in front of the server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

TRANSACTION_POOLER = "transaction"  # each transaction may run on another connection of the server


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The connections of one process. A duration of 0 means: no limit."""

    pool: int = 8  # connections that stay open
    overflow: int = 32  # further connections while all others are in use
    wait: timedelta = timedelta(seconds=30)  # for a free connection of the pool
    connect: timedelta = timedelta(seconds=10)  # to open a connection
    lock: timedelta = timedelta(seconds=30)  # for a lock that another transaction holds
    idle: timedelta = timedelta(seconds=60)  # of an open transaction between two statements
    statement: timedelta = timedelta()  # of one statement
    retry: timedelta = timedelta(seconds=10)  # while the server is unreachable, writes are repeated
    pooler: str = ""
    direct: str = ""  # address of the server behind the pooler

    @property
    def pooled(self) -> bool:
        """Whether settings, prepared statements and LISTEN of a session are lost between two transactions."""
        return self.pooler == TRANSACTION_POOLER

    @property
    def session_settings(self) -> dict[str, str]:
        """The timeouts as settings of PostgreSQL, and no JIT: compiling takes longer than any statement here."""
        timeouts = {
            "lock_timeout": self.lock,
            "idle_in_transaction_session_timeout": self.idle,
            "statement_timeout": self.statement,
        }
        limits = {name: str(timeout // timedelta(milliseconds=1)) for name, timeout in timeouts.items()}
        return limits | {"jit": "off"}

    @property
    def connect_seconds(self) -> int:
        """The connect timeout in whole seconds, as libpq wants it: at least 2."""
        return max(2, -(-self.connect // timedelta(seconds=1)))
