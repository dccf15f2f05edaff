// The clients of OpenAI and Anthropic with memory: a scripted model, and the real service.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { type AddressInfo, createServer } from "node:net";
import { after, beforeEach, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Keepsake, memoryOf, remembering, type Remembered } from "../src/index.js";
import { Models } from "./models.js";

const url = process.env["KEEPSAKE_URL"] ?? "";
const keepsake = new Keepsake({ url });
const [MOVED, FISH] = ["I moved to Lisbon last month.", "I am allergic to peanuts."];
const WAIT = 20_000; // a busy machine may be slow; the tests of the wait have their own
const models = await new Models().open();
after(() => models.close());
beforeEach(() => {
  [models.answers, models.asked, models.breaks] = [[], [], false];
});

const someone = () => `user-${randomUUID()}`;
const roles = ["user", "assistant"] as const;
const said = (...texts: string[]) =>
  texts.map((content, n) => ({ role: roles[n % 2] ?? "user", content }));
const openai = (options: Remembered) => {
  const client = new OpenAI({ apiKey: "k", baseURL: `${models.url}/v1` });
  return remembering(client, { url, wait: WAIT, ...options });
};
const anthropic = (options: Remembered) => {
  const client = new Anthropic({ apiKey: "k", baseURL: models.url });
  return remembering(client, { url, wait: WAIT, ...options });
};

type Said = ReturnType<typeof said>;
type Text = string | null | undefined;
const done = async (client: object, answer: Text) => {
  await memoryOf(client).flush();
  return answer;
};

const calls: Record<string, (given: Said, options: Remembered) => Promise<Text>> = {
  async chat(messages, options) {
    const client = openai(options);
    const made = await client.chat.completions.create({ model: "m", messages });
    return done(client, made.choices[0]?.message.content);
  },
  async "chat, streamed"(messages, options) {
    const client = openai(options);
    let text = "";
    const stream = await client.chat.completions.create({ model: "m", messages, stream: true });
    for await (const piece of stream) text += piece.choices[0]?.delta.content ?? "";
    return done(client, text);
  },
  async "chat, by the helper"(messages, options) {
    const client = openai(options);
    const stream = client.chat.completions.stream({ model: "m", messages });
    return done(client, await stream.finalContent());
  },
  async responses(input, options) {
    const client = openai(options);
    return done(client, (await client.responses.create({ model: "m", input })).output_text);
  },
  async "responses, streamed"(input, options) {
    const client = openai(options);
    let text = "";
    const stream = await client.responses.create({ model: "m", input, stream: true });
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    return done(client, text);
  },
  async messages(messages, options) {
    const client = anthropic(options);
    const made = await client.messages.create({ model: "m", max_tokens: 9, messages });
    return done(client, made.content[0]?.type === "text" ? made.content[0].text : null);
  },
  async "messages, streamed"(messages, options) {
    const client = anthropic(options);
    let text = "";
    const asked = { model: "m", max_tokens: 9, messages, stream: true as const };
    const stream: AsyncIterable<any> = await client.messages.create(asked);
    for await (const { type, delta } of stream) {
      if (type === "content_block_delta") text += delta.text;
    }
    return done(client, text);
  },
  async "messages, by the helper"(messages, options) {
    const client = anthropic(options);
    const stream = client.messages.stream({ model: "m", max_tokens: 9, messages });
    return done(client, await stream.finalText());
  },
};

/** The system prompt that the model got. */
function system(body: any): any {
  const first = body.messages?.[0];
  const own = ["system", "developer"].includes(first?.role) ? first.content : "";
  return body.system ?? body.instructions ?? own;
}

/** All that was captured of a user, oldest first. */
async function decided(user: string): Promise<string[]> {
  const reply = await fetch(`${url}/v1/keepsake/decisions/past?user=${user}`);
  const { decisions } = (await reply.json()) as { decisions: { candidate?: string }[] };
  // The worker's own proposals, such as a revision, have no candidate.
  return decisions.reverse().flatMap(({ candidate }) => candidate || []);
}

