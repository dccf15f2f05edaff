/** The client of Keepsake's gateway. Uses `fetch` and nothing else. */

import type * as m from "./messages.js";

export interface Options {
  /** The address of the gateway; http://localhost:8765 if not given. */
  url?: string;
  /** A key of `keepsake keys new`. It decides the tenant. */
  key?: string;
  /** Milliseconds to wait for a reply. */
  timeout?: number;
  /** How often a message is sent again after a failure that may pass. */
  retries?: number;
  fetch?: typeof fetch;
}

/** `status` is a name of the contract, such as invalid, not_found, overloaded or forbidden. */
export class KeepsakeError extends Error {
  override name = "KeepsakeError";

  constructor(
    readonly status: string,
    message: string,
    readonly field?: string,
  ) {
    super(message);
  }
}

// The service was busy, or its answer was lost. Each event has an id: a second copy changes nothing.
const RETRIED = new Set(["overloaded", "unavailable", "expired", "no_reply"]);
const EVENTS = new Set(["turn", "remember", "update", "forget", "feedback"]);
const RETRY_PAUSE_MS = 200;

export class Keepsake {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor(options: Options = {}) {
    this.#url = (options.url ?? "http://localhost:8765").replace(/\/+$/, "");
    this.#headers = { "content-type": "application/json" };
    if (options.key) this.#headers["authorization"] = `Bearer ${options.key}`;
    this.#timeout = options.timeout ?? 30_000;
    this.#retries = options.retries ?? 2;
    this.#fetch = options.fetch ?? fetch;
  }

  /** Adds one turn of a conversation; the surprising parts become memories. */
  turn(user: string, content: string, fields: m.Turn = {}): Promise<m.Applied> {
    return this.call("turn", user, { content, ...fields });
  }

  /** Stores a text as it is. The decision has the id of the memory. */
  remember(user: string, content: string, fields: m.Remember = {}): Promise<m.Applied> {
    return this.call("remember", user, { content, ...fields });
  }

  /** Changes one memory. Earlier contents stay in the history; metadata is replaced whole. */
  update(user: string, memory: string, fields: m.Update): Promise<m.Applied> {
    return this.call("update", user, { memory, ...fields });
  }

  /** Erases for good; replays do not bring the memories back. */
  forget(user: string, what: m.Forget): Promise<m.Applied> {
    return this.call("forget", user, { ...what });
  }

  /** Says what became of recalled memories. */
  feedback(user: string, memories: string | string[], signal: m.Signal): Promise<m.Applied> {
    return this.call("feedback", user, { memories: [memories].flat(), signal });
  }

  /** Finds the memories that answer a query, best first, and a block for the prompt. */
  recall(user: string, query: string, fields: m.Recall = {}): Promise<m.Recalled> {
    return this.call("recall", user, { query, ...fields });
  }

  /** One page of memories; `after` of the reply asks for the next. */
  list(user: string, fields: m.List = {}): Promise<m.Listed> {
    return this.call("list", user, { ...fields });
  }

  /** All memories, page by page. */
  async *listAll(user: string, fields: Omit<m.List, "after"> = {}): AsyncGenerator<m.Memory> {
    let after: string | undefined;
    do {
      const page: m.Listed = await this.list(user, after ? { ...fields, after } : fields);
      yield* page.memories;
      after = page.after;
    } while (after);
  }

  /** One memory, with its earlier contents if asked for. */
  get(user: string, memory: string, fields: { history?: boolean } = {}): Promise<m.OneMemory> {
    return this.call("get", user, { memory, ...fields });
  }

  /** Why a memory was kept or an event was decided as it was, with the numbers. */
  explain(user: string, what: string | { event: m.Source }): Promise<m.Explained> {
    return this.call("explain", user, typeof what === "string" ? { memory: what } : { ...what });
  }

  /** Counts of memories and decisions. */
  stats(user: string): Promise<m.Stats> {
    return this.call("stats", user, {});
  }

  /** Sends any message of the contract by its `type`. */
  async call<T>(type: string, user: string, fields: Record<string, unknown>): Promise<T> {
    const id = EVENTS.has(type) ? { id: crypto.randomUUID() } : {};
    const given = Object.entries(fields).filter(([, value]) => value !== undefined);
    const body = JSON.stringify({ ...id, ...Object.fromEntries(given), user });
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#send<T>(type, body);
      } catch (error) {
        const may = error instanceof KeepsakeError && RETRIED.has(error.status);
        if (!may || attempt >= this.#retries) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE_MS * 2 ** attempt));
      }
    }
  }

  async #send<T>(type: string, body: string): Promise<T> {
    const signal = AbortSignal.timeout(this.#timeout);
    let response: Response;
    let text: string;
    try {
      const url = `${this.#url}/v1/keepsake/${type}`;
      response = await this.#fetch(url, { method: "POST", headers: this.#headers, body, signal });
      text = await response.text();
    } catch (error) {
      if (signal.aborted) {
        throw new KeepsakeError("no_reply", `no reply within ${this.#timeout} ms`);
      }
      throw new KeepsakeError("unavailable", `the gateway does not answer: ${String(error)}`);
    }
    let reply: { error?: { code: string; message: string; field?: string } };
    try {
      reply = JSON.parse(text);
    } catch {
      throw new KeepsakeError("bad_reply", `status ${response.status}, and no JSON`);
    }
    if (reply.error) {
      throw new KeepsakeError(reply.error.code, reply.error.message, reply.error.field);
    }
    if (!response.ok) throw new KeepsakeError("bad_reply", `status ${response.status}`);
    return reply as T;
  }
}
