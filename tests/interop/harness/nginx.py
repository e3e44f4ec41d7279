"""An nginx whose files are all in one folder."""

from __future__ import annotations

from pathlib import Path

from harness.tools import tool

SETTINGS = """\
daemon off;
user root;
worker_processes 1;
pid FOLDER/pid;
error_log FOLDER/errors;
events { worker_connections 4096; }
http {
  client_body_temp_path FOLDER/body;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi;
  scgi_temp_path FOLDER/scgi;
  HTTP
}
"""


def nginx(folder: Path, http: str) -> list[str]:
    """Returns nginx's command, with ``http`` in its ``http`` block; FOLDER there stands for
    ``folder``.

    Raises:
        MissingPeer: there is no nginx.
    """
    settings = folder / "nginx.conf"
    settings.write_text(SETTINGS.replace("HTTP", http).replace("FOLDER", str(folder)))
    return [tool("nginx"), "-c", str(settings)]
