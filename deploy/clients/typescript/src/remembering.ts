/**
 * Long-term memory around the official clients of OpenAI and Anthropic. It works below their
 * methods, at `fetch`: so `create`, `parse` and `stream` are all served, and arguments and results
 * stay the client's own. Neither package is imported here.
 */

import { Keepsake } from "./client.js";
import { Answer, Call, type Turn } from "./said.js";

export interface Remembered {
  /** The owner of the memories, or a function for a server that speaks with many. */
  user: string | (() => string);
  /** Names one conversation. Without, the same first turn on the same day is captured once. */
  session?: string | (() => string);
  url?: string;
  key?: string;
  /** Milliseconds that a call of the model waits for its memories; 300 if not given. */
  wait?: number;
}

interface Wrappable {
  withOptions(options: { fetch: typeof fetch }): unknown;
}

const CONTENT_BYTES_MAX = 64 * 1024; // of a turn, by the contract
const WAITING_MAX = 256; // turns that are not sent yet: 16 MiB at their longest
const RECALLS_MAX = 32; // at a time
const SENT_MAX = 4096;
const BLOCKS_MAX = 256;
const HISTORY_TURNS = 4;
const HISTORY_CHARS = 1000;
const QUERY_CHARS = 4000;
const SEND_MS = 2000;
const WAITING_MS_MAX = 5000; // a waiting turn keeps the process alive

const memories = new WeakMap<object, Remembering>();

/** Returns a copy of the client that recalls before each call, and captures both turns after it. */
export function remembering<C extends Wrappable>(client: C, options: Remembered): C {
  const own = (client as { fetch?: typeof fetch }).fetch ?? fetch;
  const memory = new Remembering(options, own);
  const copy = client.withOptions({ fetch: memory.fetch }) as C;
  memories.set(copy, memory);
  return copy;
}

/** The memory of a client that `remembering` returned: its counters, and `flush`. */
export function memoryOf(client: object): Remembering {
  const memory = memories.get(client);
  if (!memory) throw new TypeError("the client has no memory: it must come from remembering()");
  return memory;
}

/** Recalls and captures. No failure of the service reaches a call of the model. */
export class Remembering {
  /** Turns that were not captured. */
  lost = 0;
  /** Calls of the model that went on without memories. */
  missed = 0;
  readonly #options: Remembered;
  readonly #fetch: typeof fetch;
  readonly #wait: number;
  readonly #reader: Keepsake;
  readonly #writer: Keepsake;
  readonly #sent = new Map<string, string>();
  readonly #blocks = new Map<string, string>();
  readonly #waiting: { send: () => Promise<unknown>; id: string; since: number }[] = [];
  #sending: Promise<void> | undefined;
  /** Ids are digests, which are made one after the other, in the order of the calls. */
  #capturing: Promise<void> = Promise.resolve();
  #recalls = 0;
  #hasWarned = false;

  constructor(options: Remembered, own: typeof fetch) {
    const { url, key, wait = 300 } = options;
    const service = { ...(url ? { url } : {}), ...(key ? { key } : {}) };
    this.#options = options;
    this.#fetch = own;
    this.#wait = wait;
    this.#reader = new Keepsake({ ...service, timeout: wait, retries: 0 });
    this.#writer = new Keepsake({ ...service, timeout: SEND_MS, retries: 1 });
  }

  /** Waits until all turns are sent; at most some nine seconds. */
  async flush(): Promise<void> {
    await this.#capturing;
    await this.#sending;
  }

  readonly fetch: typeof fetch = async (input, init) => {
    const call = this.#begin(input, init);
    if (!call) return this.#fetch.call(undefined, input, init);
    call.block = await this.#recall(call).catch((error) => this.#without(error));
    const response = await this.#fetch.call(undefined, input, changed(call, init));
    return response.ok ? this.#heard(response, call, init?.signal) : response;
  };

