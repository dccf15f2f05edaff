// Calls all twelve tools, the resources and the prompt with the official TypeScript client of MCP,
// over streamable HTTP, with the user in the path and in the header, and over stdio.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { KEEPSAKE, KEEPSAKE_URL, KEEPSAKE_BROKERS } = process.env;
const TOOLS = [
  "add_memory",
  "add_turns",
  "delete_all_memories",
  "delete_memory",
  "explain_memory",
  "forget_memories",
  "get_memories",
  "get_memory",
  "memory_history",
  "memory_stats",
  "search_memories",
  "update_memory",
];
const BEES = "Ada keeps bees in Lisbon";
const someone = () => `mcp-${randomUUID()}`;

const transports = {
  "HTTP, user in the path": () =>
    new StreamableHTTPClientTransport(new URL(`${KEEPSAKE_URL}/mcp/${someone()}/`)),
  "HTTP, user in the header": () =>
    new StreamableHTTPClientTransport(new URL(`${KEEPSAKE_URL}/mcp`), {
      requestInit: { headers: { "X-Keepsake-User": someone() } },
    }),
  stdio: () =>
    new StdioClientTransport({
      command: KEEPSAKE,
      args: ["mcp", "--user", someone(), "--brokers", KEEPSAKE_BROKERS],
    }),
};

for (const [name, transport] of Object.entries(transports)) {
  test(`all tools over ${name}`, async () => {
    const client = new Client({ name: "keepsake-tests", version: "1" });
    await client.connect(transport());
    try {
      await check(client);
    } finally {
      await client.close();
    }
  });
}

async function check(client) {
  const called = new Set();
  async function call(name, args) {
    called.add(name);
    const result = await client.callTool({ name, arguments: args });
    assert(!result.isError, JSON.stringify(result));
    assert.equal(result.content[0].type, "text");
    return result.structuredContent;
  }

  assert.equal(client.getServerVersion().name, "keepsake");
  await client.ping();
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name).sort(), TOOLS);
  const erasing = tools.filter((tool) => tool.annotations.destructiveHint).map((tool) => tool.name);
  assert.deepEqual(erasing.sort(), ["delete_all_memories", "delete_memory", "forget_memories", "update_memory"]);

  const { id } = await call("add_memory", { text: BEES, metadata: { team: "blue" } });
  const turns = [
    { role: "user", content: "I moved to Oslo last month." },
    { role: "assistant", content: "Ok, thanks!" },
  ];
  const { decisions } = await call("add_turns", { turns, session: "s1" });
  assert.deepEqual(decisions.map((it) => it.outcome), ["kept", "dropped"]);
  const query = "Who keeps bees?";
  const found = await call("search_memories", { query, filters: { team: "blue" } });
  assert.deepEqual(found.memories.map((it) => it.id), [id]);
  assert.equal((await call("get_memories", { session: "s1" })).memories.length, 1);
  assert.equal((await call("get_memory", { id })).memory.content, BEES);
  await call("update_memory", { id, text: "Ada keeps bees in Porto" });
  const { history } = await call("memory_history", { id });
  assert.deepEqual(history.map((it) => it.content), [BEES]);
  const explained = await call("explain_memory", { id });
  assert.equal(explained.decision.reason, "asked to remember");

  const { resources } = await client.listResources();
  assert.equal(resources.length, 3);
  assert(resources.some((it) => it.uri === "about://me"));
  const uri = `memory://${id}`;
  assert(resources.some((it) => it.uri === uri && it.name === "Ada keeps bees in Porto"));
  const { contents } = await client.readResource({ uri });
  assert.equal(contents[0].text, "Ada keeps bees in Porto");
  const { resourceTemplates } = await client.listResourceTemplates();
  assert.deepEqual(resourceTemplates.map((it) => it.uriTemplate), ["memory://{id}"]);
  const { prompts } = await client.listPrompts();
  assert.deepEqual(prompts.map((it) => it.name), ["memories"]);
  const asked = { name: "memories", arguments: { query } };
  const { messages } = await client.getPrompt(asked);
  assert.match(messages[0].content.text, /bees in Porto/);

  await call("update_memory", { id, confidence: 0.5, enabled: true });
  assert.equal((await call("memory_stats", {})).memories.total, 2);
  const forgotten = await call("forget_memories", { query: "the memory about Oslo" });
  assert.deepEqual(forgotten.decisions.map((it) => it.outcome), ["forgotten"]);
  await call("delete_memory", { id });
  const gone = await client.callTool({ name: "get_memory", arguments: { id } });
  assert.equal(gone.structuredContent.error.code, "not_found");
  const wrong = await client.callTool({ name: "search_memories", arguments: {} });
  assert.equal(wrong.structuredContent.error.field, "query");
  await call("delete_all_memories", {});
  assert.deepEqual((await call("get_memories", {})).memories, []);
  assert.deepEqual([...called].sort(), TOOLS);
  await assert.rejects(client.callTool({ name: "no_such_tool", arguments: {} }));
  await assert.rejects(client.readResource({ uri }));
  const foreign = client.readResource({ uri: "test://static-text" });
  await assert.rejects(foreign, /resources are memory:\/\/\{id\}/);
  await assert.rejects(client.getPrompt({ name: "no_such_prompt" }));
}
