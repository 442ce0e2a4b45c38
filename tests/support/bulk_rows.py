"""Writes the rows of very many indexed documents directly into the tables. The documents have no text to search."""
# ruff: noqa: S608 - SQL from constants of the tests

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.catalog.repository import Base
    from holdfast.db.database import Transaction
    from tests.support.harness import Rig

# Two of a hundred documents failed, and about one is queued.
STATUS = """CASE WHEN id - id / 50 * 50 = 0 THEN 'failed'
WHEN id - id / 97 * 97 = 0 THEN 'queued' ELSE 'success' END"""
STATE = "CASE status WHEN 'success' THEN 'ready' WHEN 'failed' THEN 'failed' ELSE 'queued' END"


def fill(rig: Rig, base: Base, count: int, parent: int = 0) -> None:
    """Write documents with their owners, slots and active jobs into an empty base."""
    ours = f"FROM owners WHERE base = '{base.id}'"
    items = f"""
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
    INSERT INTO library_items
      (base_id, parent_id, kind, name, folded, blob, digest, size, created_at, changed_at)
    SELECT {base.id}, {parent}, 'file', 'file ' || i, 'file ' || i, '{base.id}-' || i, '{base.id}-' || i,
      abs(5000 - i), i, abs(7000 - i) FROM n
    """
    owners = f"""
    INSERT INTO owners (base, owner, generation, status, created_at)
    SELECT CAST(base_id AS TEXT), CAST(id AS TEXT), 1, {STATUS}, 1
    FROM library_items WHERE base_id = {base.id} AND kind = 'file'
    """
    slots = f"""
    INSERT INTO slots (owner_id, kind, needs, job, wanted, built, state, priority, queued_at)
    SELECT id, KIND, 'job-' || id, 1, CASE status WHEN 'success' THEN 1 ELSE 0 END, {STATE}, 5, 1 {ours}
    """
    jobs = f"""
    INSERT INTO jobs (id, owner_id, base, owner, generation, operation, cause, requester, priority, open, created_at)
    SELECT 'job-' || id, id, base, owner, 1, 'index', 'user', '', 5, 3, id {ours} AND status = 'queued'
    """
    kinds = ("'content', NULL", "'fulltext', 'content'", "'vector', 'content'")
    statements = [items, owners, *(slots.replace("KIND", kind) for kind in kinds), jobs]

    def work(tx: Transaction) -> None:
        for statement in statements:
            tx.run_sql(statement)
            if tx.connection.dialect.name == "postgresql":
                # Without statistics, the triggers of the next statement may compare each of its rows with every item.
                tx.run_sql("ANALYZE")

    rig.store.database.write(work, durable=False)
