"""A worker of an older version of the product, started beside the newer ones, as during an upgrade."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    import random

    from tests.chaos.system import System

START_SECONDS = 90.0
MIGRATIONS = "holdfast/db/migrations/versions"
TOO_NEW = "A newer version of Holdfast has upgraded the database"


def start_older_worker(system: System, chance: random.Random) -> bool:
    """Start a worker that lacks the newest migration. It must end by itself and leave the work alone."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", "worker"],
            env=system.program_environment | {"PYTHONPATH": str(_older_source(system.folder))},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 1 and TOO_NEW in done.stderr


def _older_source(folder: Path) -> Path:
    """Return a folder with a copy of the product that knows all migrations but the newest."""
    root = folder / "older"
    if not root.exists():
        copy = folder / "older.new"
        shutil.copytree(Path(holdfast.__file__).parent, copy / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
        max((copy / MIGRATIONS).glob("v*.py")).unlink()
        copy.rename(root)
    return root
