"""One Unicode form for names (NFC), and a mark for folders that the local user named.

Earlier versions stored a name in two Unicode forms as two names. If both exist in the same folder, the second one gets
a number.
"""

from pathlib import PurePath
from unicodedata import normalize

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

TOGETHER = 500
# Tables with names, and the columns within which a name is unique.
NAMED = {"library_bases": (), "library_items": ("base_id", "parent_id")}


def upgrade() -> None:
    """Add the column, and rewrite names in another form."""
    op.add_column("library_items", sa.Column("local", sa.Integer(), server_default="0", nullable=False))
    for table, places in NAMED.items():
        _respell(sa.table(table, *map(sa.column, ("id", "name", "deleting", "folded", *places))), places)


def _respell(table: sa.TableClause, places: tuple[str, ...]) -> None:
    connection, after = op.get_bind(), 0
    columns = table.c
    some = (
        sa.select(columns.id, columns.name, columns.deleting, *(columns[place] for place in places))
        .where(columns.id > sa.bindparam("after"))
        .order_by(columns.id)
        .limit(TOGETHER)
    )
    while rows := connection.execute(some, {"after": after}).all():
        for id_, name, deleting, *place in rows:
            wanted = normalize("NFC", name)
            if wanted != name:
                beside = [columns[one] == value for one, value in zip(places, place, strict=True)]
                free = wanted if deleting else _free(table, wanted, beside)
                folded = {"folded": normalize("NFC", free.casefold())[:500]} if places else {}
                connection.execute(sa.update(table).where(columns.id == id_).values(name=free, **folded))
        after = rows[-1][0]


def _free(table: sa.TableClause, name: str, beside: list[sa.ColumnElement[bool]]) -> str:
    """Return the name, with the smallest number that makes it unique among the visible names in its folder."""
    path = PurePath(name)
    stem, ending = (path.stem, path.suffix) if path.name == name else (name, "")
    free, number = name, 1
    taken = sa.select(table.c.id).where(table.c.deleting == 0, *beside)
    while op.get_bind().execute(taken.where(table.c.name == free)).first() is not None:
        number += 1
        free = f"{stem} ({number}){ending}"
    return free
