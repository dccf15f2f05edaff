/** The messages of the contract. Fields that a later version adds are kept in the objects. */

export type Role = "user" | "assistant" | "system" | "tool";
export type Scope = "user" | "session" | "tenant";
export type Signal = "used" | "confirmed" | "wrong" | "irrelevant";
export type Format = "markdown" | "xml" | "compact" | "json" | "template" | "none";
export type Metadata = Record<string, string>;
/** Conditions: a text that must be equal, operators such as { $gte: 3 }, or $or, $and, $not with more. */
export type Where = { [name: string]: string | Record<string, unknown> | Where[] };
/** RFC 3339 with an offset, or a Date. */
export type Time = string | Date;

export interface Event {
  /** The same id again from the same user changes nothing. The client makes one otherwise. */
  id?: string;
  session?: string;
  at?: Time;
  metadata?: Metadata;
}

export interface Turn extends Event {
  role?: Role;
  speaker?: string;
  kind?: string;
  remember?: boolean;
}

export interface Remember extends Event {
  kind?: string;
  importance?: number;
  confidence?: number;
  scope?: Scope;
  expires_at?: Time;
}

export interface Update {
  content?: string;
  kind?: string;
  importance?: number;
  confidence?: number;
  enabled?: boolean;
  metadata?: Metadata;
  id?: string;
}

export type Forget =
  | { memory: string; id?: string }
  | { session: string; id?: string }
  | { query: string; id?: string }
  | { everything: true; id?: string };

export interface Recall {
  queries?: string[];
  session?: string;
  limit?: number;
  token_budget?: number;
  kinds?: string[];
  where?: Where;
  min_relevance?: number;
  as_of?: Time;
  include_archived?: boolean;
  format?: Format;
  profile?: string;
  purpose?: "prompt" | "tool";
  history?: { role?: Role; content: string; speaker?: string }[];
  explain?: boolean;
}

export interface List {
  session?: string;
  kinds?: string[];
  where?: Where;
  limit?: number;
  offset?: number;
  after?: string;
  everything?: boolean;
}

export interface Source {
  event_id?: string;
  topic: string;
  partition: number;
  offset: number;
}

export interface Memory {
  id: string;
  kind: string;
  content: string;
  score?: number;
  relevance?: number;
  importance: number;
  confidence: number;
  created_at: string;
  valid_from: string;
  valid_to?: string;
  expires_at?: string;
  session?: string;
  speaker?: string;
  role?: string;
  source: Source;
  metadata?: Metadata;
  supersedes?: string[];
  superseded_by?: string;
  revises?: string[];
  revised_by?: string;
  note?: string;
  conflicts_with?: string[];
  enabled?: boolean;
  scope?: Scope;
  state?: string;
  explain?: Record<string, unknown>;
}

export interface Decision {
  outcome: string;
  reason: string;
  memory?: string;
  related?: string[];
  candidate?: string;
  kind?: string;
  surprise?: Record<string, unknown>;
  threshold?: number;
  left?: number;
}

export interface Reply {
  applied_offset: number;
  stale: boolean;
  took_us: number;
}

export interface Applied extends Reply {
  decisions: Decision[];
  partition: number;
  offset: number;
}

export interface Recalled extends Reply {
  memories: Memory[];
  wishes?: Memory[];
  match?: "good" | "weak" | "none";
  prompt: string;
  tokens: number;
  budget_used: number;
  partial?: boolean;
}

export interface Listed extends Reply {
  memories: Memory[];
  after?: string;
}

export interface OneMemory extends Reply {
  memory: Memory;
  history?: { content: string; until: string }[];
}

export interface Explained extends Reply {
  decision: Decision;
  decisions?: Decision[];
  memory?: Memory;
  since: { what: string; at?: string; count?: number; memory?: string }[];
}

export interface Stats extends Reply {
  memories: {
    total: number;
    by_kind: Record<string, number>;
    by_scope: Record<string, number>;
    by_state: Record<string, number>;
  };
  decisions: Record<string, number>;
  importance_average?: number;
  oldest?: string;
  bytes: number;
}
