// Calls the gateway. The key of the page is in sessionStorage, so it ends with the tab. A failed call
// throws a `Refused`, which names who is at fault and the cure.

/**
 * @typedef {{topic: string, partition: number, offset: number, id?: string}} Place
 * @typedef {{id: string, kind: string, content: string, importance: number, confidence: number,
 *   created_at: string, valid_from: string, valid_to?: string, expires_at?: string, session?: string,
 *   speaker?: string, role?: string, source: Place, metadata?: Record<string, string>, state?: string,
 *   scope?: string, supersedes?: string[], superseded_by?: string, revises?: string[],
 *   revised_by?: string, conflicts_with?: string[], covers?: string[], compressed_by?: string,
 *   enabled?: boolean, note?: string, score?: number, relevance?: number,
 *   explain?: Record<string, number>, uses?: number, confirmed?: number, fresh_at?: string,
 *   version?: number, reason?: string, profile?: string, threshold?: number, surprise?: Surprise,
 *   sources?: Place[]}} Memory
 * @typedef {{total: number, novelty: number, contradiction: number, specificity: number,
 *   emphasis: number, context_switch: number, points?: Record<string, number>}} Surprise
 * @typedef {{outcome: string, reason: string, event: Place, tenant: string, user: string,
 *   session?: string, candidate?: string, kind?: string, surprise?: Surprise, threshold?: number,
 *   memory?: string, related?: string[], left?: number, salt?: string, profile: string, at: string,
 *   shadow?: boolean, withheld?: boolean}} Decision
 * @typedef {{memories: Memory[], wishes?: Memory[], match?: string, prompt: string, tokens: number,
 *   budget_used: number, took_us: number, stale: boolean, partial?: boolean,
 *   levels?: {floor?: number, good?: number}}} Recalled
 * @typedef {{tenant: string, user: string | null, rights: string[], keys: boolean, version: string,
 *   profiles: string[]}} Session
 */

const KEY = 'keepsake-key';
const TENANT = 'keepsake-tenant';

/** The tenant that was chosen; a gateway that asks for keys knows the tenant by the key. */
export const tenant = {
  get: () => (key.get() ? '' : sessionStorage.getItem(TENANT) ?? ''),
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(TENANT, value),
};

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? '',
  /** @param {string} value */
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** The sentence after the service's own message, by the name of the error. */
const CURES = /** @type {Record<string, [fault: string, cure: string]>} */ ({
  unreachable: ['The gateway does not answer', 'Check that it runs and that the network reaches it, then try again.'],
  unauthorized: ['This page needs a key', 'Enter a key below. “keepsake keys new” makes one.'],
  forbidden: ['This key lacks the right', 'Use a key with the right that is named.'],
  invalid: ['The request is not valid', 'Change the field that is named, and send it again.'],
  too_large: ['That is too much for one request', 'Ask for less at once, or raise the limit that is named.'],
  not_found: ['There is nothing here', 'It may have been forgotten, or the address is wrong.'],
  overloaded: ['The service has too much to do', 'Wait a moment, then try again.'],
  unavailable: ['The service is not ready', 'It may be starting or restoring a shard. Wait a moment, then try again.'],
  no_reply: ['The service did not answer in time', 'Check that “keepsake serve” runs and reads the same topics.'],
  stale: ['The service is behind', 'It has not read the newest events yet. Wait a moment, then try again.'],
  expired: ['The service was too late', 'It may have too much to do. Try again.'],
});

export class Refused extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {string} [field]
   */
  constructor(code, message, field) {
    super(message);
    this.code = code;
    this.field = field;
    const [fault, cure] = CURES[code] ?? ['The gateway refused this', 'The message above says why.'];
    this.fault = fault;
    this.cure = cure;
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set('authorization', `Bearer ${key.get()}`);
  // A header is bytes: a name beyond ASCII goes as UTF-8.
  if (tenant.get()) headers.set('x-keepsake-tenant', String.fromCharCode(...new TextEncoder().encode(tenant.get())));
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused('unreachable', 'The connection failed.');
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const { code = 'unknown', message = `HTTP status ${response.status}`, field } = body.error ?? {};
  throw new Refused(code, message, field);
}

/**
 * Sends one message of the contract, such as a `recall` or a `forget`.
 *
 * @param {string} kind
 * @param {object} message
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function call(kind, message, signal) {
  const headers = { 'content-type': 'application/json' };
  const response = await send(`v1/keepsake/${kind}`, { method: 'POST', headers, body: JSON.stringify(message), signal });
  return response.json();
}

/**
 * @param {string} path
 * @param {Record<string, string | number | undefined | null>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query = {}, signal) {
  return (await send(address(path, query), { signal })).json();
}

/**
 * @param {string} path
 * @param {Record<string, string | number | undefined | null>} query
 */
function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return `v1/keepsake/${path}${given.length ? `?${search}` : ''}`;
}

/**
 * Publishes JSON Lines, or only says what they would change.
 *
 * @param {string} lines
 * @param {boolean} preview
 * @returns {Promise<any>}
 */
export async function importLines(lines, preview) {
  const headers = { 'content-type': 'application/jsonl' };
  const path = preview ? 'import?preview=true' : 'import';
  return (await send(`v1/keepsake/${path}`, { method: 'POST', headers, body: lines })).json();
}

/** @param {string} user */
export async function exportLines(user) {
  return (await send(address('export', { user }))).blob();
}

/**
 * Reads server-sent events until the signal aborts. `EventSource` cannot send a key.
 *
 * @param {string | undefined} user
 * @param {AbortSignal} signal
 * @param {(name: string, data: any, id: string) => void} heard
 * @param {() => void} opened
 */
export async function decisions(user, signal, heard, opened) {
  const response = await send(address('decisions', { user }), { signal });
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  opened();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const fields = new Map(block.split('\n').map((line) => {
        const at = line.indexOf(':');
        return [line.slice(0, at), line.slice(at + 1).trimStart()];
      }));
      const data = fields.get('data');
      if (data) heard(fields.get('event') ?? 'message', JSON.parse(data), fields.get('id') ?? '');
    }
  }
}
