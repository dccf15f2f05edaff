// Fills the service at KEEPSAKE_MANY_URL with a user of 20,000 memories over three years. They are each of
// their session, so that none is compared with all others when it is stored.

import { call } from './browser.mjs';

export const MEMORIES = 20_000;
export const user = 'many';
export const base = /** @type {string} */ (process.env.KEEPSAKE_MANY_URL);
const TOGETHER = 250;
const NOUNS = 'bridge lemon harbour violin ticket garden invoice teacher river kitchen'.split(' ');
const FROM = Date.UTC(2024, 0, 1);
const STEP_MS = (1_000 * 86_400_000) / MEMORIES;

if (process.argv[1]?.endsWith('fill.mjs')) {
  let next = 0;
  const send = async () => {
    while (next < MEMORIES) {
      const index = next++;
      await call('remember', {
        user, scope: 'session', session: `s-${Math.floor(index / 20)}`, at: new Date(FROM + index * STEP_MS).toISOString(), kind: ['fact', 'event', 'preference'][index % 3],
        content: `Bought the ${NOUNS[index % 10]} number ${index}`, metadata: { shop: `shop-${index % 7}` },
      }, base);
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, send));
}
