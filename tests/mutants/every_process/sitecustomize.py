"""Installs the mutant in every Python process that a test starts. Python imports this file at its start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import tests.mutants.install  # noqa: F401
