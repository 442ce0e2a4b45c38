"""Writes the rows of very many indexed documents into a database, fast: INSERT … SELECT from a range of numbers.

On PostgreSQL no triggers run. On SQLite they do, so owners come first, and standings overwrite those of the triggers.
Half of the documents are in folders, some are queued, some have failed. Each has one chunk with words of several
frequencies.
"""
# ruff: noqa: S608 - SQL from constants

from __future__ import annotations

import hashlib
import time
from operator import mod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.catalog.repository import Base
    from holdfast.db.database import Transaction

QUEUED_SHARE, FAILED_SHARE = 10, 50  # one of so many documents
FOLDER_SIZE = 1_000  # half of the documents are in folders
FIRST_FOLDER, FIRST_DOCUMENT = 1_000, 100_000  # ids of generated items
_CASES = f"CASE WHEN mod(i, {FAILED_SHARE}) = 0 THEN 'failed' WHEN mod(i, {QUEUED_SHARE}) = 1 THEN 'queued'"
STATUS, STATE = f"{_CASES} ELSE 'success' END", f"{_CASES} ELSE 'ready' END"
ID = f"({FIRST_DOCUMENT} + i)"
NAME, MD5 = f"CAST({ID} AS TEXT)", "md5(CAST(i AS TEXT))"
FOLDER = f"({FIRST_FOLDER} + (i - 1) / {2 * FOLDER_SIZE})"
PARENT = f"CASE WHEN mod(i, 2) = 0 THEN {FOLDER} ELSE 0 END"
WORDS = "'unique' || i || ' rare' || (i / 50) || ' often' || mod(i, 100)"  # SQLite divides after `||`
# Each statement reads `i` from `numbers`; {base} is the id of the base, {at} a time of the document.
FILL = (
    f"""INSERT INTO owners (id, base, owner, generation, status, created_at)
    SELECT {ID}, '{{base}}', {NAME}, 1, {STATUS}, 1 FROM numbers""",
    f"""INSERT INTO library_items (id, base_id, kind, name, folded, created_at, changed_at)
    SELECT DISTINCT {FOLDER}, {{base}}, 'directory', 'folder ' || {FOLDER}, 'folder ' || {FOLDER}, 1, 1 FROM numbers
    WHERE true ON CONFLICT DO NOTHING""",
    f"""INSERT INTO library_standings (item_id, base_id, parent_id, container, problem)
    SELECT DISTINCT {FOLDER}, {{base}}, 0, 1, 0 FROM numbers WHERE true ON CONFLICT DO NOTHING""",
    f"""INSERT INTO library_items
      (id, base_id, parent_id, kind, name, folded, blob, digest, size, created_at, changed_at)
    SELECT {ID}, {{base}}, {PARENT}, 'file', 'File ' || {MD5}, 'file ' || {MD5}, 'blob-' || i,
      {MD5}, mod(i, 5000), {{at}}, {{at}} FROM numbers""",
    f"""INSERT INTO library_standings (item_id, base_id, parent_id, container, problem, document, served)
    SELECT {ID}, {{base}}, {PARENT}, 0, 0, {STATUS}, 1 FROM numbers
    WHERE true ON CONFLICT (item_id) DO UPDATE SET document = excluded.document, served = excluded.served""",
    f"""INSERT INTO slots (owner_id, kind, needs, job, wanted, built, source, state, priority, queued_at, claimed_at,
      fence, recipe)
    SELECT {ID}, kind, CASE kind WHEN 'content' THEN NULL ELSE 'content' END, 'document-' || i, 1,
      CASE {STATE} WHEN 'ready' THEN 1 ELSE 0 END, 1,
      CASE WHEN kind <> 'content' AND {STATE} = 'queued' THEN 'blocked' ELSE {STATE} END, 5, {{at}},
      CASE {STATE} WHEN 'queued' THEN NULL ELSE 1 END, 1, CASE {STATE} WHEN 'ready' THEN recipe ELSE NULL END
    FROM numbers,
      (SELECT 'content' AS kind, {{content}} AS recipe UNION ALL SELECT 'fulltext', {{fulltext}}) AS kinds""",
    f"""INSERT INTO jobs (id, owner_id, base, owner, generation, operation, cause, requester, priority, open, outcome,
      created_at, finished_at)
    SELECT 'document-' || i, {ID}, '{{base}}', {NAME}, 1, 'index', 'user', '', 5,
      CASE {STATE} WHEN 'queued' THEN 2 ELSE 0 END,
      CASE {STATE} WHEN 'ready' THEN 'success' WHEN 'failed' THEN 'failed' END, {{at}},
      CASE {STATE} WHEN 'queued' THEN NULL ELSE {{at}} END FROM numbers""",
    f"""INSERT INTO events (at, type, base, owner, kind, job, generation, fence, data, xid)
    SELECT {{at}}, type, '{{base}}', {NAME}, 'content', 'document-' || i, 1, 1, '{{{{}}}}', {{xid}} FROM numbers,
      (SELECT 'slot.claimed' AS type UNION ALL SELECT 'slot.completed' UNION ALL SELECT 'job.success') AS types""",
    f"""INSERT INTO duplicates (at, base, owner, operation, verdict, reason, requester, cost)
    SELECT {{at}}, '{{base}}', {NAME}, 'index', 'joined', 'active', '', 0 FROM numbers WHERE mod(i, 10) = 0""",
    f"""INSERT INTO library_builds (owner_id, build, pages, facts, length, settled)
    SELECT {ID}, 1, '[]', '{{{{}}}}', 400, 1 FROM numbers""",
    f"""INSERT INTO library_chunks (id, owner_id, digest, headings, text, opening)
    SELECT {ID}, {ID}, {MD5}, '[]', {WORDS} ||
      repeat(' ' || {MD5}, 8), 1 FROM numbers""",
    f"""INSERT INTO library_lists (owner_id, chunk_id, build, ordinal, start, body, stop)
    SELECT {ID}, {ID}, 1, 0, 0, 0, 300 FROM numbers""",
)
FILL_FULLTEXT = {
    "postgresql": f"""INSERT INTO fulltext_{{fulltext}} (chunk, words, length)
    SELECT {ID}, to_tsvector('simple', {WORDS} || ' common'), 12 FROM numbers""",
    "sqlite": f"""INSERT INTO fulltext_{{fulltext}} (rowid, headings, body)
    SELECT {ID}, '', {WORDS} || ' common' FROM numbers""",
}
NUMBERS = """WITH RECURSIVE numbers (i) AS
  (SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM numbers WHERE i < {last}) """
