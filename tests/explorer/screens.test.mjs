// Every screen with real data, light and dark, on a desk and on a phone of 390 pixels: it shows what it
// must, can be read, and has no fault and no serious finding of axe.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { PHONE, call, close, figure, go, grave, page, unreadable, until, url, publishTooLong } from './browser.mjs';
import { tell } from './story.mjs';

const shots = process.env.EXPLORER_SHOTS;

let gym = '';
let vegetarian = '';
before(async () => {
  if (shots) mkdirSync(shots, { recursive: true });
  await tell(call);
  await call('forget', { user: 'tobias', query: 'budget', id: 'story-forget' });
  publishTooLong('tobias');
  const { memories } = await call('list', { user: 'mira', everything: true });
  const one = (/** @type {string} */ start) => memories.find((/** @type {any} */ memory) => memory.content.startsWith(start)).id;
  [gym, vegetarian] = [one('My gym'), one('I am no longer vegetarian')];
});
after(close);

/** Each screen with texts that only its data can have brought there. @type {Record<string, [string, (string | RegExp)[]]>} */
const screens = {
  start: ['#/start', ['keepsake connect claude-code', 'keepsake import --from chatgpt conversations.json', 'Add a memory']],
  users: ['#/users', ['mira', 'tobias', /\d+ users/]],
  memories: ['#/u/mira', ['My gym is FitBox at the harbour.', 'since 12 Jan 2026', 'in conflict', 'replaces an older one', 'replaced by a newer one']],
  timeline: ['#/u/mira/timeline', ['My gym is FitBox at the harbour.', 's-2026-03', /until 18 Nov 2026|holds/]],
  memory: ['#/u/mira/m/GYM', ['a statement about the speaker', 'novelty', 'half-life', 'Probably changed by', 'I cancelled the gym.', 'I ride my bike to work', 'The nearest by meaning']],
  decided: ['#/u/mira/decisions', ['replaces', 'kept', 'only a greeting']],
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
let unread = 0;
let faulty = 0;

/** @param {import('playwright-core').Page} shown */
async function audit(shown) {
  const found = await grave(shown);
  findings += found.length;
  assert.deepEqual(found, []);
}

/** @param {import('playwright-core').Page} shown */
async function auditOnPhone(shown) {
  await shown.setViewportSize(PHONE);
  const found = await unreadable(shown);
  unread += found.length;
  assert.deepEqual(found, []);
  await audit(shown);
}

for (const [name, [hash, texts]] of Object.entries(screens)) {
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    test(`the screen ${name}, ${colorScheme}`, async () => {
      const { shown, faults } = await page({ colorScheme });
      await go(shown, hash.replace('GYM', gym));
      for (const text of texts) await shown.getByText(text).first().waitFor().catch(() => assert.fail(`${name} does not show ${text}`));
      await shown.waitForLoadState('load');
      await shown.waitForTimeout(300);
      if (shots) await shown.screenshot({ path: `${shots}/${name}${colorScheme === 'dark' ? '-dark' : ''}.png` });
      await audit(shown);
      if (colorScheme === 'light') {
        await auditOnPhone(shown);
        if (shots) await shown.screenshot({ path: `${shots}/${name}-phone.png`, fullPage: true });
        // The first of what can be opened: further rows are like them.
        const opened = await shown.evaluate(() => [...document.querySelectorAll('details:not([open])')].slice(0, 6).map((each) => { /** @type {HTMLDetailsElement} */ (each).open = true; }).length);
        if (opened) await auditOnPhone(shown);
      }
      faulty += faults.length;
      assert.deepEqual(faults, []);
      await shown.context().close();
    });
  }
}

