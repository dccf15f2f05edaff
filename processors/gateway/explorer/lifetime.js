// The spread of a user's memories over time, from few questions.

import { call } from './api.js';

/**
 * @typedef {{from: number, to: number, memories: number}} Slice
 * @typedef {{first: number, last: number, slices: Slice[]}} Lifetime
 */

/** Memories of one page of the service. Up to so many are counted one by one. */
const PAGE = 100;
const BUCKETS = 48;
/** Looks at the life of a user who has more: each costs the service a list. */
const LOOKS = 12;

/**
 * Yields more and more of the life of a user, newest first.
 *
 * @param {string} user
 * @param {any} stats
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Lifetime>}
 */
export async function* lifetime(user, stats, signal) {
  const { total } = stats.memories;
  if (!stats.oldest || total < 2) return;
  const [first, last] = [Date.parse(stats.oldest), Date.now()];
  if (total <= PAGE) {
    const { memories } = await call('list', { user, everything: true, limit: PAGE }, signal);
    const width = (last - first) / BUCKETS || 1;
    const slices = Array.from({ length: BUCKETS }, (_, index) => ({ from: first + index * width, to: first + (index + 1) * width, memories: 0 }));
    for (const { created_at: at } of memories) {
      const slice = slices[Math.min(BUCKETS - 1, Math.max(0, Math.floor((Date.parse(at) - first) / width)))];
      if (slice) slice.memories += 1;
    }
    yield { first, last, slices };
    return;
  }
  // Of many, single ranks are looked at: between two of them are equally many memories.
  const each = Math.ceil(total / LOOKS);
  /** @type {Slice[]} */
  const slices = [];
  let until = last;
  for (let from = 0; from < total; from += each) {
    const offset = Math.min(from + each, total) - 1;
    const { memories } = await call('list', { user, everything: true, limit: 1, offset }, signal);
    const at = memories[0] ? Date.parse(memories[0].created_at) : first;
    slices.unshift({ from: at, to: until, memories: offset + 1 - from });
    until = at;
    yield { first, last, slices: [...slices] };
  }
}