XID = {"postgresql": "1 + i / 2000", "sqlite": "0"}
SECOND = 1_000_000  # between two documents, in microseconds
SEQUENCES = ("library_items", "library_chunks", "owners")
NEXT_ID = 100_000_000  # of rows that operations write


def generate_documents(tx: Transaction, base: Base, first: int, last: int) -> None:
    """Write documents with these numbers into a base that serves a document with the index `fulltext`."""
    database = tx.connection.dialect.name
    recipes = tx.run_sql(f"SELECT kind, max(id) FROM library_recipes WHERE base = '{base.key}' GROUP BY 1")
    if database == "sqlite":
        _add_functions(tx)
    else:
        tx.run_sql("SET LOCAL session_replication_role = replica")  # no triggers: the rows are complete
        tx.run_sql("SET LOCAL statement_timeout = 0")
    oldest = time.time_ns() // 1000 - 2_000_000 * SECOND
    values = {"base": base.id, "at": f"({oldest} + i * {SECOND})", "xid": XID[database], "content": 0} | dict(recipes)
    for statement in (*FILL, FILL_FULLTEXT[database]):
        tx.run_sql(NUMBERS.format(first=first, last=last) + statement.format(**values))
    for table in SEQUENCES:
        if database == "sqlite":
            tx.run_sql(f"UPDATE sqlite_sequence SET seq = {NEXT_ID + last} WHERE name = '{table}'")
        else:
            tx.run_sql(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {NEXT_ID + last})")


def _add_functions(tx: Transaction) -> None:
    """Give SQLite the functions that the statements use and PostgreSQL has."""
    sqlite: Any = tx.connection.connection.driver_connection
    sqlite.create_function("mod", 2, mod)
    sqlite.create_function("md5", 1, lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest())
    sqlite.create_function("repeat", 2, lambda text, times: text * times)