test('the newer memory replaces, the older is replaced, and each leads to the other', async () => {
  const { shown, faults } = await page();
  const older = 'I am vegetarian since October.';
  /** @type {[string, (shown: import('playwright-core').Page) => import('playwright-core').Locator][]} */
  const places = [
    ['#/u/mira', () => shown.locator('li.memory', { hasText: 'I am no longer vegetarian' })],
    [`#/u/mira/m/${vegetarian}`, () => shown.locator('header.lead')],
    ['#/u/mira/ask?q=Am+I+vegetarian%3F', () => shown.locator('.hits > li', { hasText: 'I am no longer vegetarian' })],
  ];
  for (const [hash, newer] of places) {
    await go(shown, hash);
    await newer(shown).getByRole('link', { name: /^replaces/ }).first().click();
    await shown.locator('header.lead', { hasText: older }).getByText('replaced by a newer one').waitFor();
    await shown.getByRole('link', { name: 'replaced by a newer one' }).first().click();
    await shown.locator('header.lead', { hasText: 'I am no longer vegetarian' }).waitFor();
  }
  await go(shown, '#/u/mira/ask?q=Am+I+vegetarian%3F');
  await shown.locator('.hits > li', { hasText: older }).getByRole('link', { name: 'replaced by a newer one' }).waitFor();
  await go(shown, '#/u/mira/decisions?outcome=superseded');
  const row = shown.locator('.decisions > li', { hasText: 'I am no longer vegetarian' });
  assert.equal(await row.locator('.outcome').textContent(), 'replaces');
  await row.locator('summary').click();
  await row.getByRole('link', { name: 'the older memory' }).click();
  await shown.locator('header.lead', { hasText: older }).waitFor();
  assert.deepEqual(faults, []);
});

test('a word is explained where it stands, by keyboard and by touch', async () => {
  const { shown, faults } = await page({ viewport: PHONE, hasTouch: true, isMobile: true });
  const note = shown.locator('#word');
  for (const [hash, words] of /** @type {[string, string[]][]} */ ([
    ['#/u/mira/ask?q=What+is+my+gym%3F', ['relevance', 'score', 'cosine']], [`#/u/mira/m/${gym}`, ['novelty', 'kept from', 'importance']],
    ['#/u/mira', ['in conflict']], ['#/users', ['Not archived']], ['#/service', ['Lag', 'To restore']],
  ])) {
    await go(shown, hash);
    for (const name of words) {
      const word = shown.getByRole('button', { name, exact: true }).first();
      await word.tap();
      await note.waitFor();
      const touched = await note.textContent();
      assert.ok((touched ?? '').length > 20, `${name}: ${touched}`);
      const box = /** @type {{x: number, width: number}} */ (await note.boundingBox());
      assert.ok(box.x >= 0 && box.x + box.width <= PHONE.width, `the note on ${name} is beside the window`);
      await shown.keyboard.press('Escape');
      await note.waitFor({ state: 'hidden' });
      await word.focus();
      await shown.keyboard.press('Enter');
      await note.waitFor();
      assert.equal(await note.textContent(), touched);
      await shown.keyboard.press('Escape');
    }
  }
  await go(shown, '#/u/mira/decisions?outcome=dropped');
  await shown.getByText('Not worth keeping').first().waitFor();
  assert.deepEqual(faults, []);
});

test('by keyboard alone: to the content, a user, a memory', async () => {
  const { shown, faults } = await page();
  await go(shown, '#/users');
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
  await go(shown, '#/users?find=nobody-has-this');
  await shown.getByText('No user has this in the name').waitFor();
  await go(shown, '#/u/never-seen');
  await shown.getByText('Nothing is remembered of never-seen').waitFor();
  await shown.goto(`${url}/#/u/mira/m/00000000-0000-0000-0000-000000000000`);
  await shown.getByText('There is nothing here').waitFor();
  await shown.goto(`${url}/#/nowhere`);
  await shown.getByText('No screen has this address').waitFor();
  await shown.route('**/v1/keepsake/users*', (route) => route.abort());
  await shown.goto(`${url}/#/users`);
  await shown.getByText('The gateway does not answer').waitFor();
  await auditOnPhone(shown);
  await shown.unroute('**/v1/keepsake/users*');
  await shown.getByRole('button', { name: 'Try again' }).click();
  await shown.getByRole('link', { name: 'mira' }).waitFor();
});

after(() => {
  figure('screens with real data, light and dark', Object.keys(screens).length, 'all');
  figure('serious or critical findings of axe, desk and phone', findings, '0');
  figure(`faults of reading at ${PHONE.width} pixels`, unread, '0');
  figure('errors and warnings of the console', faulty, '0');
});
