// Six questions of a person, each answered from the first page with at most three clicks.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { call, close, figure, page, url } from './browser.mjs';
import { tell } from './story.mjs';

const CLICKS_MAX = 3;

before(async () => {
  await tell(call);
  await call('forget', { user: 'tobias', query: 'budget', id: 'story-forget' });
});
after(close);

/** @typedef {(what: import('playwright-core').Locator) => Promise<void>} Click */
/** @type {[string, (shown: import('playwright-core').Page, click: Click) => Promise<void>][]} */
const questions = [
  ['Why was this dropped?', async (shown, click) => {
    await click(shown.getByRole('link', { name: 'Decisions' }));
    await click(shown.getByRole('link', { name: 'dropped', exact: true }));
    await shown.locator('.decisions li', { hasText: 'What is the capital of Portugal?' }).getByText(/only a question/).waitFor();
  }],
  ['What did we know in May?', async (shown, click) => {
    await click(shown.getByRole('link', { name: 'mira' }));
    await click(shown.getByRole('link', { name: 'As of' }));
    await click(shown.getByRole('link', { name: 'May 2026', exact: true }));
    await shown.getByText('I cancelled the gym.').waitFor();
    assert.equal(await shown.getByText('My bike was stolen').count(), 0);
  }],
  ['Why did this come first?', async (shown, click) => {
    await click(shown.getByRole('link', { name: 'mira' }));
    await click(shown.getByRole('link', { name: 'Ask' }));
    await shown.getByLabel('Question').fill('Which gym do I go to?');
    await click(shown.getByRole('button', { name: 'Ask' }));
    await shown.locator('.hits li').first().getByText('Added up').waitFor();
  }],
  ['What is outdated?', async (shown, click) => {
    await click(shown.getByRole('link', { name: 'mira' }));
    await click(shown.getByRole('link', { name: 'Changes', exact: true }));
    await shown.locator('.changes li', { hasText: 'replaces' }).getByText('I am vegetarian since October.').waitFor();
  }],
  ['Is it keeping up?', async (shown, click) => {
    await click(shown.getByRole('link', { name: 'Service' }));
    await shown.locator('.verdict').getByText(/It keeps up|behind/).waitFor();
  }],
  ['What remains of a forgotten one?', async (shown, click) => {
    await click(shown.getByRole('link', { name: 'tobias' }));
    await click(shown.getByRole('link', { name: 'Forgotten' }));
    await shown.getByText('Where bytes may remain').first().waitFor();
  }],
];

for (const [question, answer] of questions) {
  test(question, async () => {
    const { shown, faults } = await page();
    await shown.goto(url);
    await shown.getByRole('link', { name: 'mira' }).waitFor();
    let clicks = 0;
    await answer(shown, async (what) => {
      clicks += 1;
      await what.click();
    });
    figure(`clicks: ${question}`, clicks, `≤ ${CLICKS_MAX}`);
    assert.ok(clicks <= CLICKS_MAX, `${clicks} clicks`);
    assert.deepEqual(faults, []);
    await shown.context().close();
  });
}
