"""Counts the rows that the statements of an operation read.

On PostgreSQL with EXPLAIN ANALYZE; on SQLite by the instructions of its virtual machine, about ten for each row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.db.database import CompiledStatement, Dialect, Rows


@dataclass
class Explained:
    """The plans of one operation."""

    statements: int = 0
    rows: float = 0  # that its scans read
    buffers: int = 0
    scans: Counter[str] = field(default_factory=Counter)  # rows that sequential scans read, by table
    rows_by_statement: Counter[str] = field(default_factory=Counter)

    def add(self, sql: str, plan: dict[str, Any]) -> None:
        before = self.rows
        self.statements += 1
        self.buffers += plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
        self._visit(plan)
        self.rows_by_statement[" ".join(sql.split())] += int(self.rows - before)

    def _visit(self, node: dict[str, Any]) -> None:
        if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node):
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            rows = (node["Actual Rows"] + removed) * node["Actual Loops"]
            self.rows += rows
            if node["Node Type"] == "Seq Scan":
                self.scans[node["Relation Name"]] += int(rows)
        for part in node.get("Plans", ()):
            self._visit(part)


STEPS_PER_ROW = 10


class ExplainingDialect:
    """Explains each statement before it runs, if `explained` is set."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.explained: Explained | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        if self.explained is not None:
            explaining = statement._replace(sql=f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}")
            alone = cursor.connection.autocommit  # then it only reads
            if not alone:
                cursor.execute("SAVEPOINT explained")
            ((plans,),) = self._dialect.run(cursor, explaining, rows, dict(values))
            self.explained.add(statement.sql, plans[0]["Plan"])
            if not alone:
                cursor.execute("ROLLBACK TO SAVEPOINT explained")
        return self._dialect.run(cursor, statement, rows, values)


class SqliteExplainingDialect(ExplainingDialect):
    """Counts the instructions of each statement, if `explained` is set."""

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        explained = self.explained
        if explained is None:
            return self._dialect.run(cursor, statement, rows, values)
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0  # continue

        cursor.connection.set_progress_handler(count, STEPS_PER_ROW)
        try:
            return self._dialect.run(cursor, statement, rows, values)
        finally:
            cursor.connection.set_progress_handler(None, 0)
            explained.statements += 1
            explained.rows += steps
            explained.rows_by_statement[" ".join(statement.sql.split())] += steps
