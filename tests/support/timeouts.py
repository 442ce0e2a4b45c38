"""How long a test waits for something that must happen.

Nothing takes this long on any machine that runs the tests. Only a defect makes a test wait until the timeout, and then
the test fails. A test never waits for time to pass, and never asserts how long something took.
"""

from __future__ import annotations

PATIENCE_SECONDS = 180.0
