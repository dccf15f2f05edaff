"""The clients of OpenAI and Anthropic with memory: a scripted model, and the real service."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any
from urllib.request import urlopen

import anthropic
import openai
import pytest
from models import Models

from keepsake_recall import Http, memory_of, remembering

URL = os.environ["KEEPSAKE_URL"]
MOVED, FISH = "I moved to Lisbon last month.", "I am allergic to peanuts."
WAIT = 20.0  # a busy machine may be slow; the tests of the wait have their own
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def models() -> Iterator[Models]:
    made = Models()
    yield made
    made.close()


@pytest.fixture
def silent() -> Iterator[str]:
    """A service that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def slow() -> Iterator[str]:
    """A service whose answer comes a byte at a time and has no end."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def of_openai(models: Models, **options: Any) -> openai.OpenAI:
    client = openai.OpenAI(api_key="k", base_url=f"{models.url}/v1", max_retries=2)
    return remembering(client, **{"url": URL, "wait": WAIT, **options})


def of_anthropic(models: Models, **options: Any) -> anthropic.Anthropic:
    client = anthropic.Anthropic(api_key="k", base_url=models.url, max_retries=2)
    return remembering(client, **{"url": URL, "wait": WAIT, **options})


def chat(models: Models, said: Any, **options: Any) -> str | None:
    client = of_openai(models, **options)
    made = client.chat.completions.create(model="m", messages=said)
    assert type(made) is openai.types.chat.ChatCompletion
    return flushed(client, made.choices[0].message.content)


def chat_streamed(models: Models, said: Any, **options: Any) -> str | None:
    client = of_openai(models, **options)
    stream = client.chat.completions.create(model="m", messages=said, stream=True)
    assert type(stream) is openai.Stream
    return flushed(client, "".join(it.choices[0].delta.content or "" for it in stream))


def chat_helper(models: Models, said: Any, **options: Any) -> str | None:
    client = of_openai(models, **options)
    with client.chat.completions.stream(model="m", messages=said) as stream:
        made = stream.get_final_completion()
    return flushed(client, made.choices[0].message.content)


def responses(models: Models, said: Any, **options: Any) -> str | None:
    client = of_openai(models, **options)
    return flushed(client, client.responses.create(model="m", input=said).output_text)


def responses_streamed(models: Models, said: Any, **options: Any) -> str | None:
    client = of_openai(models, **options)
    stream = client.responses.create(model="m", input=said, stream=True)
    return flushed(client, "".join(getattr(it, "delta", "") for it in stream))


def messages(models: Models, said: Any, **options: Any) -> str | None:
    client = of_anthropic(models, **options)
    made = client.messages.create(model="m", max_tokens=9, messages=said)
    assert type(made) is anthropic.types.Message
    return flushed(client, made.content[0].text)  # type: ignore[union-attr]


def messages_streamed(models: Models, said: Any, **options: Any) -> str | None:
    client = of_anthropic(models, **options)
    with client.messages.stream(model="m", max_tokens=9, messages=said) as stream:
        return flushed(client, "".join(stream.text_stream))


def messages_events(models: Models, said: Any, **options: Any) -> str | None:
    client = of_anthropic(models, **options)
    stream = client.messages.create(model="m", max_tokens=9, messages=said, stream=True)
    deltas: Any = [it.delta for it in stream if it.type == "content_block_delta"]
    return flushed(client, "".join(it.text for it in deltas))


def chat_async(models: Models, said: Any, **options: Any) -> str | None:
    async def run() -> str | None:
        plain = openai.AsyncOpenAI(api_key="k", base_url=f"{models.url}/v1")
        async with remembering(plain, **{"url": URL, "wait": WAIT, **options}) as client:
            made = await client.chat.completions.create(model="m", messages=said)
            return flushed(client, made.choices[0].message.content)

    return asyncio.run(run())


def responses_async(models: Models, said: Any, **options: Any) -> str | None:
    async def run() -> str | None:
        plain = openai.AsyncOpenAI(api_key="k", base_url=f"{models.url}/v1")
        async with remembering(plain, **{"url": URL, "wait": WAIT, **options}) as client:
            stream = await client.responses.create(model="m", input=said, stream=True)
            return flushed(client, "".join([getattr(it, "delta", "") async for it in stream]))

    return asyncio.run(run())


def messages_async(models: Models, said: Any, **options: Any) -> str | None:
    async def run() -> str | None:
        plain = anthropic.AsyncAnthropic(api_key="k", base_url=models.url)
        async with remembering(plain, **{"url": URL, "wait": WAIT, **options}) as client:
            async with client.messages.stream(model="m", max_tokens=9, messages=said) as stream:
                return flushed(client, "".join([text async for text in stream.text_stream]))

    return asyncio.run(run())


def flushed(client: Any, answer: str | None) -> str | None:
    memory = memory_of(client)
    assert memory.wait < WAIT or memory.flush(WAIT)
    return answer


Call = Callable[..., str | None]
CALLS: list[Call] = [
    chat,
    chat_streamed,
    chat_helper,
    chat_async,
    responses,
    responses_streamed,
    responses_async,
    messages,
    messages_streamed,
    messages_events,
    messages_async,
]
every_call = pytest.mark.parametrize("call", CALLS)


def system(body: dict[str, Any]) -> Any:
    """The system prompt that the model got."""
    first = (body.get("messages") or [{}])[0]
    own = first["content"] if first.get("role") in ("system", "developer") else None
    return body.get("system") or body.get("instructions") or own or ""


def said(*texts: str) -> Any:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def outcomes(user: str) -> dict[str, int]:
    with Http(URL) as client:
        return client.stats(user)["decisions"]


def held(user: str) -> list[tuple[str, str]]:
    with Http(URL) as client:
        return sorted((it.get("role", "user"), it["content"]) for it in client.list_all(user))


@every_call
def test_the_next_conversation_has_what_was_said_in_this(
    call: Call, models: Models, user: str
) -> None:
    given = said(MOVED)
    kept = deepcopy(given)
    assert call(models, given, user=user) == "Fine."
    assert given == kept and models.asked[0].get("system") is None
    assert "memories" not in str(models.asked[0])
    assert held(user) == [("user", MOVED)]
    models.answers = ["You live in Lisbon, ü."]
    assert call(models, said("Where do I live?"), user=user) == "You live in Lisbon, ü."
    block = system(models.asked[1])
    assert block.startswith("<memories") and MOVED in block
    assert call(models, said("Where do I live?"), user=f"{user}-other") == "Fine."
    assert system(models.asked[2]) == ""
    assert decided(user) == [MOVED, "Fine.", "Where do I live?", "You live in Lisbon, ü."]


@every_call
def test_each_turn_of_a_conversation_is_captured_once(
    call: Call, models: Models, user: str
) -> None:
    conversation = said(MOVED, "Nice.", FISH)
    models.answers = ["Nice.", "Noted.", "Noted."]
    call(models, conversation[:1], user=user)
    call(models, conversation, user=user)
    assert held(user) == sorted([("user", MOVED), ("user", FISH)])
    assert decided(user) == [MOVED, "Nice.", FISH, "Noted."]
    # Asked again by a process that does not know what this one has sent.
    call(models, conversation, user=user)
    assert outcomes(user)["duplicate"] == 2
    assert held(user) == sorted([("user", MOVED), ("user", FISH)])


def test_rounds_of_tools_share_a_block_and_their_results_are_not_captured(
    models: Models, user: str
) -> None:
    with Http(URL) as service:
        service.turn(user, MOVED)
    secret = "I am allergic to peanuts, says the tool."
    question = "Where do I live, and what is the weather there?"
    client = of_openai(models, user=user)

    models.answers = [("weather", "t1"), "Sunny in Lisbon."]
    asked: list[Any] = [{"role": "user", "content": question}]
    first = client.chat.completions.create(model="m", messages=asked)
    asked.append(first.choices[0].message.model_dump(exclude_none=True))
    asked.append({"role": "tool", "tool_call_id": "t1", "content": secret})
    client.chat.completions.create(model="m", messages=asked)
    asked.append({"role": "assistant", "content": "Sunny in Lisbon."})
    check(client, models, [question, "Sunny in Lisbon."])

    models.answers = [("weather", "t1"), "Rainy in Porto."]
    question = "Is it going to rain in Porto?"
    response = client.responses.create(model="m", input=question)
    result: Any = {"type": "function_call_output", "call_id": "t1", "output": secret}
    client.responses.create(model="m", input=[result], previous_response_id=response.id)
    check(client, models, [question, "Rainy in Porto."])

    models.answers = [("weather", "t1"), "Windy in Faro."]
    claude = of_anthropic(models, user=user)
    question = "Is there much wind where I live?"
    asked = [{"role": "user", "content": [{"type": "text", "text": question}]}]
    message = claude.messages.create(model="m", max_tokens=9, messages=asked)
    told = [{"type": "text", "text": secret}]
    part = {"type": "tool_result", "tool_use_id": "t1", "content": told}
    asked.append({"role": "assistant", "content": message.content})
    asked.append({"role": "user", "content": [part]})
    claude.messages.create(model="m", max_tokens=9, messages=asked)
    check(claude, models, [question, "Windy in Faro."])
    assert secret not in str(held(user))


def check(client: Any, models: Models, expected: list[str]) -> None:
    assert memory_of(client).flush(WAIT)
    first, second = models.asked[-2:]
    assert MOVED in str(system(first)) and system(first) == system(second)
    assert decided(memory_of(client)._user)[-2:] == expected


def decided(user: str) -> list[str]:
    """All that was captured of a user, oldest first."""
    with urlopen(f"{URL}/v1/keepsake/decisions/past?user={user}") as reply:
        found = json.load(reply)["decisions"]
    # The worker's own proposals, such as a revision, have no candidate.
    return [it["candidate"] for it in reversed(found) if it.get("candidate")]


@every_call
def test_memories_are_never_captured_as_something_said(
    call: Call, models: Models, user: str
) -> None:
    with Http(URL) as service:
        service.turn(user, MOVED)
        block = service.recall(user, "Where do I live?", format="xml")["prompt"]
        plain = service.recall(user, "Where do I live?")["prompt"]
    assert MOVED in block and MOVED in plain
    models.answers = [f"I know this:\n{block}\nYou live there.\n{block[:-20]}"]
    call(models, said(f"{plain}\n{block}My sister keeps bees in Porto."), user=user)
    answer = "I know this:\n\nYou live there."
    assert decided(user)[1:] == ["My sister keeps bees in Porto.", answer]


def test_the_system_prompt_of_the_caller_stays_in_front(models: Models, user: str) -> None:
    with Http(URL) as service:
        service.turn(user, MOVED)
    client, claude = of_openai(models, user=user), of_anthropic(models, user=user)
    question = said("Where do I live?")
    rule: Any = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    for role in ("system", "developer"):
        first: Any = {"role": role, "content": "Be brief."}
        client.chat.completions.create(model="m", messages=[first, *question])
        messages = models.asked[-1]["messages"]
        assert messages[0]["role"] == role and len(messages) == 2
        assert messages[0]["content"].startswith("Be brief.\n\n<memories")
    parts: Any = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    client.chat.completions.create(model="m", messages=[parts, *question])
    assert [it["text"][:9] for it in system(models.asked[-1])] == ["Be brief.", "<memories"]
    client.chat.completions.create(model="m", messages=[*said(FISH), first])
    memory_of(client).flush(WAIT)
    assert FISH in decided(user)
    client.responses.create(model="m", input=question, instructions="Be brief.")
    instructions = system(models.asked[-1])
    assert instructions.startswith("Be brief.\n\n<memories")
    client.responses.create(model="m", input=question, instructions=instructions)
    assert system(models.asked[-1]).count("<memories") == 1
    claude.messages.create(model="m", max_tokens=9, messages=question, system="Be brief.")
    assert system(models.asked[-1]).startswith("Be brief.\n\n<memories")
    claude.messages.create(model="m", max_tokens=9, messages=question, system=[rule])
    assert system(models.asked[-1])[0] == rule and len(system(models.asked[-1])) == 2


@every_call
def test_without_a_service_the_model_answers_all_the_same(
    call: Call, models: Models, caplog: pytest.LogCaptureFixture, silent: str
) -> None:
    for url in (NOBODY, silent):
        caplog.clear()
        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "keepsake_recall"):
            assert call(models, said(MOVED), user="ada", url=url, wait=0.3) == "Fine."
        assert "memories" not in str(models.asked[-1])
        assert time.monotonic() - began < 3
        assert [it.name for it in caplog.records] == ["keepsake_recall"], caplog.text


@pytest.mark.parametrize("call", [chat, chat_async])
def test_a_slow_service_is_waited_for_no_longer_than_asked(
    call: Call, models: Models, slow: str
) -> None:
    began = time.monotonic()
    assert call(models, said(MOVED), user="ada", url=slow, wait=0.3) == "Fine."
    assert time.monotonic() - began < 3


def test_what_is_lost_is_counted_and_never_waited_for(
    models: Models, silent: str, user: str
) -> None:
    client = of_openai(models, user=user, url=silent, wait=0.1)
    memory = memory_of(client)
    began = time.monotonic()
    for number in range(8):
        long = "bees " * 14000
        text = long if number == 7 else f"I have {number} bees."
        client.chat.completions.create(model="m", messages=said(text))
    assert time.monotonic() - began < 5
    assert (memory.missed, memory.lost) == (8, 1)
    for number in range(300):
        memory._send(user, {"content": "I have bees.", "role": "user", "id": str(number)})
    assert 40 < memory.lost < 70 and not memory.flush(0.1)


def test_a_process_ends_although_the_service_hangs(models: Models, silent: str) -> None:
    code = f"""
