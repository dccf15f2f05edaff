// Calls every public method of mem0's TypeScript client at KEEPSAKE_URL and prints how each ends, a JSON
// object per line.
import MemoryClient from "mem0ai";
import { readFileSync } from "node:fs";

const prefix = "ts-";
const user = `${prefix}ada`;
const client = new MemoryClient({ apiKey: "none", host: process.env.KEEPSAKE_URL });
const called = new Set();

function report(call, needs, ended) {
  // A call that only prepares the next one counts if it fails.
  if (needs === "setup" && ended === "answered") return;
  console.log(JSON.stringify({ client: "TypeScript", call, needs, ended }));
}

// The client has the body of a refusal as the message of its error.
function code(error) {
  try {
    return JSON.parse(error.message.slice(error.message.indexOf("{"))).error.code;
  } catch {
    return undefined;
  }
}

async function call(name, args, { check = () => true, needs = "", label = "" } = {}) {
  called.add(name);
  let answer;
  let ended;
  try {
    answer = await client[name](...args);
    ended = check(answer) ? "answered" : `failed: ${JSON.stringify(answer)}`;
  } catch (error) {
    ended = code(error) ? `refused: ${code(error)}` : `failed: ${error}`;
  }
  report(label ? `${name} (${label})` : name, needs, ended);
  return answer;
}

const texts = (answer) => answer.results.map((row) => row.memory).join("; ");
const said = (content) => [{ role: "user", content }];
const stored = async (content, names, label) => {
  const needs = label ? "" : "setup";
  const answer = await call("add", [said(content), { infer: false, ...names }], { label, needs, check: (it) => texts(it) === content });
  return answer.results[0].id;
};