for (const [name, call] of Object.entries(calls)) {
  test(`the next conversation has what was said in this, ${name}`, async () => {
    const user = someone();
    const given = said(MOVED);
    assert.equal(await call(given, { user }), "Fine.");
    assert.deepEqual(given, said(MOVED));
    models.answers = ["You live in Lisbon, ü."];
    assert.equal(await call(said("Where do I live?"), { user }), "You live in Lisbon, ü.");
    assert.match(system(models.asked[1]), /^<memories[^]*moved to Lisbon/);
    assert.equal(await call(said("Where do I live?"), { user: `${user}-other` }), "Fine.");
    assert.equal(system(models.asked[0]) + system(models.asked[2]), "");
    const all = [MOVED, "Fine.", "Where do I live?", "You live in Lisbon, ü."];
    assert.deepEqual(await decided(user), all);
  });

  test(`each turn of a conversation is captured once, ${name}`, async () => {
    const user = someone();
    const conversation = said(MOVED, "Nice.", FISH);
    models.answers = ["Nice.", "Noted.", "Noted."];
    await call(conversation.slice(0, 1), { user });
    await call(conversation, { user });
    assert.deepEqual(await decided(user), [MOVED, "Nice.", FISH, "Noted."]);
    // Asked again by a process that does not know what this one has sent.
    await call(conversation, { user });
    assert.equal((await keepsake.stats(user)).decisions["duplicate"], 2);
  });

  test(`memories are never captured as something said, ${name}`, async () => {
    const user = someone();
    await keepsake.turn(user, MOVED);
    const block = (await keepsake.recall(user, "Where do I live?", { format: "xml" })).prompt;
    const plain = (await keepsake.recall(user, "Where do I live?")).prompt;
    models.answers = [`I know this:\n${block}\nYou live there.\n${block.slice(0, -20)}`];
    await call(said(`${plain}\n${block}My sister keeps bees in Porto.`), { user });
    const answer = "I know this:\n\nYou live there.";
    assert.deepEqual(await decided(user), [MOVED, "My sister keeps bees in Porto.", answer]);
  });

  test(`an error of the model passes and captures nothing, ${name}`, async () => {
    const user = someone();
    models.answers = [400];
    await assert.rejects(call(said(MOVED), { user }), { status: 400 });
    assert.equal(models.asked.length, 1);
    // The client's own second attempt has the same block, and the turn is captured once.
    models.answers = [500, "Nice."];
    assert.equal(await call(said(MOVED), { user }), "Nice.");
    assert.deepEqual(models.asked[1], models.asked[2]);
    assert.deepEqual(await decided(user), [MOVED, "Nice."]);
  });
}

test("rounds of tools share a block, and their results are not captured", async () => {
  const user = someone();
  await keepsake.turn(user, MOVED);
  const result = "I am allergic to peanuts, says the tool.";
  const [client, claude] = [openai({ user }), anthropic({ user })];
  async function check(by: object, ...expected: string[]) {
    await memoryOf(by).flush();
    const [first, second] = models.asked.slice(-2).map(system);
    assert.match(first, /Lisbon/);
    assert.equal(first, second);
    assert.deepEqual((await decided(user)).slice(-2), expected);
    assert(!(await decided(user)).includes(result));
  }

  models.answers = [{ tool: "weather" }, "Sunny in Lisbon."];
  let question = "Where do I live, and what is the weather there?";
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: question }];
  const made = await client.chat.completions.create({ model: "m", messages });
  messages.push(made.choices[0]!.message, { role: "tool", tool_call_id: "t1", content: result });
  await client.chat.completions.create({ model: "m", messages });
  await check(client, question, "Sunny in Lisbon.");

  models.answers = [{ tool: "weather" }, "Rainy in Porto."];
  question = "Is it going to rain in Porto?";
  const { id } = await client.responses.create({ model: "m", input: question });
  const output = { type: "function_call_output" as const, call_id: "t1", output: result };
  await client.responses.create({ model: "m", input: [output], previous_response_id: id });
  await check(client, question, "Rainy in Porto.");

  models.answers = [{ tool: "weather" }, "Windy in Faro."];
  question = "Is there much wind where I live?";
  const asked: Anthropic.MessageParam[] = said(question);
  const { content } = await claude.messages.create({ model: "m", max_tokens: 9, messages: asked });
  const part = { type: "tool_result" as const, tool_use_id: "t1", content: result };
  asked.push({ role: "assistant", content }, { role: "user", content: [part] });
  await claude.messages.create({ model: "m", max_tokens: 9, messages: asked });
  await check(claude, question, "Windy in Faro.");
});

