"""The integrations, each used as its framework uses it."""

import asyncio
import time
from typing import Any, TypedDict

import pytest
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import InMemorySessionService
from google.genai import types
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from keepsake_recall import Client
from keepsake_recall.adk import KeepsakeMemoryService
from keepsake_recall.langchain import KeepsakeRetriever
from keepsake_recall.langgraph import KeepsakeStore

NOTES = ("memories", "ada")


def test_a_store_puts_gets_changes_and_deletes(client: Client, user: str) -> None:
    store = KeepsakeStore(client, user)
    value = {"food": "I like pizza", "likes": 3, "tags": ["a", {"b": None}]}
    assert store.get(NOTES, "k1") is None
    store.put(NOTES, "k1", value)
    held = store.get(NOTES, "k1")
    assert held is not None and held.value == value
    assert (held.key, held.namespace) == ("k1", NOTES)
    store.put(NOTES, "k1", {"food": "I like sushi"})
    changed = KeepsakeStore(client, user).get(NOTES, "k1")
    assert changed is not None and changed.value == {"food": "I like sushi"}
    assert changed.created_at == held.created_at and changed.updated_at > held.updated_at
    assert store.get(("memories",), "k1") is None and store.get(("memories", "eva"), "k1") is None
    store.delete(NOTES, "k1")
    store.delete(NOTES, "never")
    assert store.get(NOTES, "k1") is None
    assert client.stats(user)["memories"]["total"] == 0


def test_a_store_gives_long_and_wordless_values_back(client: Client, user: str) -> None:
    store = KeepsakeStore(client, user)
    values: list[dict[str, Any]] = [
        {"text": "bees " * 2000},
        {"n": 1.5, "none": None, "list": []},
        {},
        {"text": "  spaced\n\ntext ü 日本 "},
    ]
    for number, value in enumerate(values):
        store.put(NOTES, str(number), value)
        held = store.get(NOTES, str(number))
        assert held is not None and held.value == value


def test_a_store_searches_by_meaning_filter_and_prefix(client: Client, user: str) -> None:
    store = KeepsakeStore(client, user)
    store.put(NOTES, "k1", {"text": "Ada keeps bees in Lisbon", "n": 1})
    store.put(NOTES, "k2", {"text": "The rent is due in March", "n": 2})
    store.put(("memories", "eva"), "k3", {"text": "Eva keeps bees in Oslo", "n": 3})
    store.put(("other",), "k4", {"text": "Somebody keeps bees in Rome", "n": 4})
    store.put(NOTES, "k5", {"text": "Bees in Lisbon are secret", "n": 5}, index=False)
    found = store.search(NOTES, query="Who keeps bees?")
    assert found[0].key == "k1" and found[0].score is not None
    assert "k5" not in {one.key for one in found}
    found = store.search(("memories",), query="Who keeps bees?")
    assert {one.key for one in found[:2]} == {"k1", "k3"}
    assert {one.key for one in store.search(())} == {"k1", "k2", "k3", "k4", "k5"}
    found = store.search(("memories",), filter={"n": {"$gte": 2, "$lt": 5}})
    assert {one.key for one in found} == {"k2", "k3"}
    assert {one.key for one in store.search((), filter={"n": 4})} == {"k4"}
    pages = [store.search((), limit=2, offset=offset) for offset in (0, 2, 4)]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert store.list_namespaces() == [("memories", "ada"), ("memories", "eva"), ("other",)]
    assert store.list_namespaces(prefix=("memories",), max_depth=1) == [("memories",)]
    assert store.list_namespaces(suffix=("eva",)) == [("memories", "eva")]


def test_items_are_in_no_other_recall(client: Client, user: str) -> None:
    KeepsakeStore(client, user).put(NOTES, "k1", {"text": "Ada keeps bees in Lisbon"})
    assert client.recall(user, "Who keeps bees?")["memories"] == []


