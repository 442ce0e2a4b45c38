"""Databases: transactions, SQLite and PostgreSQL dialects, batches, notifications, migrations."""

from holdfast.db.batches import LIMIT, NOW, XID, batch, largest, number, smallest, word
from holdfast.db.database import Database, Transaction
from holdfast.db.notify import Bell, Listener, MemoryBell
from holdfast.db.schema import Id, metadata, one_of, only
from holdfast.db.secure_delete import Obstacle, Stage

__all__ = [
    "LIMIT",
    "NOW",
    "XID",
    "Bell",
    "Database",
    "Id",
    "Listener",
    "MemoryBell",
    "Obstacle",
    "Stage",
    "Transaction",
    "batch",
    "largest",
    "metadata",
    "number",
    "one_of",
    "only",
    "smallest",
    "word",
]