test("the system prompt of the caller stays in front", async () => {
  const user = someone();
  await keepsake.turn(user, MOVED);
  const [client, claude] = [openai({ user }), anthropic({ user })];
  const question = said("Where do I live?");
  const got = () => system(models.asked.at(-1));
  for (const role of ["system", "developer"] as const) {
    const messages = [{ role, content: "Be brief." }, ...question];
    await client.chat.completions.create({ model: "m", messages });
    assert.match(got(), /^Be brief\.\n\n<memories/);
    assert.equal(models.asked.at(-1)?.["messages"].length, 2);
  }
  await client.responses.create({ model: "m", input: question, instructions: "Be brief." });
  assert.match(got(), /^Be brief\.\n\n<memories/);
  await client.responses.create({ model: "m", input: question, instructions: got() });
  assert.equal(got().split("<memories").length, 2);
  const rule = { type: "text" as const, text: "Be brief." };
  for (const given of ["Be brief.", [rule]]) {
    await claude.messages.create({ model: "m", max_tokens: 9, messages: question, system: given });
  }
  assert.match(system(models.asked.at(-2)), /^Be brief\.\n\n<memories/);
  assert.deepEqual([got()[0], got().length], [rule, 2]);
});

test("one client serves many users", async () => {
  const names = [someone(), someone()];
  let now = names[0]!;
  const client = openai({ user: () => now, session: () => `s-${now}` });
  for (now of names) await client.chat.completions.create({ model: "m", messages: said(MOVED) });
  await memoryOf(client).flush();
  for (const name of names) {
    assert.deepEqual((await keepsake.list(name)).memories.map((it) => it.session), [`s-${name}`]);
  }
});

test("a stream that is left is captured, and one that breaks is not", async () => {
  const user = someone();
  const [client, claude] = [openai({ user }), anthropic({ user })];
  const streamed = (text: string) =>
    client.chat.completions.create({ model: "m", messages: said(text), stream: true });
  models.answers = Array(5).fill("I will tell you all about bees.");
  let text = "";
  for await (const piece of await streamed(MOVED)) {
    text += piece.choices[0]?.delta.content ?? "";
    if (text === "I will") break;
  }
  await memoryOf(client).flush();
  const [first, answer] = await decided(user);
  assert.equal(first, MOVED);
  assert.match(answer ?? "", /^I will/);
  const stream = claude.messages.stream({ model: "m", max_tokens: 9, messages: said(FISH) });
  stream.on("text", () => stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  await memoryOf(claude).flush();
  const known = await decided(user);
  assert.equal(known[2], FISH);
  models.breaks = true;
  await assert.rejects(async () => {
    for await (const _ of await streamed("I own a boat."));
  });
  await memoryOf(client).flush();
  assert.deepEqual(await decided(user), known);
  models.breaks = false;
  for await (const _ of await streamed("I own a boat."));
  await memoryOf(client).flush();
  assert((await decided(user)).includes("I own a boat."));
});

test("without a service the model answers all the same, and what is lost is counted", async (t) => {
  const silent = createServer(() => {});
  await new Promise<void>((ready) => silent.listen(0, "127.0.0.1", ready));
  t.after(() => silent.close());
  const port = (silent.address() as AddressInfo).port;
  for (const away of ["http://127.0.0.1:1", `http://127.0.0.1:${port}`]) {
    const warn = t.mock.method(console, "warn", () => {});
    const options = { url: away, user: "ada", wait: 300 };
    const [client, claude] = [openai(options), anthropic(options)];
    const began = Date.now();
    await client.chat.completions.create({ model: "m", messages: said(MOVED) });
    const stream = await client.responses.create({ model: "m", input: MOVED, stream: true });
    for await (const _ of stream);
    await claude.messages.stream({ model: "m", max_tokens: 9, messages: said(MOVED) }).finalText();
    assert(Date.now() - began < 3000);
    for (const body of models.asked) assert(!JSON.stringify(body).includes("<memories"));
    await memoryOf(client).flush();
    assert.equal(memoryOf(client).missed, 2);
    assert(memoryOf(client).lost >= 2);
    await memoryOf(claude).flush();
    assert.equal(warn.mock.callCount(), 2, "one warning for each client");
    warn.mock.restore();
  }
});
