"""Writes the rows of very many indexed documents into PostgreSQL, fast: INSERT … SELECT generate_series, no triggers.

Half of the documents are in folders, some are queued, some have failed. Each has one chunk with words of several
frequencies.
"""
# ruff: noqa: S608 - SQL from constants

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.catalog.repository import Base
    from holdfast.db.database import Transaction

QUEUED_SHARE, FAILED_SHARE = 10, 50  # one of so many documents
FOLDER_SIZE = 1_000  # half of the documents are in folders
FIRST_FOLDER, FIRST_DOCUMENT = 1_000, 100_000  # ids of generated items
_CASES = f"CASE WHEN mod(i, {FAILED_SHARE}) = 0 THEN 'failed' WHEN mod(i, {QUEUED_SHARE}) = 1 THEN 'queued'"
STATUS, STATE = f"{_CASES} ELSE 'success' END", f"{_CASES} ELSE 'ready' END"
ID = f"({FIRST_DOCUMENT} + i)"
FOLDER = f"({FIRST_FOLDER} + (i - 1) / {2 * FOLDER_SIZE})"
PARENT = f"CASE WHEN mod(i, 2) = 0 THEN {FOLDER} ELSE 0 END"
# Each statement reads `i` from the range of new documents; {base} is the id of the base, {at} a time of the document.
FILL = (
    f"""INSERT INTO library_items (id, base_id, kind, name, folded, created_at, changed_at)
    SELECT DISTINCT {FOLDER}, {{base}}, 'directory', 'folder ' || {FOLDER}, 'folder ' || {FOLDER}, 1, 1 FROM range
    ON CONFLICT DO NOTHING""",
    f"""INSERT INTO library_standings (item_id, base_id, parent_id, container, problem)
    SELECT DISTINCT {FOLDER}, {{base}}, 0, 1, 0 FROM range ON CONFLICT DO NOTHING""",
    f"""INSERT INTO library_items
      (id, base_id, parent_id, kind, name, folded, blob, digest, size, created_at, changed_at)
    SELECT {ID}, {{base}}, {PARENT}, 'file', 'File ' || md5(i::text), 'file ' || md5(i::text), 'blob-' || i,
      md5(i::text), mod(i, 5000), {{at}}, {{at}} FROM range""",
    f"""INSERT INTO library_standings (item_id, base_id, parent_id, container, problem, document, served)
    SELECT {ID}, {{base}}, {PARENT}, 0, 0, {STATUS}, 1 FROM range""",
    f"""INSERT INTO owners (id, base, owner, generation, status, created_at)
    SELECT {ID}, '{{base}}', {ID}::text, 1, {STATUS}, 1 FROM range""",
    f"""INSERT INTO slots (owner_id, kind, needs, job, wanted, built, source, state, priority, queued_at, claimed_at,
      fence, recipe)
    SELECT {ID}, kind, CASE kind WHEN 'content' THEN NULL ELSE 'content' END, 'document-' || i, 1,
      CASE {STATE} WHEN 'ready' THEN 1 ELSE 0 END, 1,
      CASE WHEN kind <> 'content' AND {STATE} = 'queued' THEN 'blocked' ELSE {STATE} END, 5, {{at}},
      CASE {STATE} WHEN 'queued' THEN NULL ELSE 1 END, 1, CASE {STATE} WHEN 'ready' THEN recipe ELSE NULL END
    FROM range, (VALUES ('content', {{content}}), ('fulltext', {{fulltext}})) AS kinds (kind, recipe)""",
    f"""INSERT INTO jobs (id, owner_id, base, owner, generation, operation, cause, requester, priority, open, outcome,
      created_at, finished_at)
    SELECT 'document-' || i, {ID}, '{{base}}', {ID}::text, 1, 'index', 'user', '', 5,
      CASE {STATE} WHEN 'queued' THEN 2 ELSE 0 END,
      CASE {STATE} WHEN 'ready' THEN 'success' WHEN 'failed' THEN 'failed' END, {{at}},
      CASE {STATE} WHEN 'queued' THEN NULL ELSE {{at}} END FROM range""",
    f"""INSERT INTO events (at, type, base, owner, kind, job, generation, fence, data, xid)
    SELECT {{at}}, type, '{{base}}', {ID}::text, 'content', 'document-' || i, 1, 1, '{{{{}}}}', 1 + i / 2000
    FROM range, unnest(ARRAY['slot.claimed', 'slot.completed', 'job.success']) AS type""",
    f"""INSERT INTO duplicates (at, base, owner, operation, verdict, reason, requester, cost)
    SELECT {{at}}, '{{base}}', {ID}::text, 'index', 'joined', 'active', '', 0 FROM range WHERE mod(i, 10) = 0""",
    f"""INSERT INTO library_builds (owner_id, build, pages, facts, length, settled)
    SELECT {ID}, 1, '[]', '{{{{}}}}', 400, 1 FROM range""",
    f"""INSERT INTO library_chunks (id, owner_id, digest, headings, text, opening)
    SELECT {ID}, {ID}, md5(i::text), '[]', 'unique' || i || ' rare' || i / 50 || ' often' || mod(i, 100) ||
      repeat(' ' || md5(i::text), 8), 1 FROM range""",
    f"""INSERT INTO library_lists (owner_id, chunk_id, build, ordinal, start, body, stop)
    SELECT {ID}, {ID}, 1, 0, 0, 0, 300 FROM range""",
    f"""INSERT INTO fulltext_{{fulltext}} (chunk, words, length)
    SELECT {ID}, to_tsvector('simple', 'unique' || i || ' rare' || i / 50 || ' often' || mod(i, 100) || ' common'), 12
    FROM range""",
)
AT = "(extract(epoch FROM now()) * 1000000)::bigint - 1000000::bigint * (2000000 - i)"  # one document each second
SEQUENCES = ("library_items", "library_chunks", "owners")
NEXT_ID = 100_000_000  # of rows that operations write


def generate_documents(tx: Transaction, base: Base, first: int, last: int) -> None:
    """Write documents with these numbers into a base that serves a document with the index `fulltext`."""
    recipes = tx.run_sql("SELECT kind, max(id) FROM library_recipes WHERE base = %s GROUP BY 1", [base.key])
    tx.run_sql("SET LOCAL session_replication_role = replica")  # no triggers: the rows are complete
    tx.run_sql("SET LOCAL statement_timeout = 0")
    span = f"WITH range AS (SELECT generate_series({first}, {last}) AS i) "
    for statement in FILL:
        tx.run_sql(span + statement.format(base=base.id, at=AT, **{"content": 0, **dict(recipes)}))
    for table in SEQUENCES:
        tx.run_sql(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {NEXT_ID + last})")