const filters = { user_id: user };
await call("ping", [], { check: () => client.projectId });
await call("add", [said("My sister Eva lives in Oslo."), { userId: user, runId: "s1" }], {
  label: "messages",
  check: (it) => it.results[0].event === "ADD",
});
const dated = { userId: user, metadata: { team: "blue" }, timestamp: 1700000000, expirationDate: "2099-12-31" };
const bees = await stored("Ada keeps bees in Lisbon", dated, "infer: false, timestamp, expirationDate");
const boat = await stored("Ada has a boat", { userId: user, agentId: "coach", appId: "diary" }, "agentId, appId");
await call("add", [said("x"), { userId: user, customInstructions: "Be brief" }], { needs: "model", label: "customInstructions" });
await call("get", [bees], { check: (it) => it.memory === "Ada keeps bees in Lisbon" && it.userId === user });
await call("getAll", [{ filters }], { check: (it) => it.count === 3 && it.results.length === 3 });
await call("getAll", [{ filters: { AND: [filters, { agent_id: "coach" }] } }], {
  label: "AND",
  check: (it) => texts(it) === "Ada has a boat",
});
await call("getAll", [{ filters, page: 2, pageSize: 2 }], {
  label: "page",
  check: (it) => it.results.length === 1 && it.previous && !it.next,
});
await call("getAll", [{ filters: { ...filters, created_at: { lt: "2024-01-01" } } }], {
  label: "created_at",
  check: (it) => texts(it) === "Ada keeps bees in Lisbon",
});
await call("getAll", [{ filters, startDate: "2024-01-01" }], { label: "startDate", check: (it) => it.count === 2 });
await call("search", ["bees in Lisbon", { filters }], { check: (it) => it.results[0].id === bees });
const narrow = { filters: { AND: [filters, { metadata: { team: "blue" } }] }, topK: 3, threshold: 0, rerank: true, latestOnly: true };
await call("search", ["bees", narrow], {
  label: "metadata, topK, threshold",
  check: (it) => texts(it) === "Ada keeps bees in Lisbon",
});
// Each operator with a filter that the bees meet and one that no memory meets.
for (const [operator, [met, unmet]] of Object.entries({
  AND: [{ AND: [{ team: "blue" }] }, { AND: [{ team: "blue" }, { team: "red" }] }],
  OR: [{ OR: [{ team: "red" }, { team: "blue" }] }, { OR: [{ team: "red" }, { team: "green" }] }],
  NOT: [{ NOT: [{ team: "red" }], team: "*" }, { NOT: [{ team: "red" }, { team: "blue" }], team: "*" }],
  eq: [{ team: { eq: "blue" } }, { team: { eq: "red" } }],
  ne: [{ team: { ne: "red" } }, { team: { ne: "blue" }, agent_id: "nurse" }],
  in: [{ team: { in: ["red", "blue"] } }, { team: { in: ["red"] } }],
  gt: [{ team: { gt: "a" } }, { team: { gt: "blue" } }],
  gte: [{ team: { gte: "blue" } }, { team: { gte: "c" } }],
  lt: [{ team: { lt: "z" } }, { team: { lt: "blue" } }],
  lte: [{ team: { lte: "blue" } }, { team: { lte: "b" } }],
  contains: [{ team: { contains: "lu" } }, { team: { contains: "LU" } }],
  icontains: [{ team: { icontains: "LU" } }, { team: { icontains: "x" } }],
  "*": [{ team: "*" }, { flavour: "*" }],
  run_id: [{ run_id: { ne: "s1" } }, { run_id: "s2" }],
  created_at: [{ created_at: { lt: "2024-01-01" } }, { created_at: { lt: "2023-01-01" } }],
})) {
  const none = { label: `filter ${operator}, unmet`, check: (it) => it.results.length === 0 };
  await call("search", ["bees in Lisbon", { filters: { AND: [filters, met] } }], {
    label: `filter ${operator}`,
    check: (it) => it.results[0].id === bees,
  });
  await call("search", ["bees in Lisbon", { filters: { AND: [filters, unmet] } }], none);
  await call("getAll", [{ filters: { AND: [filters, unmet] } }], none);
}
await call("search", ["bees", { filters: { OR: [filters, { team: "blue" }] } }], { needs: "users", label: "user_id in OR" });
await call("search", ["bees", { filters, categories: ["food"] }], { needs: "model", label: "categories" });
await call("update", [boat, { text: "Ada has a canoe", metadata: { team: "red" } }], {
  check: (it) => it.memory === "Ada has a canoe" && it.metadata.team === "red",
});
await call("update", [boat, { expirationDate: null }], { label: "expirationDate" });
await call("history", [boat], { check: (it) => it.map((row) => row.event).join() === "ADD,UPDATE" && it[1].newMemory });
await call("feedback", [{ memoryId: bees, feedback: "POSITIVE", feedbackReason: "right" }], {
  check: (it) => it.feedback === "POSITIVE",
});
const changed = [{ memoryId: bees, text: "Ada sold her bees" }, { memoryId: boat, text: "No boat" }];
await call("batchUpdate", [changed], { check: (it) => it.message.includes("2 memories") });
await call("users", [{ page: 1, pageSize: 100 }], { check: (it) => it.results.some((row) => row.name === user && row.totalMemories === 3) });
await call("batchDelete", [[bees]], { check: (it) => it.message.includes("1 memories") });
await call("delete", [boat], { check: (it) => it.message.includes("deleted") });
await call("delete", [await stored("Ada has a kite", { userId: user }), { deleteLinked: true }], { label: "deleteLinked" });
await call("deleteAll", [{ userId: user }], { check: (it) => it.message.includes("deleted") });
await call("getAll", [{ filters }], { label: "after deleteAll", check: (it) => it.results.length === 0 });
for (const kind of ["userId", "agentId", "appId", "runId"]) {
  await stored(`Ada and ${kind}`, { userId: user, [kind]: prefix + kind });
  await call("deleteUsers", [{ [kind]: prefix + kind }], { label: kind, check: (it) => it.message.includes("deleted") });
}
await stored("Ada has a drum", { userId: user });
await call("deleteUser", [{ entity_id: user, entity_type: "user" }], { check: (it) => it.message.includes("deleted") });
await stored("Ada has a horn", { userId: user });
await call("deleteUsers", [], { label: "everybody" });
await call("users", [], { label: "after deleteUsers", check: (it) => it.results.length === 0 });

for (const [name, ...args] of [
  ["createMemoryExport", { schema: {}, filters }],
  ["getMemoryExport", { filters }],
  ["getProfile", { entityId: user }],
  ["generateProfile", { entityId: user }],
  ["getProfileSettings"],
  ["updateProfileSettings", { enabled: true }],
  ["sampleProfiles"],
  ["getProfileJob", "a-job"],
]) {
  await call(name, args, { needs: "model" });
}
for (const [name, ...args] of [
  ["getProject", {}],
  ["updateProject", { customInstructions: "Be brief" }],
  ["getWebhooks"],
  ["createWebhook", { name: "w", url: "http://a.example", eventTypes: [] }],
  ["updateWebhook", { webhookId: "1", name: "w" }],
  ["deleteWebhook", { webhookId: "1" }],
]) {
  await call(name, args, { needs: "platform" });
}

const version = JSON.parse(readFileSync("node_modules/mem0ai/package.json", "utf8")).version;
console.error(`mem0ai ${version} for TypeScript`);
const methods = Object.getOwnPropertyNames(MemoryClient.prototype).filter((name) => name !== "constructor" && !name.startsWith("_"));
const left = methods.filter((name) => !called.has(name));
if (left.length > 0) report(left.join(", "), "", "failed: not in the table of this test");
