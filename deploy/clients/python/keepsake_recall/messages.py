"""Replies of the contract as typed dictionaries.

The dictionaries are the JSON as it came, so fields that a later version adds are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Role = Literal["user", "assistant", "system", "tool"]
Scope = Literal["user", "session", "tenant"]
Signal = Literal["used", "confirmed", "wrong", "irrelevant"]
# Conditions: a text that must be equal, operators such as {"$gte": 3}, or `$or`, `$and`, `$not` with more.
Where = Mapping[str, "str | Mapping[str, object] | Sequence[Where]"]
Format = Literal["markdown", "xml", "compact", "json", "template", "none"]


class Turn(TypedDict, total=False):
    role: Role
    speaker: str
    content: str


class Source(TypedDict, total=False):
    event_id: str
    topic: str
    partition: int
    offset: int


class Memory(TypedDict, total=False):
    id: str
    kind: str
    content: str
    score: float
    relevance: float
    importance: float
    confidence: float
    created_at: str
    valid_from: str
    valid_to: str
    expires_at: str
    session: str
    speaker: str
    role: str
    source: Source
    metadata: dict[str, str]
    supersedes: list[str]
    superseded_by: str
    revises: list[str]
    revised_by: str
    note: str
    conflicts_with: list[str]
    enabled: bool
    scope: Scope
    state: str
    explain: dict[str, Any]


class Decision(TypedDict, total=False):
    outcome: str
    reason: str
    memory: str
    related: list[str]
    candidate: str
    kind: str
    surprise: dict[str, Any]
    threshold: float
    left: int


class Reply(TypedDict, total=False):
    applied_offset: int
    stale: bool
    took_us: int
    misrouted: bool
    warnings: list[str]


class Applied(Reply, total=False):
    decisions: list[Decision]
    partition: int
    offset: int


class Recalled(Reply, total=False):
    memories: list[Memory]
    wishes: list[Memory]
    match: Literal["good", "weak", "none"]
    prompt: str
    tokens: int
    budget_used: float
    partial: bool


class Listed(Reply, total=False):
    memories: list[Memory]
    after: str


class Revision(TypedDict, total=False):
    content: str
    until: str


class MemoryReply(Reply, total=False):
    memory: Memory
    history: list[Revision]


class Explained(Reply, total=False):
    decision: Decision
    decisions: list[Decision]
    memory: Memory
    since: list[dict[str, Any]]


class Stats(Reply, total=False):
    memories: dict[str, Any]
    decisions: dict[str, int]
    importance_average: float
    oldest: str
    bytes: int
