"""`from holdfast import …` offers the same names to Python and to a type checker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast

SOURCE = Path(holdfast.__file__)
SNIPPET = "from holdfast import File, Holdfast, __version__\n"

if TYPE_CHECKING:
    from typing import Any


def checked(tmp_path: Path, snippet: str) -> subprocess.CompletedProcess[str]:
    """Type-check a snippet against the package without following its imports."""
    file = tmp_path / "snippet.py"
    file.write_text(snippet)
    how = ["--follow-imports=skip", "--no-incremental", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *how, str(SOURCE), str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=SOURCE.parents[1],
    )


def test_a_type_checker_knows_the_public_names_and_no_others(tmp_path: Path) -> None:
    good = checked(tmp_path, SNIPPET)
    assert good.returncode == 0, good.stdout
    bad = checked(tmp_path, "from holdfast import Nonsense\n")
    assert bad.returncode == 1
    assert 'Module "holdfast" has no attribute "Nonsense"' in bad.stdout


def test_python_knows_the_same_names() -> None:
    names: dict[str, Any] = {}
    exec(SNIPPET, names)  # noqa: S102 - the constant above
    assert {"File", "Holdfast", "__version__"} <= names.keys()
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = holdfast.Nonsense  # type: ignore[attr-defined]
