"""nginx 1.22 from Debian's packages, which `make proxy` unpacks: a reverse proxy with the usual configuration."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2

from tests.support.servers import HOST, Server, ServerError

# Debian's own nginx.conf and site, with paths below the folder of the test. `proxy_params` is Debian's file.
CONFIGURATION = """
daemon off;
pid {folder}/nginx.pid;
{user}
events {{ worker_connections 768; }}
http {{
    sendfile on;
    tcp_nopush on;
    include {debian}/mime.types;
    default_type application/octet-stream;
    access_log {folder}/access.log;
    gzip on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {host}:{port};
        location / {{
            proxy_pass {behind};
            include {debian}/proxy_params;
        }}
    }}
}}
"""


class Nginx(Server):
    """A reverse proxy in front of one address."""

    name = "nginx"
    quit_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL

    def __init__(self, directory: Path, behind: str) -> None:
        super().__init__(directory)
        self._behind = behind

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def _config(self) -> Path:
        return self.directory.resolve() / "nginx.conf"

    def _prepare(self) -> None:
        self._config.write_text(
            CONFIGURATION.format(
                folder=self.directory.resolve(),
                user="user root;" if os.geteuid() == 0 else "",  # the folder of the test is closed to other users
                debian=nginx_folder() / "etc" / "nginx",
                host=HOST,
                port=self.port,
                behind=self._behind,
            )
        )

    def _account(self) -> dict[str, Any]:
        libraries = [str(path) for part in ("lib", "usr/lib") for path in (nginx_folder() / part).glob("*-linux-gnu*")]
        return {"env": {"LD_LIBRARY_PATH": ":".join(libraries)}}

    def _command(self) -> list[str]:
        folder = str(self.directory.resolve())
        return [str(nginx_folder() / "usr" / "sbin" / "nginx"), "-e", "stderr", "-p", folder, "-c", str(self._config)]

    def _answers(self) -> bool:
        """Return whether it answers, if only because the server behind it does not."""
        try:
            return httpx2.get(f"{self.url}/", timeout=2, trust_env=False).headers["server"].startswith("nginx")
        except httpx2.TransportError:
            return False


def nginx_folder() -> Path:
    folder = Path(sys.prefix) / "nginx"
    if not folder.exists():
        raise ServerError("nginx is not unpacked; `make proxy` does that on Debian")
    return folder
