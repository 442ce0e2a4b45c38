"""Runs a command with an empty temporary folder and an empty HOME: `python tests/fresh.py make test`.

This way no unpacked or cached file on this machine can hide a missing step. Both folders are removed at the end, even
after a failure. Configuration files in HOME that name package sources are passed on; caches are not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
CONFIGURATION = {  # a variable that names a file, and the places of the file if the variable is not set
    "PIP_CONFIG_FILE": ("{config}/pip/pip.conf", "{home}/.pip/pip.conf"),
    "UV_CONFIG_FILE": ("{config}/uv/uv.toml",),
    "NPM_CONFIG_USERCONFIG": ("{home}/.npmrc",),
    "NETRC": ("{home}/.netrc",),
}


def environment(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables with a new temporary folder and a new HOME, both created below `folder`."""
    home = given.get("HOME", "/")
    config = given.get("XDG_CONFIG_HOME") or f"{home}/.config"
    places = {
        name: [path for place in files if Path(path := place.format(home=home, config=config)).is_file()]
        for name, files in CONFIGURATION.items()
    }
    folder.chmod(0o711)  # as root, a test starts PostgreSQL as another user, and that user must be able to enter
    (new_home := folder / "home").mkdir(mode=0o700)
    (temporary := folder / "tmp").mkdir()
    temporary.chmod(0o1777)
    return {
        **{name: files[0] for name, files in places.items() if files},
        **{name: value for name, value in given.items() if name not in FOLDERS},
        "HOME": str(new_home),
        "TMPDIR": str(temporary),
    }


def main(command: list[str]) -> int:
    """Run the command and return its exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="fresh-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(command, env=environment(os.environ, Path(folder))) as process,
    ):
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command itself receives Ctrl-C
        code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
