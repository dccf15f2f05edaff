"""The transport over HTTP, to the gateway. Needs the standard library only."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import urlsplit

from .client import Client
from .errors import KeepsakeError


class Http(Client):
    """`key` is a key of `keepsake keys new`; the key decides the tenant."""

    def __init__(
        self, url: str = "http://localhost:8765", *, key: str | None = None, timeout: float = 30
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address such as http://localhost:8765")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._timeout = timeout
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        # A connection is for one thread at a time.
        self._local = threading.local()

    def close(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection:
            connection.close()
            self._local.connection = None

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = kind(self._host, self._port, timeout=self._timeout)
            self._local.connection = connection
        return connection

    def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        connection = self._connection()
        is_new = connection.sock is None
        try:
            connection.request("POST", path, body, self._headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (http.client.HTTPException, OSError) as error:
            self.close()
            # The gateway closes a connection that was idle. Only a new one says that it is away.
            if not is_new and not isinstance(error, TimeoutError):
                return self._exchange(path, body)
            raise KeepsakeError("unavailable", f"the gateway does not answer: {error}") from error

    def _send(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        path = f"{self._path}/v1/keepsake/{kind}"
        status, body = self._exchange(path, json.dumps(message).encode())
        try:
            reply = json.loads(body)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise KeepsakeError("bad_reply", f"status {status}, and no JSON object")
        error = reply.get("error")
        if status != 200 or error:
            error = error or {}
            raise KeepsakeError(
                error.get("code", "bad_reply"),
                error.get("message", f"status {status}"),
                error.get("field"),
            )
        return reply
