"""Long-term memory around the official clients of OpenAI and Anthropic.

It works below their methods, on the requests of their HTTP client. So `create`, `parse` and
`stream` are all served, with and without async, and arguments and results stay the client's own.
Neither package is imported here.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from .http import Http
from .said import Answer, Call

C = TypeVar("C")

CONTENT_BYTES_MAX = 64 * 1024  # of a turn, by the contract
WAITING_MAX = 256  # turns that are not sent yet: 16 MiB at their longest
RECALLS_MAX = 32  # at a time; each has a thread
SENT_MAX, BLOCKS_MAX = 4096, 256
HISTORY_TURNS, HISTORY_CHARS, QUERY_CHARS = 4, 1000, 4000
SEND_SECONDS, EXIT_SECONDS = 5.0, 2.0


def remembering(
    client: C,
    *,
    user: str | Callable[[], str],
    session: str | Callable[[], str] | None = None,
    url: str = "http://localhost:8765",
    key: str | None = None,
    wait: float = 0.3,
) -> C:
    """Returns a copy of the client that recalls before each call, and captures both turns after it.

    `user` and `session` may be functions, for a server that speaks with many. A session names one
    conversation; without one, the same first turn on the same day is captured once. `wait` is the
    longest, in seconds, that a call waits for its memories.
    """
    memory = Remembering(user, session, url, key, wait)
    try:
        inner = client._client  # type: ignore[attr-defined]
        copy: C = client.copy(http_client=hooked(inner, memory))  # type: ignore[attr-defined]
    except AttributeError as error:
        raise TypeError(f"{type(client).__name__} is no client of openai or anthropic") from error
    return copy


def memory_of(client: Any) -> Remembering:
    """The memory of a client that `remembering` returned: its counters, and `flush`."""
    memory = getattr(getattr(client, "_client", None), "keepsake", None)
    if not isinstance(memory, Remembering):
        raise TypeError("the client has no memory: it must come from keepsake_recall.remembering")
    return memory


class Remembering:
    """Recalls and captures. No failure of the service reaches a call of the model."""

    def __init__(self, user: Any, session: Any, url: str, key: str | None, wait: float) -> None:
        self.lost = 0  # turns that were not captured
        self.missed = 0  # calls of the model that went on without memories
        self.wait = wait
        self._user, self._session = user, session
        self._reader, self._writer = (Http(url, key=key, timeout=it) for it in (wait, SEND_SECONDS))
        self._reader.retries = 0
        self._slots = threading.BoundedSemaphore(RECALLS_MAX)
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._sent: OrderedDict[str, str] = OrderedDict()
        self._blocks: OrderedDict[str, str] = OrderedDict()
        self._is_working = self._has_warned = False
        OPEN.add(self)

    def flush(self, seconds: float) -> bool:
        """Waits until all turns are sent; false if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_working, seconds)

    # --- before the call ---

    def begin(self, request: Any) -> Call | None:
        """The call of a model in this request, or None for any other request."""
        # A signature of AWS covers the body, so that body cannot be changed.
        is_signed = request.headers.get("authorization", "").startswith("AWS4-")
        if request.method != "POST" or is_signed:
            return None
        try:
            names = (it() if callable(it) else it for it in (self._user, self._session))
            return Call.of(request.url.path, request.read, *names)
        except Exception as error:
            self.without(error)
            return None

    def recall(self, call: Call) -> Future[str]:
        found: Future[str] = Future()
        found.set_running_or_notify_cancel()
        is_new = call.asked in call.new
        # A later round of tools has the block of the first: a recall would now find the question.
        kept = None if is_new else self._blocks.get(call.key())
        if kept is not None or call.asked is None:
            found.set_result(kept or "")
        elif self._slots.acquire(blocking=False):
            threading.Thread(target=self._recall, args=(call, found), daemon=True).start()
        else:
            found.set_exception(RuntimeError(f"{RECALLS_MAX} recalls are waiting"))
        return found

    def _recall(self, call: Call, found: Future[str]) -> None:
        try:
            *before, (_, question) = call.said[: (call.asked or 0) + 1]
            said = [(role, text[:HISTORY_CHARS]) for role, text in before if text]
            history = [{"role": role, "content": text} for role, text in said[-HISTORY_TURNS:]]
            reply = self._reader.recall(
                call.user,
                question[:QUERY_CHARS],
                session=call.session,
                purpose="prompt",
                format="xml",
                history=history or None,  # type: ignore[arg-type]
            )
            self._keep(self._blocks, BLOCKS_MAX, call.key(), reply["prompt"])
            found.set_result(reply["prompt"])
        except Exception as error:
            found.set_exception(error)
        finally:
            self._reader.close()
            self._slots.release()

    def without(self, error: Exception) -> str:
        self.missed += 1
        self._warn("a call of the model goes on without memories", error)
        return ""

    def changed(self, call: Call, request: Any, block: str) -> Any:
        """The request with the block. The caller's own arguments are not touched."""
        call.block = block
        if not block:
            return request
        headers = [it for it in request.headers.raw if it[0].lower() != b"content-length"]
        content = json.dumps(call.with_block(block), ensure_ascii=False).encode()
        fields = dict(headers=headers, content=content, extensions=request.extensions)
        return type(request)(request.method, request.url, **fields)

    # --- after the call ---

    def capture(self, call: Call, answer: Answer) -> None:
        """Sends the turns that this call adds, in the background."""
        try:
            text = answer.text()
            if answer.failed:
                return
            if answer.id:
                key = f"after:{call.user}:{answer.id}"
                self._keep(self._blocks, BLOCKS_MAX, key, call.block)
            for role, content, id in call.turns(text):
                fields = dict(content=content, role=role, session=call.session, id=id)
                self._send(call.user, fields)
        except Exception as error:
            self._lose("", error)

    def _send(self, user: str, fields: dict[str, Any]) -> None:
        id = fields["id"]
        with self._changed:
            if id in self._sent:
                return
            if len(fields["content"].encode()) > CONTENT_BYTES_MAX:
                return self._lose(id, f"it has more than {CONTENT_BYTES_MAX} bytes")
            if len(self._waiting) == WAITING_MAX:
                return self._lose(id, f"{WAITING_MAX} turns are waiting")
            self._keep(self._sent, SENT_MAX, id, "")
            self._waiting.append((user, fields))
            if not self._is_working:
                threading.Thread(target=self._work, daemon=True).start()
                self._is_working = True

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_working = False
                    self._changed.notify_all()
                    return self._writer.close()
                user, fields = self._waiting.popleft()
            try:
                self._writer.turn(user, **fields)
            except Exception as error:
                self._lose(fields["id"], error)

    def _keep(self, where: OrderedDict[str, str], most: int, key: str, value: str) -> None:
        with self._changed:
            where[key] = value
            while len(where) > most:
                where.popitem(last=False)

    def _lose(self, id: str, error: object) -> None:
        with self._changed:
            self.lost += 1
            self._sent.pop(id, None)  # so that the same call again may send it
        self._warn("a turn is not captured", error)

    def _warn(self, what: str, error: object) -> None:
        if not self._has_warned:
            self._has_warned = True
            why = str(error) or type(error).__name__
            log.warning("%s: %s (said once; see the counters of memory_of)", what, why)


