"""Databases: transactions, SQLite and PostgreSQL dialects, batches, notifications, migrations."""

from holdfast.db.batches import (
    LIMIT,
    MAX_ID,
    NOW,
    OLDEST_RUNNING_XID,
    UNSYNCED,
    XID,
    batch,
    for_each,
    greatest,
    int_param,
    is_in,
    is_one_of,
    least,
    text_literal,
    text_param,
)
from holdfast.db.connection_options import ConnectionOptions
from holdfast.db.database import Database, Transaction
from holdfast.db.notify import Listener, MemoryNotifier, Notifier
from holdfast.db.schema import IdType, make_in_condition, metadata, partial_index
from holdfast.db.secure_delete import Obstacle, SecureDeleteStage
from holdfast.db.table_names import TableNames

__all__ = [
    "LIMIT",
    "MAX_ID",
    "NOW",
    "OLDEST_RUNNING_XID",
    "UNSYNCED",
    "XID",
    "ConnectionOptions",
    "Database",
    "IdType",
    "Listener",
    "MemoryNotifier",
    "Notifier",
    "Obstacle",
    "SecureDeleteStage",
    "TableNames",
    "Transaction",
    "batch",
    "for_each",
    "greatest",
    "int_param",
    "is_in",
    "is_one_of",
    "least",
    "make_in_condition",
    "metadata",
    "partial_index",
    "text_literal",
    "text_param",
]
