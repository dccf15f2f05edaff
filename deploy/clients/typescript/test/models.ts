/** A server with the APIs of OpenAI's and Anthropic's models, which answers by a test's script. */

import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

type Answer = string | { tool: string } | number;
type Json = Record<string, any>;

export class Models {
  /** Texts, calls of a tool, or the status of a refusal; "Fine." after the last. */
  answers: Answer[] = [];
  asked: Json[] = [];
  /** Breaks off in the middle of a stream. */
  breaks = false;
  url = "";
  readonly #server: Server;

  constructor() {
    this.#server = createServer(async (request, response) => {
      let text = "";
      for await (const piece of request.setEncoding("utf8")) text += piece;
      const body = JSON.parse(text);
      this.asked.push(body);
      const answer = this.answers.shift() ?? "Fine.";
      const kind = request.url?.split("/").at(-1) as keyof typeof whole;
      if (typeof answer === "number") {
        response.writeHead(answer, { "content-type": "application/json" });
        response.end('{"error":{"message":"no","type":"x"}}');
      } else if (body.stream) {
        await this.#stream(response, streams[kind](answer as string));
      } else {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify(whole[kind](answer)));
      }
    });
  }

  async open(): Promise<this> {
    await new Promise<void>((ready) => this.#server.listen(0, "127.0.0.1", ready));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #stream(response: ServerResponse, events: Json[]): Promise<void> {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const [number, event] of events.entries()) {
      const name = event["type"] ? `event: ${event["type"]}\n` : "";
      const bytes = Buffer.from(`${name}data: ${JSON.stringify(event)}\n\n`);
      // Two pieces, so that no reader may take a piece for an event or a letter.
      for (const piece of [bytes.subarray(0, 31), bytes.subarray(31)]) {
        response.write(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
      if (this.breaks && number === 3) return void response.destroy();
    }
    response.end(events.at(-1)?.["choices"] ? "data: [DONE]\n\n" : "");
  }
}

const item = (text: string) => ({
  type: "message",
  id: "m1",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text, annotations: [] }],
});

const whole = {
  completions(answer: Answer): Json {
    const call = { id: "t1", type: "function", function: { name: "weather", arguments: "{}" } };
    const isText = typeof answer === "string";
    const said = isText ? { content: answer } : { content: null, tool_calls: [call] };
    const choice = { index: 0, message: { role: "assistant", ...said }, finish_reason: "stop" };
    return { id: "c1", object: "chat.completion", created: 1, model: "m", choices: [choice] };
  },
  responses(answer: Answer): Json {
    const call = { type: "function_call", id: "f1", name: "weather", arguments: "{}" };
    const output = [typeof answer === "string" ? item(answer) : { ...call, call_id: "t1" }];
    const common = { object: "response", created_at: 1, model: "m", error: null };
    return { id: "r1", status: "completed", output, ...common };
  },
  messages(answer: Answer): Json {
    const call = { type: "tool_use", id: "t1", name: "weather", input: {} };
    const content = [typeof answer === "string" ? { type: "text", text: answer } : call];
    const usage = { input_tokens: 1, output_tokens: 1 };
    const common = { type: "message", role: "assistant", model: "m", usage };
    return { id: "a1", content, stop_reason: "end_turn", ...common };
  },
};

const streams = {
  completions: (answer: string): Json[] =>
    ["", ...answer, null].map((content) => {
      const reason = content === null ? "stop" : null;
      const delta = { role: "assistant", content };
      const choices = [{ index: 0, delta, finish_reason: reason }];
      return { ...whole.completions(""), object: "chat.completion.chunk", choices };
    }),
  responses(answer: string): Json[] {
    const response = whole.responses(answer);
    const place = { item_id: "m1", output_index: 0, content_index: 0 };
    const empty = { type: "output_text", text: "", annotations: [] };
    return [
      { type: "response.created", response: { ...response, output: [] } },
      { type: "response.output_item.added", item: { ...item(""), content: [] }, output_index: 0 },
      { type: "response.content_part.added", part: empty, ...place },
      ...[...answer].map((delta) => ({ type: "response.output_text.delta", delta, ...place })),
      { type: "response.completed", response },
    ];
  },
  messages: (answer: string): Json[] => [
    { type: "message_start", message: { ...whole.messages(""), content: [] } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    ...[...answer].map((text) => {
      return { type: "content_block_delta", index: 0, delta: { type: "text_delta", text } };
    }),
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 1 } },
    { type: "message_stop" },
  ],
};
