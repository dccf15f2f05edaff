// The tools in a real call of generateText; only the model is scripted.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { Keepsake } from "../src/index.js";
import { memoryPrompt, memoryTools } from "../src/ai.js";

const keepsake = new Keepsake({ url: process.env["KEEPSAKE_URL"] ?? "" });
const user = `user-${randomUUID()}`;

/** Calls one tool with `input` and returns its output. */
async function called(toolName: string, input: unknown): Promise<any> {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const call = {
    type: "tool-call" as const,
    toolCallId: "1",
    toolName,
    input: JSON.stringify(input),
  };
  const results = [
    { content: [call], finishReason: "tool-calls" },
    { content: [{ type: "text", text: "done" }], finishReason: "stop" },
  ].map((result) => ({
    ...result,
    finishReason: { unified: result.finishReason, raw: undefined },
    usage,
    warnings: [],
  }));
  const model = new MockLanguageModelV3({ doGenerate: results as never });
  const tools = memoryTools(keepsake, user, "s1");
  const result = await generateText({ model, tools, prompt: "go", stopWhen: stepCountIs(2) });
  assert.equal(result.text, "done");
  const [made] = result.steps[0]?.toolResults ?? [];
  assert(made, JSON.stringify(result.steps[0]?.content));
  return made.output;
}

test("a model stores, finds and erases memories", async () => {
  const added = await called("addMemory", { text: "Ada keeps bees in Lisbon" });
  assert.equal(added.outcome, "kept");
  assert.equal((await keepsake.get(user, added.id)).memory.session, "s1");
  const found = await called("searchMemories", { query: "Who keeps bees?", limit: 3 });
  assert.equal(found.memories[0].content, "Ada keeps bees in Lisbon");
  assert.match(await memoryPrompt(keepsake, user, "Who keeps bees?", "s1"), /bees in Lisbon/);
  const deleted = await called("deleteMemory", { id: found.memories[0].id });
  assert.equal(deleted.outcome, "forgotten");
  assert.equal((await keepsake.stats(user)).memories.total, 0);
  assert.equal(await memoryPrompt(keepsake, user, "Who keeps bees?"), "");
});