import openai, keepsake_recall
client = openai.OpenAI(api_key="k", base_url="{models.url}/v1")
client = keepsake_recall.remembering(client, user="ada", url="{silent}")
client.chat.completions.create(model="m", messages=[{{"role": "user", "content": "I have bees."}}])
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and time.monotonic() - began < 20
    assert done.stderr.count("goes on without memories") == 1 and len(done.stderr.splitlines()) == 1


def test_a_process_that_ends_sends_its_last_turns(models: Models, user: str) -> None:
    code = f"""
import openai, keepsake_recall
client = openai.OpenAI(api_key="k", base_url="{models.url}/v1")
client = keepsake_recall.remembering(client, user="{user}", url="{URL}", wait=20)
client.chat.completions.create(model="m", messages=[{{"role": "user", "content": "{MOVED}"}}])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert decided(user) == [MOVED, "Fine."]


@pytest.mark.parametrize("call", CALLS)
def test_an_error_of_the_model_passes_and_captures_nothing(
    call: Call, models: Models, user: str
) -> None:
    models.answers = [400]
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as failure:
        call(models, said(MOVED), user=user)
    assert failure.value.status_code == 400 and len(models.asked) == 1
    # The client's own second attempt has the same block, and the turn is captured once.
    models.answers = [500, "Nice."]
    assert call(models, said(MOVED), user=user) == "Nice."
    assert models.asked[1] == models.asked[2] and decided(user) == [MOVED, "Nice."]


def test_a_stream_that_is_left_is_captured_and_one_that_breaks_is_not(
    models: Models, user: str
) -> None:
    client, claude = of_openai(models, user=user), of_anthropic(models, user=user)
    create: Any = client.chat.completions.create
    models.answers = ["I will tell you all about bees."] * 5
    stream = create(model="m", messages=said(MOVED), stream=True)
    for _ in range(7):
        next(stream)
    stream.close()
    memory_of(client).flush(WAIT)
    assert decided(user) == [MOVED, "I will"]
    with claude.messages.stream(model="m", max_tokens=9, messages=said(FISH)) as events:
        next(iter(events.text_stream))
    memory_of(claude).flush(WAIT)
    assert decided(user)[2] == FISH
    before, boat = decided(user), said("I own a boat.")
    models.breaks = True
    with pytest.raises(Exception, match="incomplete|closed|Connection error"):
        list(create(model="m", messages=boat, stream=True))
    with pytest.raises(Exception, match="incomplete|closed|Connection error"):
        list(claude.messages.create(model="m", max_tokens=9, messages=boat, stream=True))
    for one in (client, claude):
        memory_of(one).flush(WAIT)
    assert decided(user) == before
    models.breaks = False
    list(create(model="m", messages=boat, stream=True))
    memory_of(client).flush(WAIT)
    assert "I own a boat." in decided(user)


def test_one_client_serves_many_users(models: Models, user: str) -> None:
    now = [f"{user}-a"]
    client = of_openai(models, user=lambda: now[0], session=lambda: f"s-{now[0]}")
    client.chat.completions.create(model="m", messages=said(MOVED))
    now[0] = f"{user}-b"
    client.chat.completions.create(model="m", messages=said(MOVED))
    memory_of(client).flush(WAIT)
    with Http(URL) as service:
        for one in ("a", "b"):
            [memory] = service.list(f"{user}-{one}")["memories"]
            assert memory["session"] == f"s-{user}-{one}"


def test_copies_and_raw_replies_have_memory_and_the_callers_client_has_none(
    models: Models, user: str
) -> None:
    own = openai.OpenAI(api_key="k", base_url=f"{models.url}/v1")
    client = remembering(own, user=user, url=URL, wait=WAIT)
    assert type(client) is openai.OpenAI
    own.chat.completions.create(model="m", messages=said("I own a boat."))
    copy = client.with_options(timeout=9)
    raw = copy.chat.completions.with_raw_response.create(model="m", messages=said(MOVED))
    assert raw.parse().choices[0].message.content == "Fine."
    streamed = client.chat.completions.with_streaming_response
    with streamed.create(model="m", messages=said(FISH)) as reply:
        assert reply.json()["id"] == "c1"
    memory_of(copy).flush(WAIT)
    assert decided(user) == [MOVED, "Fine.", FISH, "Fine."]
    del client, copy, raw, streamed, reply
    gc.collect()
    own.chat.completions.create(model="m", messages=said("I own a boat."))
    with pytest.raises(TypeError):
        remembering(object(), user="ada")
    with pytest.raises(TypeError):
        memory_of(own)
