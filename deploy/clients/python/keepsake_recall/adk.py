"""A memory service for Google's Agent Development Kit.

By default each pair of app and user is a user of Keepsake, because ADK shares no memory between
apps; `user=lambda app, user: user` shares it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from .client import Client
from .messages import Memory


class KeepsakeMemoryService(BaseMemoryService):
    def __init__(
        self,
        client: Client,
        *,
        user: Callable[[str, str], str] = "{}:{}".format,
        limit: int = 10,
    ) -> None:
        self._client = client
        self._user = user
        self._limit = limit

    async def add_session_to_memory(self, session: Session) -> None:
        """Adds the events of a session. Repeating it adds only the new ones."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        owner = self._user(app_name, user_id)
        for event in events:
            text = text_of(event.content)
            if not text or event.partial:
                continue
            is_user = event.author == "user"
            await asyncio.to_thread(
                self._client.turn,
                owner,
                text,
                role="user" if is_user else "assistant",
                speaker=None if is_user else event.author,
                session=session_id,
                metadata=labels(custom_metadata),
                at=datetime.fromtimestamp(event.timestamp, timezone.utc),
                id=f"adk:{session_id or ''}:{event.id}",
            )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        owner = self._user(app_name, user_id)
        for memory in memories:
            await asyncio.to_thread(
                self._client.remember,
                owner,
                text_of(memory.content),
                metadata=labels({**(custom_metadata or {}), **memory.custom_metadata}),
                at=memory.timestamp,
                id=f"adk:{memory.id}" if memory.id else None,
            )

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        owner = self._user(app_name, user_id)
        reply = await asyncio.to_thread(
            self._client.recall, owner, query, limit=self._limit, format="none"
        )
        return SearchMemoryResponse(memories=[entry(memory) for memory in reply["memories"]])

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        if memory_id is None:
            raise ValueError("delete_memory needs the id of a memory, from search_memory")
        owner = self._user(app_name, user_id)
        await asyncio.to_thread(self._client.forget, owner, memory=memory_id)


def text_of(content: types.Content | None) -> str:
    parts = content.parts if content else None
    return "\n".join(part.text for part in parts or () if part.text and not part.thought)


def labels(metadata: Mapping[str, object] | None) -> dict[str, str] | None:
    """Metadata of Keepsake are strings; other values are written as JSON."""
    if not metadata:
        return None
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in metadata.items()
    }


def entry(memory: Memory) -> MemoryEntry:
    # The role of ADK's content is user or model, whatever the agent is called.
    role = "model" if memory.get("role") == "assistant" else "user"
    return MemoryEntry(
        id=memory["id"],
        content=types.Content(role=role, parts=[types.Part(text=memory["content"])]),
        author=memory.get("speaker") or memory.get("role"),
        timestamp=memory["created_at"],
        custom_metadata={
            **memory.get("metadata", {}),
            "keepsake_kind": memory["kind"],
            "keepsake_relevance": memory.get("relevance"),
        },
    )
