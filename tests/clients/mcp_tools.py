"""Calls all twelve tools, the resources and the prompt with the official Python client of MCP, over
streamable HTTP and over stdio, with the newest handshake and with the older one."""

import asyncio
import os
import uuid
from collections.abc import Iterator
from typing import Any

from mcp import Client, MCPError, StdioServerParameters

URL = os.environ["KEEPSAKE_URL"]
BROKERS = os.environ["KEEPSAKE_BROKERS"]
TOOLS = {
    "add_memory",
    "add_turns",
    "search_memories",
    "get_memories",
    "forget_memories",
    "memory_stats",
    "get_memory",
    "memory_history",
    "explain_memory",
    "update_memory",
    "delete_memory",
    "delete_all_memories",
}
BEES = "Ada keeps bees in Lisbon"


def transports() -> Iterator[tuple[str, str | StdioServerParameters]]:
    user = f"mcp-{uuid.uuid4()}"
    yield f"HTTP, {user} in the path", f"{URL}/mcp/{user}/"
    user = f"mcp-{uuid.uuid4()}"
    arguments = ["mcp", "--user", user, "--brokers", BROKERS]
    yield "stdio", StdioServerParameters(command=os.environ["KEEPSAKE"], args=arguments)


async def check(client: Client) -> None:
    async def call(name: str, **arguments: Any) -> dict[str, Any]:
        called.add(name)
        result = await client.call_tool(name, arguments)
        assert not result.is_error, (name, result)
        assert result.content[0].type == "text" and result.structured_content is not None, result
        return result.structured_content

    called: set[str] = set()
    assert client.server_info is not None and client.server_info.name == "keepsake"
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == TOOLS, tools
    reads = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert reads == {it for it in TOOLS if it.startswith(("search", "get", "memory", "explain"))}

    memory = (await call("add_memory", text=BEES, metadata={"team": "blue"}))["id"]
    turns = [
        {"role": "user", "content": "I moved to Oslo last month."},
        {"role": "assistant", "content": "Ok, thanks!"},
    ]
    decided = await call("add_turns", turns=turns, session="s1")
    assert [it["outcome"] for it in decided["decisions"]] == ["kept", "dropped"], decided
    found = await call("search_memories", query="Who keeps bees?", filters={"team": "blue"})
    assert [it["id"] for it in found["memories"]] == [memory], found
    listed = await call("get_memories", session="s1")
    assert len(listed["memories"]) == 1, listed
    assert (await call("get_memory", id=memory))["memory"]["content"] == BEES
    await call("update_memory", id=memory, text="Ada keeps bees in Porto")
    history = await call("memory_history", id=memory)
    assert [it["content"] for it in history["history"]] == [BEES], history
    explained = await call("explain_memory", id=memory)
    assert explained["decision"]["reason"] == "asked to remember", explained

    resources = (await client.list_resources()).resources
    assert "about://me" in [str(it.uri) for it in resources], resources
    assert len(resources) == 3, resources
    (uri,) = [it.uri for it in resources if it.name == "Ada keeps bees in Porto"]
    contents = (await client.read_resource(uri)).contents
    assert contents[0].text == "Ada keeps bees in Porto", contents
    templates = (await client.list_resource_templates()).resource_templates
    assert [it.uri_template for it in templates] == ["memory://{id}"], templates
    prompts = (await client.list_prompts()).prompts
    assert [it.name for it in prompts] == ["memories"], prompts
    prompt = await client.get_prompt("memories", {"query": "Who keeps bees?"})
    assert "bees in Porto" in prompt.messages[0].content.text, prompt

    await call("update_memory", id=memory, confidence=0.5, enabled=True)
    assert (await call("memory_stats"))["memories"]["total"] == 2
    forgotten = await call("forget_memories", query="the memory about Oslo")
    assert [it["outcome"] for it in forgotten["decisions"]] == ["forgotten"], forgotten
    assert (await call("memory_stats"))["memories"]["total"] == 1
    await call("delete_memory", id=memory)
    gone = await client.call_tool("get_memory", {"id": memory})
    assert gone.is_error and gone.structured_content["error"]["code"] == "not_found", gone
    wrong = await client.call_tool("search_memories", {})
    assert wrong.is_error and wrong.structured_content["error"]["field"] == "query", wrong
    await call("delete_all_memories")
    assert (await call("get_memories"))["memories"] == []
    assert called == TOOLS, TOOLS - called
    for wrong_call in (
        client.call_tool("no_such_tool", {}),
        client.read_resource(f"memory://{memory}"),
        client.read_resource("test://static-text"),
        client.get_prompt("no_such_prompt", {}),
    ):
        try:
            await wrong_call
        except MCPError:
            continue
        raise AssertionError("a wrong call must fail")


async def main() -> None:
    for mode in ("auto", "legacy"):
        for name, transport in transports():
            async with Client(transport, mode=mode) as client:
                await check(client)
                print(f"MCP, Python, {name}: all tools, protocol {client.protocol_version}")


asyncio.run(main())
