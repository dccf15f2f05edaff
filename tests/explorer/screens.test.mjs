// Every screen with real data, light and dark, on a desk and on a phone: it shows what it must, has no
// fault and no serious finding of axe.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import axe from 'axe-core';
import { mkdirSync } from 'node:fs';
import { call, close, figure, go, page, until, url, publishTooLong } from './browser.mjs';
import { tell } from './story.mjs';

const shots = process.env.EXPLORER_SHOTS;

let gym = '';
before(async () => {
  if (shots) mkdirSync(shots, { recursive: true });
  await tell(call);
  await call('forget', { user: 'tobias', query: 'budget', id: 'story-forget' });
  publishTooLong('tobias');
  const { memories } = await call('list', { user: 'mira', everything: true });
  gym = memories.find((/** @type {any} */ memory) => memory.content.startsWith('My gym')).id;
});
after(close);

/** Each screen with texts that only its data can have brought there. @type {Record<string, [string, (string | RegExp)[]]>} */
const screens = {
  users: ['#/', ['mira', 'tobias', /\d+ users/]],
  memories: ['#/u/mira', ['My gym is FitBox at the harbour.', 'since 12 Jan 2026', 'in conflict']],
  timeline: ['#/u/mira/timeline', ['My gym is FitBox at the harbour.', 's-2026-03', /until 18 Nov 2026|holds/]],
  memory: ['#/u/mira/m/GYM', ['a statement about the speaker', 'novelty', 'half-life', 'Probably changed by', 'I cancelled the gym.', 'I ride my bike to work', 'The nearest by meaning']],
  decisions: ['#/decisions?outcome=dropped', ['only a greeting', 'Hi there!', 'dropped', 'live']],
  ask: ['#/u/mira/ask?q=What+is+my+gym%3F&beside=lynkr', ['My gym is FitBox', 'dense', 'What the model gets', /\d+ tokens/, 'Profile of the tenant']],
  then: ['#/u/mira/then?at=2026-03-31', ['31 Mar 2026', 'My monthly rent is 1,450 euros.', 'Known then']],
  changes: ['#/u/mira/changes', ['I cancelled the gym.', 'probably changes', 'contradicts', 'replaces', 'Undo', 'probably the same']],
  service: ['#/service', ['It keeps up', '6 shards', 'To restore', /in \d+ ms/, 'could not be processed', 'too-large']],
  import: ['#/move', ['Choose a file']],
  export: ['#/u/mira/export', ['JSON Lines']],
  forgotten: ['#/u/tobias/forgotten', ['1 memory', 'Where bytes may remain', 'keepsake.memories']],
};

let findings = 0;
for (const [name, [hash, texts]] of Object.entries(screens)) {
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    test(`the screen ${name}, ${colorScheme}`, async () => {
      const { shown, faults } = await page({ colorScheme });
      await go(shown, hash.replace('GYM', gym));
      for (const text of texts) await shown.getByText(text).first().waitFor().catch(() => assert.fail(`${name} does not show ${text}`));
      await shown.waitForLoadState('load');
      await shown.waitForTimeout(300);
      if (shots) await shown.screenshot({ path: `${shots}/${name}${colorScheme === 'dark' ? '-dark' : ''}.png` });
      await shown.evaluate(axe.source);
      const { violations } = await shown.evaluate(() => /** @type {any} */ (window).axe.run());
      const grave = violations.filter((/** @type {any} */ each) => ['serious', 'critical'].includes(each.impact));
      findings += grave.length;
      assert.deepEqual(grave.map((/** @type {any} */ each) => `${each.id}: ${each.nodes.map((/** @type {any} */ node) => node.html).slice(0, 3)}`), []);
      if (colorScheme === 'light') {
        await shown.setViewportSize({ width: 360, height: 740 });
        const wide = await shown.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name} is ${wide} pixels wider than a phone`);
        if (shots) await shown.screenshot({ path: `${shots}/${name}-phone.png` });
      }
      assert.deepEqual(faults, []);
      await shown.context().close();
    });
  }
}

test('by keyboard alone: to the content, a user, a memory', async () => {
  const { shown, faults } = await page();
  await go(shown, '#/');
  await shown.getByRole('link', { name: 'mira' }).waitFor();
  await shown.keyboard.press('Tab');
  await shown.keyboard.press('Enter');
  assert.equal(await shown.evaluate(() => document.activeElement?.id), 'main');
  const press = async (/** @type {string} */ wanted) => {
    await until(async () => {
      await shown.keyboard.press('Tab');
      return shown.evaluate((text) => document.activeElement?.textContent === text, wanted);
    }, `the focus on ${wanted}`);
    await shown.keyboard.press('Enter');
  };
  await press('mira');
  await shown.getByRole('heading', { name: 'mira' }).waitFor();
  await shown.getByText('My gym is FitBox at the harbour.', { exact: true }).waitFor();
  await press('My gym is FitBox at the harbour.');
  await shown.getByRole('heading', { name: 'How it fades' }).waitFor();
  assert.deepEqual(faults, []);
});

test('states that are no data: nobody, no memory, a wrong address, a gateway that is gone', async () => {
  const { shown } = await page();
  await go(shown, '#/?find=nobody-has-this');
  await shown.getByText('No user has this in the name').waitFor();
  await go(shown, '#/u/never-seen');
  await shown.getByText('Nothing is remembered of never-seen').waitFor();
  await go(shown, '#/u/mira/m/00000000-0000-0000-0000-000000000000').catch(() => {});
  await shown.getByText('There is nothing here').waitFor();
  await shown.goto(`${url}/#/nowhere`);
  await shown.getByText('No screen has this address').waitFor();
  await shown.route('**/v1/keepsake/users*', (route) => route.abort());
  await shown.goto(`${url}/#/`);
  await shown.getByText('The gateway does not answer').waitFor();
  await shown.unroute('**/v1/keepsake/users*');
  await shown.getByRole('button', { name: 'Try again' }).click();
  await shown.getByRole('link', { name: 'mira' }).waitFor();
});

after(() => {
  figure('screens with real data, light and dark', Object.keys(screens).length, '9');
  figure('serious or critical findings of axe', findings, '0');
});
