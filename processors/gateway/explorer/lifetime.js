// The spread of a user's memories over time, from few questions.

import { call } from './api.js';

/** Looks at the whole life of a user: each costs the service a list. */
const SLICES = 12;

/**
 * Stretches of time with equally many memories, found by looking at single ranks of the list. Yields
 * more and more of them, newest first.
 *
 * @param {string} user
 * @param {any} stats
 * @param {AbortSignal} signal
 */
export async function* lifetime(user, stats, signal) {
  const total = stats.memories.total;
  if (total <= 3 || !stats.oldest) return;
  const each = Math.ceil(total / SLICES);
  const slices = [];
  let until = Date.now();
  for (let rank = each - 1; rank < total + each - 1; rank += each) {
    const offset = Math.min(rank, total - 1);
    const { memories } = await call('list', { user, everything: true, limit: 1, offset }, signal);
    const at = memories[0] ? Date.parse(memories[0].created_at) : Date.parse(stats.oldest);
    slices.unshift({ from: at, to: until, memories: Math.min(each, total - (rank - each + 1)) });
    until = at;
    yield [...slices];
  }
}