log = logging.getLogger("keepsake_recall")
OPEN: weakref.WeakSet[Remembering] = weakref.WeakSet()


@atexit.register
def at_exit() -> None:
    for memory in list(OPEN):
        memory.flush(EXIT_SECONDS)


# --- the HTTP client, of httpx or httpx2, as each package brings it ---


def hooked(inner: Any, memory: Remembering) -> Any:
    """An HTTP client with the connections and options of `inner`, whose requests have memory."""

    def send(_: Any, request: Any, **options: Any) -> Any:
        call = memory.begin(request)
        if call is None:
            return inner.send(request, **options)
        try:
            block = memory.recall(call).result(memory.wait)
        except Exception as error:
            block = memory.without(error)
        response = inner.send(memory.changed(call, request, block), **options)
        listen(response, lambda answer: memory.capture(call, answer))
        return response

    async def send_async(_: Any, request: Any, **options: Any) -> Any:
        call = memory.begin(request)
        if call is None:
            return await inner.send(request, **options)
        try:
            found = asyncio.wrap_future(memory.recall(call))
            block = await asyncio.wait_for(found, memory.wait)
        except Exception as error:
            block = memory.without(error)
        response = await inner.send(memory.changed(call, request, block), **options)
        listen(response, lambda answer: memory.capture(call, answer))
        return response

    methods = {
        "send": send_async if hasattr(inner, "aclose") else send,
        # Else this copy, when it is dropped, would close the connections of the caller's client.
        "__del__": lambda _: None,
        "keepsake": memory,
    }
    kind: Any = type(type(inner).__name__, (type(inner),), methods)
    made = object.__new__(kind)
    made.__dict__ = inner.__dict__
    return made


def listen(response: Any, done: Callable[[Answer], None]) -> None:
    """Calls `done` with the answer when the reply has ended or the caller has closed it."""
    if not response.is_success:
        return
    answer = Answer("event-stream" in response.headers.get("content-type", ""))
    if response.is_closed:
        answer.feed(response.content)
        return done(answer)
    iter_bytes, aiter_bytes = response.iter_bytes, response.aiter_bytes
    close, aclose = response.close, response.aclose
    is_reading = is_over = False

    def end() -> None:
        nonlocal is_over
        # While a part is read, the reply closes itself, also before it raises.
        if not is_reading and not is_over:
            is_over = True
            done(answer)

    @contextmanager
    def reading() -> Iterator[None]:
        nonlocal is_reading, is_over
        is_reading = True
        try:
            yield
        except Exception:
            is_over = True  # the caller repeats a call that broke
            raise
        finally:
            is_reading = False
            end()

    def handed(part: bytes) -> bytes:
        nonlocal is_reading
        is_reading = False
        answer.feed(part)
        return part

    def parts(*size: Any) -> Iterator[bytes]:
        nonlocal is_reading
        with reading():
            for part in iter_bytes(*size):
                yield handed(part)
                is_reading = True

    async def parts_async(*size: Any) -> AsyncIterator[bytes]:
        nonlocal is_reading
        with reading():
            async for part in aiter_bytes(*size):
                yield handed(part)
                is_reading = True

    def closed() -> None:
        end()
        close()

    async def closed_async() -> None:
        end()
        await aclose()

    response.iter_bytes, response.aiter_bytes = parts, parts_async
    response.close, response.aclose = closed, closed_async
