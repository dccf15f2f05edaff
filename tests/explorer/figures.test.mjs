// Figures of time: the first page; and a user with 20,000 memories, whose list and timeline come at once,
// scroll, turn pages and jump.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { call, close, figure, go, page, until, url } from './browser.mjs';
import { MEMORIES, base, user } from './fill.mjs';
import { tell } from './story.mjs';

/** The debug build of the service reads a list several times as slowly. */
const SLACK = process.env.KEEPSAKE?.includes('/release/') ? 1 : 20;
const WITHIN_MS = 1_000 * SLACK;
const FRAME_MS = 100 * SLACK;

before(async () => {
  await tell(call);
  await until(async () => (await call('stats', { user }, base)).memories.total === MEMORIES, 'all memories');
});
after(close);

test('the first page is there at once and small', async () => {
  const times = [];
  let bytes = 0;
  for (let tries = 0; tries < 3; tries += 1) {
    const { shown } = await page();
    const began = performance.now();
    await shown.goto(url);
    await shown.getByRole('link', { name: 'mira' }).waitFor();
    times.push(performance.now() - began);
    await shown.waitForLoadState('networkidle');
    bytes = await shown.evaluate(() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
      .reduce((sum, entry) => sum + /** @type {PerformanceResourceTiming} */ (entry).decodedBodySize, 0));
    await shown.context().close();
  }
  const median = /** @type {number} */ (times.sort((a, b) => a - b)[1]);
  figure('first page useful', `${median.toFixed(0)} ms`, `≤ ${WITHIN_MS} ms`);
  figure('bytes of the first page', bytes, '≤ 300,000');
  assert.ok(median <= WITHIN_MS, `${median} ms`);
  assert.ok(bytes <= 300_000 && bytes > 10_000, `${bytes} bytes`);
});

for (const [view, rows] of [['', 'li.memory'], ['timeline', '.spans li']]) {
  test(`20,000 memories as a ${view || 'list'}`, async () => {
    const { shown, faults } = await page();
    // The pages of the explorer are there before, as for a person who comes from the list of users.
    await go(shown, '#/users', base);
    const began = performance.now();
    await shown.goto(shown.url().replace(/#.*/, `#/u/${user}${view ? `/${view}` : ''}`));
    await shown.getByText('number 19999').waitFor();
    const first = performance.now() - began;
    await shown.getByText('20,000 memories').waitFor();
    await until(async () => (await shown.locator('.density .slice').count()) === 12, 'the overview', 60);

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

    if (!view) {
      await shown.goto(shown.url().replace(/\?.*/, '?sort=oldest'));
      await shown.getByText('Oldest first, of 20,000.', { exact: true }).waitFor();
      await shown.locator('li.memory').first().getByText(/number 0$/).waitFor();
      await shown.goto(shown.url().replace(/\?.*/, '?sort=importance'));
      await shown.getByText('Most important first, among the 100 of this page only: the pages are by time.', { exact: true }).waitFor();
      assert.equal(await shown.locator(String(rows)).count(), 100);
    }

    const name = view || 'list';
    figure(`20,000 memories, ${name}: first, next page, jump to a day`, [first, second, third].map((it) => `${it.toFixed(0)} ms`).join(', '), `≤ ${WITHIN_MS} ms`);
    figure(`20,000 memories, ${name}: slowest frame but one in scrolling`, `${slowest.toFixed(0)} ms`, `≤ ${FRAME_MS} ms`);
    assert.ok(Math.max(first, second, third) <= WITHIN_MS, `${first}, ${second}, ${third} ms`);
    assert.ok(slowest <= FRAME_MS, `${slowest} ms`);
    assert.deepEqual(faults, []);
  });
}
