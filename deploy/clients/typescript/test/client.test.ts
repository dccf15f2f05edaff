// Runs against a real service; KEEPSAKE_URL is its gateway.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Keepsake, KeepsakeError } from "../src/index.js";

const url = process.env["KEEPSAKE_URL"];
assert(url, "KEEPSAKE_URL names the gateway");
const keepsake = new Keepsake({ url });
const someone = () => `user-${randomUUID()}`;

test("a turn is decided and recalled", async () => {
  const user = someone();
  const applied = await keepsake.turn(user, "I moved to Lisbon last month.", { session: "s1" });
  assert.equal(applied.decisions[0]?.outcome, "kept");
  const dropped = await keepsake.turn(user, "Ok, thanks!", { session: "s1" });
  assert.equal(dropped.decisions[0]?.outcome, "dropped");
  const reply = await keepsake.recall(user, "Where do I live?");
  assert.deepEqual(reply.memories.map((it) => it.content), ["I moved to Lisbon last month."]);
  assert.equal(reply.memories[0]?.session, "s1");
  assert.match(reply.prompt, /Lisbon/);
  assert.equal((await keepsake.stats(user)).memories.total, 1);
});

test("a memory lives from remember to forget", async () => {
  const user = someone();
  const at = new Date("2026-03-14T09:26:00+02:00");
  const fields = { kind: "fact", metadata: { team: "blue" }, at };
  const applied = await keepsake.remember(user, "Ada keeps bees in Lisbon", fields);
  const memory = applied.decisions[0]?.memory ?? "";
  const held = (await keepsake.get(user, memory)).memory;
  assert.deepEqual([held.kind, held.metadata], ["fact", { team: "blue" }]);
  assert.equal(held.created_at, "2026-03-14T07:26:00Z");
  await keepsake.update(user, memory, { content: "Ada keeps bees in Porto" });
  const reply = await keepsake.get(user, memory, { history: true });
  assert.deepEqual(reply.history?.map((it) => it.content), ["Ada keeps bees in Lisbon"]);
  const noted = await keepsake.feedback(user, memory, "confirmed");
  assert.equal(noted.decisions[0]?.outcome, "noted");
  const explained = await keepsake.explain(user, memory);
  assert.equal(explained.decision.reason, "asked to remember");
  assert(explained.since.some((it) => it.what === "updated"));
  await keepsake.forget(user, { memory });
  await assert.rejects(keepsake.get(user, memory), { name: "KeepsakeError", status: "not_found" });
});

test("pages are followed to the end", async () => {
  const user = someone();
  for (let number = 0; number < 7; number++) {
    await keepsake.remember(user, `Note ${number}`, { metadata: { n: `${number}` } });
  }
  const some = await keepsake.list(user, { where: { n: { $gte: 2, $lt: 4 } } });
  assert.deepEqual(some.memories.map((it) => it.metadata?.["n"]).sort(), ["2", "3"]);
  const ids = new Set<string>();
  for await (const memory of keepsake.listAll(user, { limit: 3 })) ids.add(memory.id);
  assert.equal(ids.size, 7);
  await keepsake.forget(user, { everything: true });
  assert.equal((await keepsake.stats(user)).memories.total, 0);
});

test("the same event twice is a duplicate", async () => {
  const user = someone();
  await keepsake.remember(user, "Eva lives in Oslo", { id: "e1" });
  const again = await keepsake.remember(user, "Eva lives in Oslo", { id: "e1" });
  assert.equal(again.decisions[0]?.outcome, "duplicate");
});

test("a lost reply is asked for again with the same id", async () => {
  const user = someone();
  let calls = 0;
  const losing: typeof fetch = async (...given) => {
    const response = await fetch(...given);
    if (calls++ === 0) throw new TypeError("the connection was lost");
    return response;
  };
  const client = new Keepsake({ url, fetch: losing });
  const applied = await client.remember(user, "Eva lives in Oslo");
  assert.equal(applied.decisions[0]?.outcome, "duplicate");
  assert.equal((await client.stats(user)).memories.total, 1);
});

test("a key decides the tenant", async () => {
  const user = someone();
  const keyed = { url: process.env["KEEPSAKE_KEYED_URL"] ?? "" };
  const owner = new Keepsake({ ...keyed, key: process.env["KEEPSAKE_KEY"] ?? "" });
  await owner.remember(user, "Ada keeps bees in Lisbon");
  assert.equal((await owner.stats(user)).memories.total, 1);
  assert.equal((await keepsake.stats(user)).memories.total, 0);
  await assert.rejects(new Keepsake(keyed).stats(user), { status: "unauthorized" });
});

test("a wrong message is refused by name", async () => {
  const wrong = keepsake.recall(someone(), "bees", { limit: "many" as unknown as number });
  await assert.rejects(wrong, { status: "invalid", field: "limit" });
  const away = new Keepsake({ url: "http://127.0.0.1:1", retries: 0 });
  await assert.rejects(away.stats("ada"), (error) => {
    return error instanceof KeepsakeError && error.status === "unavailable";
  });
});
