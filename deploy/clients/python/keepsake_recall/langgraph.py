"""A LangGraph store: items are memories that only their namespace sees.

Limits: reading an item does not extend its time to live; `search` with a query returns the items
that may answer, which can be fewer than `limit`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
)

from .client import Client
from .errors import KeepsakeError
from .messages import Memory

Namespace = tuple[str, ...]
KEY, PATH, VALUE, UPDATED = (
    "langgraph_key",
    "langgraph_namespace",
    "langgraph_value",
    "langgraph_updated_at",
)
SESSION = "langgraph:"
METADATA_BYTES_MAX = 2048
# The most memories that a recall may ask for: `recall.limit_max` of the service.
RECALL_MAX = 100

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda held, wanted: bool(held == wanted),
    "$ne": lambda held, wanted: bool(held != wanted),
    "$gt": lambda held, wanted: held is not None and bool(held > wanted),
    "$gte": lambda held, wanted: held is not None and bool(held >= wanted),
    "$lt": lambda held, wanted: held is not None and bool(held < wanted),
    "$lte": lambda held, wanted: held is not None and bool(held <= wanted),
}


class KeepsakeStore(BaseStore):
    """`user` is the owner of all items, or a function that finds the owner of a namespace."""

    supports_ttl = True

    def __init__(self, client: Client, user: str | Callable[[Namespace], str]) -> None:
        self._client = client
        self._user = user

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return [self._run(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def _run(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            held = self._find(op.namespace, op.key)
            return item(held) if held else None
        if isinstance(op, PutOp):
            self._put(op)
            return None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError(f"unknown operation {op!r}")

    def _owner(self, namespace: Namespace) -> str:
        return self._user if isinstance(self._user, str) else self._user(namespace)

    def _rows(self, namespace: Namespace, key: str | None = None) -> Iterator[Memory]:
        path = ".".join(namespace)
        where = {PATH: path} if key is None else {PATH: path, KEY: key}
        return self._client.list_all(self._owner(namespace), session=SESSION + path, where=where)

    def _find(self, namespace: Namespace, key: str) -> Memory | None:
        # Two processes may have put the same new key at once.
        rows = self._rows(namespace, key)
        return max(rows, key=lambda row: row["metadata"][UPDATED], default=None)

    def _put(self, op: PutOp) -> None:
        owner = self._owner(op.namespace)
        if op.value is None:
            for row in list(self._rows(op.namespace, op.key)):
                self._client.forget(owner, memory=row["id"])
            return
        held = self._find(op.namespace, op.key)
        content, metadata = packed(op)
        is_searched = op.index is not False
        if held and op.ttl is None and "expires_at" not in held:
            done(
                self._client.update(
                    owner, held["id"], content=content, metadata=metadata, enabled=is_searched
                )
            )
            return
        if held:
            self._client.forget(owner, memory=held["id"])
        end = None if op.ttl is None else now() + timedelta(minutes=op.ttl)
        session = SESSION + metadata[PATH]
        memory = done(
            self._client.remember(
                owner,
                content,
                scope="session",
                session=session,
                metadata=metadata,
                expires_at=end,
            )
        )
        if not is_searched:
            self._client.update(owner, memory, enabled=False)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found: list[SearchItem] = []
        for namespace in self._below(op.namespace_prefix):
            rows: Iterable[Memory] = self._rows(namespace)
            if op.query:
                path = ".".join(namespace)
                rows = self._client.recall(
                    self._owner(namespace),
                    op.query,
                    session=SESSION + path,
                    where={PATH: path},
                    limit=RECALL_MAX,
                    format="none",
                )["memories"]
            found += [search_item(row, with_score=bool(op.query)) for row in rows]
        found = [one for one in found if matches(one.value, op.filter or {})]
        if op.query:
            found.sort(key=lambda one: one.score or 0.0, reverse=True)
        else:
            found.sort(key=lambda one: one.updated_at, reverse=True)
        return found[op.offset : op.offset + op.limit]

    def _below(self, prefix: Namespace) -> list[Namespace]:
        """The namespaces of the prefix's owner that begin with the prefix."""
        found = set()
        # Every text is at or after the empty one: the memories that have a namespace at all.
        where = {PATH: {"$gte": ""}}
        for memory in self._client.list_all(self._owner(prefix), where=where, everything=True):
            namespace = tuple(memory["metadata"][PATH].split("."))
            if namespace[: len(prefix)] == prefix:
                found.add(namespace)
        return sorted(found)

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        prefixes = [one.path for one in conditions if one.match_type == "prefix"]
        # The owner of a namespace is known by its first labels; wildcards name nobody.
        prefix = tuple(prefixes[0]) if prefixes and "*" not in prefixes[0] else ()
        found = self._below(prefix)
        found = [one for one in found if all(fits(one, condition) for condition in conditions)]
        if op.max_depth is not None:
            found = sorted({one[: op.max_depth] for one in found})
        return found[op.offset : op.offset + op.limit]


def now() -> datetime:
    return datetime.now(timezone.utc)


def packed(op: PutOp) -> tuple[str, dict[str, str]]:
    """The text that is searched and shown, and the metadata that give the item back."""
    value = dict(op.value or {})
    whole = json.dumps(value, ensure_ascii=False)
    metadata = {KEY: op.key, PATH: ".".join(op.namespace), UPDATED: now().isoformat()}
    if isinstance(op.index, list):
        texts = [text for path in op.index for text in get_text_at_path(value, path)]
    else:
        texts = list(texts_of(value))
    text = "\n".join(text for text in texts if text.strip())
    with_value = {**metadata, VALUE: whole}
    size = sum(len((name + held).encode()) for name, held in with_value.items())
    if text and size <= METADATA_BYTES_MAX:
        return text, with_value
    return whole, metadata


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from texts_of(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from texts_of(held)


def done(applied: Any) -> str:
    """The memory that an event made or changed; a refusal is an error here."""
    decision = applied["decisions"][0]
    if "memory" not in decision or decision["outcome"] in ("refused", "dropped"):
        raise KeepsakeError(decision["outcome"], decision["reason"])
    return str(decision["memory"])


def parts(memory: Memory) -> dict[str, Any]:
    metadata = memory["metadata"]
    return {
        "namespace": tuple(metadata[PATH].split(".")),
        "key": metadata[KEY],
        "value": json.loads(metadata.get(VALUE) or memory["content"]),
        "created_at": datetime.fromisoformat(memory["created_at"].replace("Z", "+00:00")),
        "updated_at": datetime.fromisoformat(metadata[UPDATED]),
    }


def item(memory: Memory) -> Item:
    return Item(**parts(memory))


def search_item(memory: Memory, *, with_score: bool) -> SearchItem:
    # Only relevance is comparable between the recalls of several namespaces.
    score = memory.get("relevance", memory.get("score")) if with_score else None
    return SearchItem(**parts(memory), score=score)


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for name, condition in wanted.items():
        held = value.get(name)
        is_operators = isinstance(condition, dict) and any(it.startswith("$") for it in condition)
        for operator, operand in (condition if is_operators else {"$eq": condition}).items():
            if operator not in COMPARE:
                raise ValueError(f"unknown operator {operator}: {', '.join(COMPARE)}")
            if not COMPARE[operator](held, operand):
                return False
    return True


def fits(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    is_prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if is_prefix else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path))
