"""An HTTP JSON API as files: `ls`, `cat` and `jq` instead of a client.

The example serves the API itself, on loopback. `Issues` is all that is needed
to show it: one request for a listing, one for a file.

    python examples/http_provider/http_provider.py
"""

from __future__ import annotations

import http.server
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fractal import Context, Item, Vfs

ISSUES = {
    1: {"title": "It crashes", "state": "open", "labels": ["bug"]},
    2: {"title": "It is slow", "state": "closed", "labels": []},
    7: {"title": "Crash on start", "state": "open", "labels": ["bug", "urgent"]},
}


class Issues:
    """Issues of a tracker: `/NUMBER.json` each."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, context: Context) -> Any:
        request = urllib.request.Request(self.url + path, headers={"X-For": context.who})
        try:
            with urllib.request.urlopen(request, timeout=context.seconds_left) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # Whoever reads the file is told this.
            raise OSError(f"{path}: the tracker says {error.code} {error.reason}") from error

    def list(self, context: Context) -> list[Item]:
        return [Item.file(f"{number}.json") for number in self.get("/issues", context)]

    def find(self, context: Context) -> Item | None:
        """Names that are not listed: the tracker knows more than it lists."""
        name = context.at[1:]
        return Item.file(name) if name.endswith(".json") else None

    def read(self, context: Context) -> str:
        number = context.at.strip("/").removesuffix(".json")
        return json.dumps(self.get(f"/issues/{number}", context)) + "\n"


class Tracker(http.server.BaseHTTPRequestHandler):
    """The API."""

    def do_GET(self) -> None:
        _, _, number = self.path.removeprefix("/").partition("/")
        if not number:
            self.answer(200, [key for key, issue in ISSUES.items() if issue["state"] == "open"])
        elif number.isdigit() and int(number) in ISSUES:
            self.answer(200, ISSUES[int(number)])
        else:
            self.answer(404, None)

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def tracker() -> Iterator[str]:
    """The API on a free port of loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tracker)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    with tracker() as url:
        vfs = Vfs(who="example")
        vfs.mount("/issues", Issues(url), max_age=5)
        for script in (
            "ls /issues",
            "jq -r .title /issues/*.json",
            "grep -l urgent /issues/*",
            "jq -r .state /issues/2.json",
            "cat /issues/404.json",
        ):
            done = vfs.exec(script)
            print(f"$ {script}\n{done.stdout}{done.stderr}", end="")


if __name__ == "__main__":
    main()
