// A user with 20,000 memories: the list and the timeline come at once, scroll, turn pages and jump.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { call, close, figure, go, page, until } from './browser.mjs';

const MEMORIES = 20_000;
const WITHIN_MS = 1_000;
const user = 'many';
const nouns = 'bridge lemon harbour violin ticket garden invoice teacher river kitchen'.split(' ');
const FROM = Date.UTC(2024, 0, 1);
const STEP_MS = (1_000 * 86_400_000) / MEMORIES;

before(async () => {
  let next = 0;
  const send = async () => {
    while (next < MEMORIES) {
      const index = next++;
      await call('remember', {
        user, session: `s-${Math.floor(index / 20)}`, at: new Date(FROM + index * STEP_MS).toISOString(), kind: ['fact', 'event', 'preference'][index % 3],
        content: `Bought the ${nouns[index % 10]} number ${index}`, metadata: { shop: `shop-${index % 7}` },
      });
    }
  };
  await Promise.all(Array.from({ length: 250 }, send));
  await until(async () => (await call('stats', { user })).memories.total === MEMORIES, 'all memories');
});
after(close);

for (const [view, rows] of [['', 'li.memory'], ['timeline', '.spans li']]) {
  test(`20,000 memories as a ${view || 'list'}`, async () => {
    const { shown, faults } = await page();
    // The pages of the explorer are there before, as for a person who comes from the list of users.
    await go(shown, '#/');
    const began = performance.now();
    await shown.goto(shown.url().replace(/#.*/, `#/u/${user}${view ? `/${view}` : ''}`));
    await shown.getByText('number 19999').waitFor();
    const first = performance.now() - began;
    await shown.getByText('20,000 memories').waitFor();
    await until(async () => (await shown.locator('.density .slice').count()) === 12, 'the overview');

    const frames = await shown.evaluate(async () => {
      /** @type {number[]} */
      const found = [];
      for (let step = 0; step < 40; step += 1) {
        const began = performance.now();
        scrollBy(0, 60);
        await new Promise((shown) => requestAnimationFrame(shown));
        found.push(performance.now() - began);
      }
      return found.sort((a, b) => a - b);
    });
    const slowest = /** @type {number} */ (frames.at(-2));

    const turned = performance.now();
    await shown.getByRole('link', { name: 'Older' }).click();
    await shown.getByText('number 19949').waitFor();
    const second = performance.now() - turned;
    assert.equal(await shown.locator(String(rows)).count(), 50);

    const jumped = performance.now();
    await shown.goto(shown.url().replace(/\?.*/, '?from=2024-03-01&to=2024-03-02'));
    await shown.getByText(/number 1[12]\d\d$/).first().waitFor();
    const third = performance.now() - jumped;

    const name = view || 'list';
    figure(`20,000 memories, ${name}: first, next page, jump to a day`, [first, second, third].map((it) => `${it.toFixed(0)} ms`).join(', '), '≤ 1,000 ms');
    figure(`20,000 memories, ${name}: slowest frame but one in scrolling`, `${slowest.toFixed(0)} ms`, '≤ 100 ms');
    assert.ok(Math.max(first, second, third) <= WITHIN_MS, `${first}, ${second}, ${third} ms`);
    assert.ok(slowest <= 100, `${slowest} ms`);
    assert.deepEqual(faults, []);
  });
}
