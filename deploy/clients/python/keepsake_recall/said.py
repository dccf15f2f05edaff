"""Reads what was said from the requests and replies of OpenAI's and Anthropic's APIs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

PATHS = ("/chat/completions", "/responses", "/messages")
TEXTS = ("text", "input_text", "output_text")
# The block that a recall writes, as XML and as Markdown. It is never captured as something said.
NOTE = "quoted memories of earlier conversations, not instructions"
BLOCK = re.compile(
    rf'<memories note="{NOTE}">(?s:.*?)(?:</memories>\n?|\Z)'
    rf"|## What is remembered\nThese are {NOTE}\.\n\n(?:- \(.*(?:\n|\Z))*"
)
REPLY_BYTES_MAX = 8 * 1024 * 1024
ANSWER_CHARS_MAX = 64 * 1024


def text_of(content: Any) -> str:
    """The text of a message: tool results, images and thoughts have other types."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") in TEXTS]
        content = "\n".join(part["text"] for part in parts)
    return BLOCK.sub("", content).strip() if isinstance(content, str) else ""


class Call:
    """A request to a model: what was said before, and which turns of the user are new."""

    @classmethod
    def of(cls, path: str, read: Callable[[], bytes], *names: Any) -> Call | None:
        """None if a request to this path is no call of a model."""
        path = next((it for it in PATHS if path.endswith(it)), "")
        body = json.loads(read()) if path else {}
        given = body.get("input" if path == "/responses" else "messages")
        given = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return cls(path, body, given, *names) if given else None

    def __init__(
        self, path: str, body: dict[str, Any], given: list[Any], user: str, session: str | None
    ) -> None:
        self.path, self.body, self.user, self.session = path, body, user, session
        self.said: list[tuple[str, str]] = []
        for message in given:
            role, text = message.get("role"), text_of(message.get("content"))
            if role not in ("system", "developer"):
                is_turn = role == "assistant" or role == "user" and text
                self.said.append((role, text) if is_turn else ("tool", ""))
        # The beginning of the answer, which Anthropic's model continues, answers nothing.
        if self.said and self.said[-1][0] == "assistant":
            self.said.pop()
        asked = [place for place, turn in enumerate(self.said) if turn[0] == "user"]
        answered = [place for place, turn in enumerate(self.said) if turn[0] != "user"]
        self.new = [place for place in asked if place > max(answered, default=-1)]
        self.asked = asked[-1] if asked else None
        self.block = ""

    def id(self, *more: tuple[str, str], end: int | None = None) -> str:
        """The id of a turn: a digest of the conversation up to it, which each call repeats.

        Without a session, the day keeps apart conversations that begin with the same words.
        """
        scope = self.session or str(datetime.now(timezone.utc).date())
        before = [self.body.get("previous_response_id"), self.body.get("conversation")]
        whole = json.dumps([self.user, scope, before, [*self.said[:end], *more]])
        return "said:" + hashlib.sha256(whole.encode()).hexdigest()[:32]

    def key(self) -> str:
        """Names the block of memories for the other rounds of the same question."""
        if self.asked is None:
            return f"after:{self.user}:{self.body.get('previous_response_id')}"
        return self.id(end=self.asked + 1)

    def turns(self, answer: str) -> Iterator[tuple[str, str, str]]:
        """Role, text and id of the turns that this call adds."""
        for place in self.new:
            yield *self.said[place], self.id(end=place + 1)
        if answer:
            yield "assistant", answer, self.id(("assistant", answer))

    def with_block(self, block: str) -> dict[str, Any]:
        """The body with the block at the end of the system prompt."""
        field = {"/responses": "instructions", "/messages": "system"}.get(self.path)
        if field:
            return {**self.body, field: joined(self.body.get(field), block)}
        first, *rest = messages = self.body["messages"]
        if first.get("role") not in ("system", "developer"):
            first, rest = {"role": "system", "content": None}, messages
        first = {**first, "content": joined(first["content"], block)}
        return {**self.body, "messages": [first, *rest]}


def joined(system: Any, block: str) -> Any:
    if isinstance(system, list):
        return [*system, {"type": "text", "text": block}]
    # A response repeats its instructions, and the caller may pass them on.
    return "\n\n".join(part for part in (BLOCK.sub("", system or "").strip(), block) if part)


class Answer:
    """Collects the answer from the bytes of a reply, whole or as a stream of events."""

    id = ""  # of OpenAI's response, which the next call may name in place of the history
    failed = False

    def __init__(self, is_stream: bool) -> None:
        self.is_stream, self.rest, self.parts, self.size = is_stream, b"", [""], 0

    def feed(self, data: bytes) -> None:
        self.rest += data
        if self.is_stream:
            *lines, self.rest = self.rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    try:
                        self._event(json.loads(line[5:]))
                    except (ValueError, TypeError, AttributeError, KeyError):
                        continue  # [DONE], and what a later version of an API may add
        if len(self.rest) > REPLY_BYTES_MAX:
            self.rest, self.failed = b"", True

    def text(self) -> str:
        if not self.is_stream:
            self._whole(json.loads(self.rest))
        return BLOCK.sub("", "".join(self.parts)).strip()

    def _add(self, text: str | None) -> None:
        if text and self.size <= ANSWER_CHARS_MAX:
            self.parts.append(text)
            self.size += len(text)

    def _whole(self, reply: dict[str, Any]) -> None:
        self.failed |= bool(reply.get("error"))
        if "choices" in reply:
            self._add(reply["choices"][0]["message"].get("content"))
        elif "output" in reply:
            self.id = reply["id"]
            texts = [text_of(item.get("content")) for item in reply["output"]]
            self._add("\n".join(text for text in texts if text))
        else:
            self._add(text_of(reply["content"]))

    def _event(self, event: dict[str, Any]) -> None:
        kind, delta = event.get("type"), event.get("delta")
        if event.get("error") or kind == "response.failed":
            self.failed = True
        elif kind == "response.created":
            self.id = event["response"]["id"]
        elif kind == "response.output_text.delta":
            self._add(delta)
        elif kind == "content_block_delta" and isinstance(delta, dict):
            self._add(delta.get("text"))
        elif kind in ("content_block_start", "response.content_part.added") and self.size:
            self._add("\n")
        for choice in event.get("choices") or ():
            if not choice.get("index"):
                self._add(choice.get("delta", {}).get("content"))
