"""Requests to a server, over a port or a socket, with nothing but the library
that comes with Python. Connections are kept for the next request."""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import IO, Any

from ._errors import of_engine

KEPT_MAX = 16
"""Idle connections that are kept."""
CONNECT_SECONDS = 30.0


class _OnSocket(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("fractal", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Http:
    """A server, by its address. Safe to use from many threads."""

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        timeout: float | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https", "unix") or not (parts.netloc or parts.path):
            raise ValueError(f"{url!r} is no address: use http://HOST:PORT or unix:///PATH")
        if parts.scheme == "unix" and not parts.path.startswith("/"):
            raise ValueError(f"{url!r} is no address: a socket has an absolute path")
        self.url = url
        self.is_owner = parts.scheme == "unix" and key is None
        self._parts = parts
        self._key = key
        self._timeout = timeout
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=os.fspath(ca_file) if ca_file else None)
        self._kept: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer, as the JSON that it is."""
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.body(method, path, data, headers=headers))

    def body(
        self,
        method: str,
        path: str,
        data: bytes | IO[bytes] | None = None,
        *,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The answer's body; raises what the server refuses."""
        answer, connection = self._ask(method, path, data, kind, headers)
        told = answer.read()
        self._keep(answer, connection)
        return told

    def open(self, path: str, *, headers: Mapping[str, str] | None = None) -> IO[bytes]:
        """The answer's body, to be read piece by piece and closed."""
        answer, _ = self._ask("GET", path, None, "", headers)
        return answer

    def events(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None
    ) -> tuple[Iterator[tuple[str, Any]], Ends]:
        """What happens, as names and JSON, until it is over; and what ends it
        from another thread."""
        more = {"Accept": "text/event-stream", **(headers or {})}
        data = json.dumps(body).encode()
        answer, connection = self._ask("POST", path, data, "application/json", more)
        return _events(answer, connection), Ends(connection.sock)

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None,
        kind: str,
        headers: Mapping[str, str] | None,
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        connection = self._connection()
        sent = dict(headers or {})
        if self._key is not None:
            sent["Authorization"] = f"Bearer {self._key}"
        if body is not None:
            sent["Content-Type"] = kind
        base = self._parts.path.rstrip("/") if self._parts.scheme != "unix" else ""
        try:
            connection.request(method, base + path, body, sent)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _unreached(self.url, error) from error
        except BaseException:
            connection.close()
            raise
        if answer.status >= 400:
            text = answer.read(1 << 20)
            self._keep(answer, connection)
            raise _refused(answer.status, text)
        return answer, connection

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._process != os.getpid():
                # Those of a parent are the parent's.
                self._kept, self._process = [], os.getpid()
            while self._kept:
                connection = self._kept.pop()
                if not _is_spent(connection):
                    return connection
                connection.close()
        if self._parts.scheme == "unix":
            return _OnSocket(self._parts.path, self._timeout)
        host, port = self._parts.hostname or "", self._parts.port
        if self._tls is not None:
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout, context=self._tls
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _keep(
        self, answer: http.client.HTTPResponse, connection: http.client.HTTPConnection
    ) -> None:
        if not answer.isclosed() or answer.will_close:
            connection.close()
            return
        with self._lock:
            if len(self._kept) < KEPT_MAX:
                self._kept.append(connection)
                return
        connection.close()


class Ends:
    """Ends a stream by hanging up."""

    def __init__(self, sock: socket.socket | None) -> None:
        self._sock = sock

    def __call__(self) -> None:
        try:
            if self._sock is not None:
                # Whoever reads it wakes up; they close it.
                self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _events(
    answer: http.client.HTTPResponse, connection: http.client.HTTPConnection
) -> Iterator[tuple[str, Any]]:
    try:
        name, data = "message", ""
        for raw in answer:
            line = raw.decode().rstrip("\r\n")
            if not line:
                if data:
                    yield name, json.loads(data)
                name, data = "message", ""
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data += line[5:].lstrip()
    finally:
        answer.close()
        connection.close()


def _is_spent(connection: http.client.HTTPConnection) -> bool:
    """Whether the server hung up meanwhile: it says nothing without being asked."""
    sock = connection.sock
    if sock is None:
        return True
    waiting = select.poll()
    waiting.register(sock, select.POLLIN | select.POLLHUP)
    return bool(waiting.poll(0))


def _refused(status: int, text: bytes) -> Exception:
    try:
        error = json.loads(text)["error"]
        return of_engine(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        told = text[:200].decode(errors="replace").strip()
        return ConnectionError(f"the server answered {status}: {told}")


def _unreached(url: str, error: Exception) -> Exception:
    if isinstance(error, TimeoutError):
        return TimeoutError(f"no answer from {url} in time")
    why = str(error) or type(error).__name__
    return ConnectionError(f"cannot reach {url}: {why}; is `fractal serve` running there?")
