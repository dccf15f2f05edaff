"""The calls of the contract, the same over every transport."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Literal, TypeVar, cast

from .errors import RETRIED, KeepsakeError
from .messages import (
    Applied,
    Explained,
    Format,
    Listed,
    Memory,
    MemoryReply,
    Recalled,
    Role,
    Scope,
    Signal,
    Stats,
    Turn,
    Where,
)

Time = datetime | str
Self = TypeVar("Self", bound="Client")
EVENTS = frozenset({"turn", "remember", "update", "forget", "feedback"})


class Client(ABC):
    """One client serves many users and threads.

    An event returns when its effect can be read, and an answer includes all events that this
    client sent for the user before.
    """

    retries: int = 2
    retry_pause: float = 0.2

    @abstractmethod
    def _send(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        """Sends one message and returns the reply, or raises `KeepsakeError`."""

    def close(self) -> None:
        """Ends the connections."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, type: str, user: str, /, **fields: Any) -> dict[str, Any]:
        """Sends any message of the contract by its `type`; fields that are None are left out.

        After a failure that may pass, the same message is sent again, `retries` times.
        """
        message = {name: plain(value) for name, value in fields.items() if value is not None}
        message["user"] = user
        if type in EVENTS:
            message.setdefault("id", str(uuid.uuid4()))
        for attempt in range(self.retries + 1):
            try:
                return self._send(type, message)
            except KeepsakeError as error:
                if error.status not in RETRIED or attempt == self.retries:
                    raise
                time.sleep(self.retry_pause * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def turn(
        self,
        user: str,
        content: str,
        *,
        role: Role = "user",
        speaker: str | None = None,
        session: str | None = None,
        kind: str | None = None,
        remember: bool | None = None,
        metadata: Mapping[str, str] | None = None,
        at: Time | None = None,
        id: str | None = None,
    ) -> Applied:
        """Adds one turn of a conversation; the surprising parts become memories."""
        fields = dict(role=role, speaker=speaker, session=session, kind=kind, remember=remember)
        reply = self.call("turn", user, content=content, metadata=metadata, at=at, id=id, **fields)
        return cast(Applied, reply)

    def remember(
        self,
        user: str,
        content: str,
        *,
        kind: str | None = None,
        importance: float | None = None,
        confidence: float | None = None,
        scope: Scope | None = None,
        session: str | None = None,
        metadata: Mapping[str, str] | None = None,
        expires_at: Time | None = None,
        at: Time | None = None,
        id: str | None = None,
    ) -> Applied:
        """Stores a text as it is. The decision has the id of the memory."""
        fields = dict(kind=kind, importance=importance, confidence=confidence, scope=scope)
        return cast(
            Applied,
            self.call(
                "remember",
                user,
                content=content,
                session=session,
                metadata=metadata,
                expires_at=expires_at,
                at=at,
                id=id,
                **fields,
            ),
        )

    def update(
        self,
        user: str,
        memory: str,
        *,
        content: str | None = None,
        kind: str | None = None,
        importance: float | None = None,
        confidence: float | None = None,
        enabled: bool | None = None,
        metadata: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> Applied:
        """Changes one memory. Earlier contents stay in the history; metadata is replaced whole."""
        fields = dict(content=content, kind=kind, importance=importance, confidence=confidence)
        reply = self.call(
            "update", user, memory=memory, enabled=enabled, metadata=metadata, id=id, **fields
        )
        return cast(Applied, reply)

    def forget(
        self,
        user: str,
        *,
        memory: str | None = None,
        session: str | None = None,
        query: str | None = None,
        everything: Literal[True] | None = None,
        id: str | None = None,
    ) -> Applied:
        """Erases by exactly one of these; replays do not bring the memories back."""
        fields = dict(memory=memory, session=session, query=query, everything=everything)
        if sum(value is not None for value in fields.values()) != 1:
            raise ValueError("forget takes exactly one of memory, session, query and everything")
        return cast(Applied, self.call("forget", user, id=id, **fields))

    def feedback(self, user: str, memories: str | Sequence[str], signal: Signal) -> Applied:
        """Says what became of recalled memories: used, confirmed, wrong or irrelevant."""
        ids = [memories] if isinstance(memories, str) else list(memories)
        return cast(Applied, self.call("feedback", user, memories=ids, signal=signal))

    def recall(
        self,
        user: str,
        query: str | None = None,
        *,
        queries: Sequence[str] | None = None,
        session: str | None = None,
        limit: int | None = None,
        token_budget: int | None = None,
        kinds: Sequence[str] | None = None,
        where: Where | None = None,
        min_relevance: float | None = None,
        as_of: Time | None = None,
        include_archived: bool | None = None,
        format: Format | None = None,
        profile: str | None = None,
        purpose: Literal["prompt", "tool"] | None = None,
        history: Sequence[Turn] | None = None,
        explain: bool | None = None,
    ) -> Recalled:
        """Finds the memories that answer a query, best first, and a block for the prompt."""
        fields = dict(
            queries=queries,
            session=session,
            limit=limit,
            token_budget=token_budget,
            kinds=kinds,
            where=where,
            min_relevance=min_relevance,
            as_of=as_of,
            include_archived=include_archived,
            format=format,
            profile=profile,
            purpose=purpose,
            history=history,
            explain=explain,
        )
        return cast(Recalled, self.call("recall", user, query=query, **fields))

    def list(
        self,
        user: str,
        *,
        session: str | None = None,
        kinds: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        after: str | None = None,
        offset: int | None = None,
        everything: bool | None = None,
    ) -> Listed:
        """One page of memories; `after` of the reply asks for the next."""
        fields = dict(session=session, kinds=kinds, where=where, limit=limit, offset=offset)
        reply = self.call("list", user, after=after, everything=everything, **fields)
        return cast(Listed, reply)

    def list_all(
        self,
        user: str,
        *,
        session: str | None = None,
        where: Where | None = None,
        everything: bool | None = None,
    ) -> Iterator[Memory]:
        """All memories, page by page; `everything` adds archived ones and those of sessions."""
        after: str | None = None
        while True:
            page = self.list(
                user, session=session, where=where, after=after, everything=everything
            )
            yield from page["memories"]
            after = page.get("after")
            if after is None:
                return

    def get(self, user: str, memory: str, *, history: bool | None = None) -> MemoryReply:
        """One memory, with its earlier contents if asked for."""
        return cast(MemoryReply, self.call("get", user, memory=memory, history=history))

    def explain(
        self, user: str, memory: str | None = None, *, event: Mapping[str, Any] | None = None
    ) -> Explained:
        """Why a memory was kept or an event was decided as it was, with the numbers."""
        return cast(Explained, self.call("explain", user, memory=memory, event=event))

    def stats(self, user: str) -> Stats:
        """Counts of memories and decisions."""
        return cast(Stats, self.call("stats", user))


def plain(value: Any) -> Any:
    """Writes a time as RFC 3339; a time without a zone is local, as Python has it."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return dict(value)
    return value
