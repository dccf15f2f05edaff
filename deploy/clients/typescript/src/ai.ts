/** Tools for the Vercel AI SDK: the model searches, stores and erases one user's memories. */

import { tool } from "ai";
import { z } from "zod";
import type { Keepsake } from "./client.js";
import type { Memory } from "./messages.js";

/** What the model sees of a memory. */
function shown(memory: Memory) {
  const { id, kind, content, created_at, relevance, note } = memory;
  return { id, kind, content, created_at, relevance, note };
}

/** The tools are bound to the user: the model cannot name another one. */
export function memoryTools(keepsake: Keepsake, user: string, session?: string) {
  const bound = session === undefined ? {} : { session };
  return {
    searchMemories: tool({
      description: "Find what is remembered about the user that answers a question, best first.",
      inputSchema: z.object({
        query: z.string().describe("The question"),
        limit: z.number().int().min(1).max(50).optional(),
      }),
      execute: async ({ query, limit }) => {
        const asked = { ...bound, format: "none" as const, ...(limit ? { limit } : {}) };
        const { match, memories } = await keepsake.recall(user, query, asked);
        return { match, memories: memories.map(shown) };
      },
    }),
    addMemory: tool({
      description: "Store one statement about the user that is worth keeping.",
      inputSchema: z.object({ text: z.string().min(1).describe("A whole sentence") }),
      execute: async ({ text }) => {
        const { decisions } = await keepsake.remember(user, text, bound);
        return { outcome: decisions[0]?.outcome, id: decisions[0]?.memory };
      },
    }),
    deleteMemory: tool({
      description: "Erase one memory for good, by the id that searchMemories returned.",
      inputSchema: z.object({ id: z.string().describe("The id of the memory") }),
      execute: async ({ id }) => {
        await keepsake.get(user, id);
        const { decisions } = await keepsake.forget(user, { memory: id });
        return { outcome: decisions[0]?.outcome };
      },
    }),
  };
}

/** The block of memories that answers a question, for the system prompt; may be empty. */
export async function memoryPrompt(
  keepsake: Keepsake,
  user: string,
  query: string,
  session?: string,
): Promise<string> {
  const bound = session === undefined ? {} : { session };
  const reply = await keepsake.recall(user, query, { ...bound, purpose: "prompt" });
  return reply.prompt;
}