def test_an_item_ends_with_its_time_to_live(client: Client, user: str) -> None:
    store = KeepsakeStore(client, user)
    store.put(NOTES, "k1", {"text": "Ada is in Rome"}, ttl=3 / 60)
    assert store.get(NOTES, "k1") is not None
    deadline = time.time() + 20
    while store.get(NOTES, "k1") is not None and time.time() < deadline:
        time.sleep(0.5)
    assert store.get(NOTES, "k1") is None and store.search(NOTES) == []


def test_a_graph_uses_the_store(client: Client, user: str) -> None:
    class State(TypedDict):
        said: str
        known: list[str]

    async def node(state: State, runtime: Runtime) -> dict[str, Any]:  # type: ignore[type-arg]
        assert runtime.store is not None
        found = await runtime.store.asearch(("notes", user), query=state["said"])
        await runtime.store.aput(("notes", user), state["said"], {"text": state["said"]})
        return {"known": [one.value["text"] for one in found]}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    # Each second label of a namespace is a user of its own.
    compiled = graph.compile(store=KeepsakeStore(client, lambda namespace: namespace[1]))
    said = "I keep bees in Lisbon"
    first = asyncio.run(compiled.ainvoke({"said": said, "known": []}))
    assert first["known"] == []
    second = asyncio.run(compiled.ainvoke({"said": "Where do I keep bees?", "known": []}))
    assert second["known"] == [said]


def test_a_retriever_finds_documents(client: Client, user: str) -> None:
    client.remember(user, "Ada keeps bees in Lisbon", metadata={"team": "blue"})
    client.remember(user, "The rent is due in March")
    retriever = KeepsakeRetriever(client=client, user=user, limit=1)
    found = retriever.invoke("Who keeps bees?")
    assert [one.page_content for one in found] == ["Ada keeps bees in Lisbon"]
    assert found[0].metadata["team"] == "blue" and found[0].metadata["score"] > 0
    assert [one.id for one in asyncio.run(retriever.ainvoke("Who keeps bees?"))] == [found[0].id]


def test_a_memory_service_remembers_sessions(client: Client, user: str) -> None:
    async def run() -> None:
        service = KeepsakeMemoryService(client)
        sessions = InMemorySessionService()
        session = await sessions.create_session(app_name="app", user_id=user)
        for author, text in (("user", "I moved to Lisbon last month."), ("model", "Nice.")):
            content = types.Content(parts=[types.Part(text=text)])
            await sessions.append_event(session, Event(author=author, content=content))
        await service.add_session_to_memory(session)
        await service.add_session_to_memory(session)
        assert client.stats(f"app:{user}")["decisions"]["duplicate"] == 2
        found = await service.search_memory(app_name="app", user_id=user, query="Where do I live?")
        assert [texts(one) for one in found.memories] == ["I moved to Lisbon last month."]
        assert found.memories[0].author == "user"
        other = await service.search_memory(app_name="b", user_id=user, query="Where do I live?")
        assert other.memories == []

        note = MemoryEntry(content=types.Content(parts=[types.Part(text="Ada keeps bees")]))
        note.custom_metadata = {"n": 3}
        await service.add_memory(app_name="app", user_id=user, memories=[note])
        found = await service.search_memory(app_name="app", user_id=user, query="Who keeps bees?")
        assert texts(found.memories[0]) == "Ada keeps bees"
        assert found.memories[0].custom_metadata["n"] == "3"
        await service.delete_memory(
            app_name="app", user_id=user, memory_id=found.memories[0].id
        )
        found = await service.search_memory(app_name="app", user_id=user, query="Who keeps bees?")
        assert "Ada keeps bees" not in [texts(one) for one in found.memories]
        with pytest.raises(ValueError, match="needs the id"):
            await service.delete_memory(app_name="app", user_id=user)

    def texts(memory: MemoryEntry) -> str:
        return "".join(part.text or "" for part in memory.content.parts or [])

    asyncio.run(run())