  #begin(input: string | URL | Request, init?: RequestInit): Call | undefined {
    // A signature of AWS covers the body, so that body cannot be changed.
    const isSigned = new Headers(init?.headers).get("authorization")?.startsWith("AWS4-");
    if (init?.method !== "POST" || typeof init.body !== "string" || isSigned) return undefined;
    try {
      const { user, session } = this.#options;
      const url = input instanceof Request ? input.url : `${input}`;
      const names = [user, session].map((it) => (typeof it === "function" ? it() : it));
      return Call.of(url, init.body, names[0]!, names[1]);
    } catch (error) {
      this.#without(error);
      return undefined;
    }
  }

  async #recall(call: Call): Promise<string> {
    const key = await call.key();
    // A later round of tools has the block of the first: a recall would now find the question.
    const kept = call.fresh.includes(call.asked) ? undefined : this.#blocks.get(key);
    const question = call.said[call.asked];
    if (kept !== undefined || !question) return kept ?? "";
    if (this.#recalls === RECALLS_MAX) throw new Error(`${RECALLS_MAX} recalls are waiting`);
    this.#recalls++;
    const before = call.said.slice(0, call.asked).filter((turn) => turn.text);
    const history = before.slice(-HISTORY_TURNS).map(({ role, text }) => {
      return { role: role as "user", content: text.slice(0, HISTORY_CHARS) };
    });
    const asked = { purpose: "prompt", format: "xml", history, ...named(call.session) } as const;
    try {
      const query = question.text.slice(0, QUERY_CHARS);
      const { prompt } = await this.#reader.recall(call.user, query, asked);
      keep(this.#blocks, BLOCKS_MAX, key, prompt);
      return prompt;
    } finally {
      this.#recalls--;
    }
  }

  #without(error: unknown): string {
    this.missed++;
    this.#warn("a call of the model goes on without memories", error);
    return "";
  }

  /** The response, whose end, or whose closing by the caller, captures the answer. */
  #heard(response: Response, call: Call, signal?: AbortSignal | null): Response {
    const kind = response.headers.get("content-type") ?? "";
    const answer = new Answer(kind.includes("event-stream"));
    const reader = response.body?.getReader();
    if (!reader) return response;
    const decoder = new TextDecoder();
    const end = () => {
      this.#capturing = this.#capturing
        .then(() => this.#capture(call, answer))
        .catch((error) => this.#lose("", error));
    };
    const body = new ReadableStream<Uint8Array>({
      async pull(stream) {
        try {
          const { value, done } = await reader.read();
          if (value) answer.feed(decoder.decode(value, { stream: true }));
          if (done) end();
          if (done) return stream.close();
          stream.enqueue(value);
        } catch (error) {
          // The caller left the stream, or it broke: then the caller repeats the call.
          if (signal?.aborted) end();
          throw error;
        }
      },
      cancel(reason) {
        end();
        return reader.cancel(reason);
      },
    });
    const { status, statusText, headers, url } = response;
    const made = new Response(body, { status, statusText, headers });
    return Object.defineProperty(made, "url", { value: url });
  }

  /** Sends the turns that this call adds, in the background. */
  async #capture(call: Call, answer: Answer): Promise<void> {
    const text = answer.text();
    if (answer.failed) return;
    // The next round may name this answer in place of the history.
    if (answer.id) keep(this.#blocks, BLOCKS_MAX, call.keyAfter(answer.id), call.block);
    for (const turns of call.turns(text)) this.#send(call, turns.at(-1)!, await call.id(turns));
  }

  #send(call: Call, { role, text }: Turn, id: string): void {
    if (this.#sent.has(id)) return;
    if (new TextEncoder().encode(text).length > CONTENT_BYTES_MAX) {
      return this.#lose(id, `it has more than ${CONTENT_BYTES_MAX} bytes`);
    }
    if (this.#waiting.length === WAITING_MAX) {
      return this.#lose(id, `${WAITING_MAX} turns are waiting`);
    }
    keep(this.#sent, SENT_MAX, id, "");
    const fields = { id, role: role as "user", ...named(call.session) };
    const send = () => this.#writer.turn(call.user, text, fields);
    this.#waiting.push({ send, id, since: Date.now() });
    this.#sending ??= this.#work();
  }

  async #work(): Promise<void> {
    for (let turn = this.#waiting.shift(); turn; turn = this.#waiting.shift()) {
      try {
        if (Date.now() - turn.since > WAITING_MS_MAX) throw new Error("it has waited too long");
        await turn.send();
      } catch (error) {
        this.#lose(turn.id, error);
      }
    }
    this.#sending = undefined;
  }

  #lose(id: string, error: unknown): void {
    this.lost++;
    this.#sent.delete(id); // so that the same call again may send it
    this.#warn("a turn is not captured", error);
  }

  #warn(what: string, error: unknown): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    const why = error instanceof Error ? error.message : `${error}`;
    console.warn(`keepsake: ${what}: ${why} (said once; see the counters of memoryOf)`);
  }
}

/** The request with the block. The caller's own arguments are not touched. */
function changed(call: Call, init?: RequestInit): RequestInit {
  if (!call.block) return init ?? {};
  const headers = new Headers(init?.headers);
  headers.delete("content-length");
  return { ...init, headers, body: JSON.stringify(call.withBlock(call.block)) };
}

function named(session?: string): { session?: string } {
  return session === undefined ? {} : { session };
}

function keep(where: Map<string, string>, most: number, key: string, value: string): void {
  where.set(key, value);
  for (const oldest of where.keys()) {
    if (where.size <= most) return;
    where.delete(oldest);
  }
}
