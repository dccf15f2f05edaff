// Every action of the pages, and its effect as the service has it.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { PHONE, call, close, figure, get, go, grave, page, publishTooLong, unreadable, until, url } from './browser.mjs';

const keyed = /** @type {string} */ (process.env.KEEPSAKE_KEYED_URL);
const adminKey = /** @type {string} */ (process.env.KEEPSAKE_KEY);
const readKey = /** @type {string} */ (process.env.KEEPSAKE_READ_KEY);
const user = 'otto';
/** @type {import('playwright-core').Page} */
let shown;
/** @type {string[]} */
let faults;
let done = 0;

/** @param {string} name @param {() => Promise<void>} body */
const action = (name, body) => test(name, async () => {
  await body();
  assert.deepEqual(faults, []);
  done += 1;
});

const turn = (/** @type {string} */ content, session = 'one') => call('turn', { user, session, content });
const all = async () => (await call('list', { user, everything: true, limit: 100 })).memories;
const one = async (/** @type {string} */ start) => (await all()).find((/** @type {any} */ memory) => memory.content.startsWith(start));
const whole = async (/** @type {string} */ id) => (await call('get', { user, memory: id, history: true }));
/** The newest decision on the decisions topic about a memory. */
const decided = (/** @type {string} */ outcome, /** @type {string} */ id) => until(async () => {
  const { decisions } = await get(`decisions/past?user=${user}&outcome=${outcome}&limit=50`);
  return decisions.find((/** @type {any} */ each) => each.memory === id || each.related?.includes(id));
}, `a decision ${outcome}`);
const row = (/** @type {string} */ text) => shown.locator('li.memory', { hasText: text });
const said = (/** @type {string | RegExp} */ text, on = shown) => on.locator('#note').getByText(text).waitFor();
const open = (/** @type {string} */ id) => go(shown, `#/u/${user}/m/${id}`);

before(async () => {
  for (const content of ['I am allergic to bees.', 'I work as a baker in Bonn.', 'My car is a blue Twingo.', 'My dog is called Bella.', 'I live in Berlin.', 'Actually, I moved to Lisbon last month.', 'My gym is FitBox at the harbour.', 'I cancelled the gym.', 'My monthly rent is 1,450 euros.', 'My monthly rent is 1,180 euros now.']) await turn(content);
  await call('remember', { user, content: 'The spare key lies below the third flower pot in the yard.' });
  await call('remember', { user, content: 'The spare key lies below the third flower pot in the yard!' });
  ({ shown, faults } = await page({ acceptDownloads: true }));
});
after(async () => {
  figure('actions done and seen in the service', done, 'all');
  await close();
});

action('a user is found by a part of the name', async () => {
  await go(shown, '#/users');
  await shown.getByPlaceholder('Find a user').fill('OTT');
  await shown.getByRole('link', { name: user }).click();
  await shown.getByText('My dog is called Bella.').waitFor();
});

/** Posts as somebody of another tenant, which a gateway without keys allows. */
async function elsewhere(/** @type {string} */ tenant, /** @type {string} */ kind, /** @type {object} */ message) {
  const response = await fetch(`${url}/v1/keepsake/${kind}`, { method: 'POST', headers: { 'content-type': 'application/json', 'x-keepsake-tenant': tenant }, body: JSON.stringify(message) });
  assert.ok(response.ok, `${kind}: HTTP status ${response.status}`);
  return response.json();
}

/** As the choice of a tenant does; an empty page has no storage. */
const choose = (/** @type {string} */ tenant) => { if (location.protocol === 'http:') sessionStorage.setItem('keepsake-tenant', tenant); };

test('of many users the service searches, and the page has those that it shows', async () => {
  await Promise.all(Array.from({ length: 60 }, (_, index) => elsewhere('crowd', 'remember', { user: `${index % 2 ? 'odd' : 'even'}-${index}`, content: 'I am one of many.' })));
  const { shown, faults } = await page();
  await shown.addInitScript(choose, 'crowd');
  /** @type {Promise<any>[]} */
  const answers = [];
  shown.on('response', (response) => { if (response.url().includes('/v1/keepsake/users')) answers.push(response.json()); });
  await go(shown, '#/users');
  await shown.getByText('60 users').waitFor();
  assert.equal(await shown.locator('.users tbody tr').count(), 50);
  await shown.getByRole('button', { name: 'Show more of 60' }).click();
  await until(async () => (await shown.locator('.users tbody tr').count()) === 60, 'the rest');
  await shown.getByPlaceholder('Find a user').pressSequentially('DD-5');
  await shown.getByText('6 users').waitFor();
  assert.equal(await shown.locator('.users tbody tr').count(), 6);
  assert.equal(new URL(shown.url()).hash, '#/users?find=DD-5');
  const sizes = (await Promise.all(answers)).map(({ users }) => users.length);
  assert.deepEqual([sizes[0], sizes[1], sizes.at(-1)], [50, 10, 6], 'each answer is bounded');
  assert.deepEqual(faults, []);
  await shown.context().close();
  done += 1;
});

test('the first page of a new tenant: connect, add, recall at once; then its only user opens at once', async () => {
  const { shown, faults } = await page({ permissions: ['clipboard-read', 'clipboard-write'] });
  await shown.addInitScript(choose, 'fresh');
  const clipboard = () => shown.evaluate(() => navigator.clipboard.readText());
  await go(shown, '#/');
  await shown.getByRole('heading', { name: 'Start' }).waitFor();
  assert.equal(new URL(shown.url()).hash, '#/start');

  // Everything that README offers for pasting.
  const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
  const rows = [...(readme.split('## Connect your agent')[1] ?? '').split('\n## ')[0]?.matchAll(/^\| ([^|]+) \| ?([^|]*) \| (`.+`) \|$/gm) ?? []];
  assert.ok(rows.length >= 6);
  for (const [, client, file, cell] of rows) {
    const paste = [...String(cell).matchAll(/`([^`]+)`/g)].map(([, line]) => line).join('\n');
    if (!file) {
      const known = new URL(url);
      assert.equal(await shown.getByLabel('the lines for any other', { exact: true }).textContent(), paste.replace('localhost:8765', known.host));
      continue;
    }
    await shown.getByText(`By hand, into ${file}`, { exact: true }).click();
    await shown.getByRole('button', { name: `Copy the lines for ${client}`, exact: true }).click();
    assert.equal(await clipboard(), paste, client);
    const command = await shown.getByLabel(`the command for ${client}`, { exact: true }).first().textContent();
    assert.match(command ?? '', /^keepsake connect [a-z-]+$/);
  }
  await shown.getByRole('button', { name: 'Copy the command for ChatGPT' }).click();
  assert.equal(await clipboard(), 'keepsake import --from chatgpt conversations.json');

  await shown.getByLabel('Add a memory').fill('I am allergic to peanuts.');
  await shown.getByRole('button', { name: 'Remember' }).click();
  await said('Enter a user first.', shown);
  await shown.getByLabel('User', { exact: true }).fill('nia');
  await shown.getByRole('button', { name: 'Remember' }).click();
  await shown.getByText('asked to remember').waitFor();
  await shown.getByLabel('Ask', { exact: true }).fill('Am I allergic to peanuts?');
  await shown.getByRole('button', { name: 'Recall' }).click();
  await shown.getByRole('list', { name: 'Answer' }).getByText('I am allergic to peanuts.').waitFor();

  await go(shown, '#/');
  await shown.getByRole('heading', { name: 'nia' }).waitFor();
  assert.equal(new URL(shown.url()).hash, '#/u/nia');
  await shown.getByRole('link', { name: 'Users' }).last().click();
  await shown.getByRole('heading', { name: 'Users' }).waitFor();
  await shown.getByRole('link', { name: 'Start' }).click();
  await until(async () => (await shown.getByLabel('User', { exact: true }).inputValue()) === 'nia', 'the name of the only user');
  assert.deepEqual(faults, []);
  await shown.context().close();
  done += 1;
});

action('a list in other orders says what they are made of', async () => {
  const sorting = 'sorting';
  for (const [content, kind, importance, at] of [['I was first.', 'fact', 0.5, '01'], ['I was second.', 'event', 0.9, '02'], ['I was third.', 'preference', 0.2, '03']]) {
    await call('remember', { user: sorting, content, kind, importance, at: `2026-01-${at}T10:00:00Z` });
  }
  const shownAs = async (/** @type {string} */ sort, /** @type {string} */ words) => {
    await go(shown, `#/u/${sorting}${sort && `?sort=${sort}`}`);
    await shown.getByText(words, { exact: true }).waitFor();
    return (await shown.locator('li.memory .words').allTextContents()).map((text) => text.replaceAll(/I was |\./g, '')).join(' ');
  };
  assert.equal(await shownAs('', 'Newest first.'), 'third second first');
  assert.equal(await shownAs('oldest', 'Oldest first.'), 'first second third');
  assert.equal(await shownAs('importance', 'Most important first.'), 'second first third');
  assert.equal(await shownAs('kind', 'By kind.'), 'second first third');
  await shown.locator('select[name=sort]').selectOption('oldest');
  await shown.getByRole('button', { name: 'Show' }).click();
  await shown.getByText('Oldest first.', { exact: true }).waitFor();
});

action('a page has all its memories, although one answer of the service has 1 MiB of them', async () => {
  const long = 'long';
  await Promise.all(Array.from({ length: 24 }, (_, index) => call('remember', { user: long, content: `${index} ${'very long '.repeat(6_000)}`, kind: 'fact', scope: 'session', session: 's' })));
  assert.ok((await call('list', { user: long, everything: true, limit: 50 })).memories.length < 24);
  await go(shown, `#/u/${long}`);
  await until(async () => (await shown.locator('li.memory').count()) === 24, 'all rows');
  assert.equal(await shown.getByRole('link', { name: 'Older' }).count(), 0);
});

action('filters and search narrow the list', async () => {
  await go(shown, `#/u/${user}`);
  await shown.getByLabel('Find').fill('What is the name of my dog?');
  await shown.getByRole('button', { name: 'Show' }).click();
  await shown.getByText(/^Best match first, among/).waitFor();
  await row('My dog is called Bella.').waitFor();
  await go(shown, `#/u/${user}?from=2020-01-01&to=2020-02-01`);
  await shown.getByText('No memory fits these filters').waitFor();
  await go(shown, `#/u/${user}?kind=recipe`);
  await shown.getByText('No memory fits these filters').waitFor();
});

action('confirm', async () => {
  const { id } = await one('I am allergic');
  await go(shown, `#/u/${user}`);
  await row('I am allergic').getByRole('button', { name: 'Confirm' }).click();
  await said(/^Confirmed/);
  assert.equal((await whole(id)).memory.confirmed, 1);
});

action('edit, and the earlier words stay', async () => {
  const { id } = await one('I work as a baker');
  await go(shown, `#/u/${user}`);
  await row('I work as a baker').getByRole('button', { name: 'Edit' }).click();
  await shown.getByLabel('Text').fill('I work as a baker in Cologne.');
  await shown.getByLabel('Importance').fill('0.9');
  await shown.getByRole('button', { name: 'Save' }).click();
  await row('I work as a baker in Cologne.').waitFor();
  const { memory, history } = await whole(id);
  assert.deepEqual([memory.content, memory.importance, history[0].content], ['I work as a baker in Cologne.', 0.9, 'I work as a baker in Bonn.']);
  await decided('updated', id);
  await open(id);
  await shown.getByText('changed to').waitFor();
});

action('mark as wrong', async () => {
  const { id, confidence } = await one('My car');
  await open(id);
  await shown.getByRole('button', { name: 'Wrong' }).click();
  await said(/^Marked as wrong/);
  assert.ok((await whole(id)).memory.confidence < confidence);
});

action('switch off and on', async () => {
  const { id } = await one('My car');
  await open(id);
  await shown.getByRole('button', { name: 'Switch off' }).click();
  await shown.getByText('switched off', { exact: true }).waitFor();
  assert.equal((await whole(id)).memory.enabled, false);
  await shown.getByRole('button', { name: 'Switch on' }).click();
  await shown.getByRole('button', { name: 'Switch off' }).waitFor();
  assert.notEqual((await whole(id)).memory.enabled, false);
});

test('what was asked before an action does not replace what it changed', async () => {
  const { id } = await one('My dog');
  const { shown } = await page();
  /** @type {() => void} */
  let release = () => {};
  const held = new Promise((resolve) => { release = () => resolve(undefined); });
  await shown.route('**/v1/keepsake/recall', async (route) => {
    await held;
    await route.continue();
  }, { times: 1 });
  await go(shown, `#/u/${user}/m/${id}`);
  await shown.getByRole('button', { name: 'Switch off' }).click();
  await shown.getByRole('button', { name: 'Switch on' }).waitFor();
  await shown.getByText('The nearest by meaning and words.').waitFor();
  const answered = shown.waitForResponse('**/v1/keepsake/recall');
  release();
  await (await answered).finished();
  await shown.waitForTimeout(200);
  assert.equal(await shown.getByRole('button', { name: 'Switch on' }).count(), 1);
  await call('update', { user, memory: id, enabled: true });
  await shown.context().close();
});

action('forget a memory, with its receipt', async () => {
  const { id } = await one('My car');
  await open(id);
  await shown.getByRole('button', { name: 'Forget', exact: true }).click();
  await shown.getByRole('button', { name: 'Keep it' }).click();
  assert.ok(await one('My car'), 'a question that is answered no erases nothing');
  await shown.getByRole('button', { name: 'Forget', exact: true }).click();
  await shown.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await shown.getByText('Where bytes may remain').waitFor();
  await shown.getByText('1 digest of erased texts').click();
  await shown.getByText(/^Salt /).waitFor();
  await shown.getByRole('button', { name: 'Close' }).click();
  assert.equal(await one('My car'), undefined);
  await decided('forgotten', id);
  const { erasures } = await get(`erasures?user=${user}`);
  assert.ok(erasures.some((/** @type {any} */ each) => each.texts.some((/** @type {any} */ text) => text.memory === id)));
});

action('confirm a change', async () => {
  const { id } = await one('Actually, I moved');
  await go(shown, `#/u/${user}/changes`);
  await shown.locator('.changes li', { hasText: 'Actually, I moved' }).first().getByRole('button', { name: 'Confirm' }).click();
  await said(/^Confirmed/);
  assert.equal((await whole(id)).memory.confirmed, 1);
  await shown.getByRole('heading', { name: 'Confirmed' }).waitFor();
});

action('undo a change', async () => {
  const { id } = await one('My gym is');
  assert.ok((await whole(id)).memory.revised_by, 'the gym is revised before');
  await go(shown, `#/u/${user}/changes`);
  await shown.locator('.changes li', { hasText: 'I cancelled the gym.' }).filter({ hasText: 'My gym is' }).getByRole('button', { name: 'Undo' }).click();
  await said(/^Undone/);
  assert.equal((await whole(id)).memory.revised_by, undefined);
});

action('settle a conflict for the older memory', async () => {
  const [older, newer] = [await one('My monthly rent is 1,450'), await one('My monthly rent is 1,180')];
  assert.ok(newer.conflicts_with.includes(older.id));
  await go(shown, `#/u/${user}/changes`);
  await shown.locator('.changes li', { hasText: 'contradicts' }).filter({ hasText: '1,180' }).getByRole('button', { name: 'The older is right' }).click();
  await said(/^Confirmed/);
  assert.ok((await whole(newer.id)).memory.confidence < newer.confidence);
  assert.equal((await whole(older.id)).memory.confirmed, 1);
});

action('preview a duplicate and clean it', async () => {
  await go(shown, `#/u/${user}/changes`);
  await shown.locator('.changes li', { hasText: 'probably the same' }).filter({ hasText: 'flower pot' }).getByRole('button', { name: 'Forget the newer' }).click();
  await shown.getByText('This one goes:').waitFor();
  await shown.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await shown.getByRole('button', { name: 'Close' }).click();
  const left = (await all()).filter((/** @type {any} */ memory) => memory.content.includes('flower pot'));
  assert.equal(left.length, 1);
});

action('decisions appear as they are made, the dropped ones too', async () => {
  await go(shown, '#/decisions');
  await shown.locator('.live[data-state=live]').waitFor();
  await turn('Thanks a lot!');
  await turn('My bicycle number is 4711.');
  await shown.locator('.decisions li[data-outcome=dropped]', { hasText: 'Thanks a lot!' }).waitFor();
  const kept = shown.locator('.decisions li[data-outcome=kept]', { hasText: '4711' });
  await kept.locator('summary').click();
  await kept.getByText('Points that add up').waitFor();
  await kept.getByRole('link', { name: 'open it' }).click();
  await shown.getByRole('heading', { name: 'Why it was kept' }).waitFor();
});

action('a recall: the terms, the floor, the block, two profiles', async () => {
  await go(shown, `#/u/${user}/ask`);
  await shown.getByLabel('Question').fill('What is my dog called?');
  await shown.getByText('Options').click();
  await shown.getByLabel('Beside it').selectOption('lynkr');
  await shown.getByLabel('Format').selectOption('xml');
  await shown.getByRole('button', { name: 'Ask' }).click();
  await shown.getByRole('heading', { name: 'lynkr' }).waitFor();
  const block = await shown.getByLabel('The prompt block').first().textContent();
  const reply = await call('recall', { user, query: 'What is my dog called?', limit: 8, token_budget: 2000, format: 'xml', explain: true, purpose: 'prompt' });
  assert.equal(block, reply.prompt);
  await shown.getByText(`${reply.tokens} tokens`).first().waitFor();
  await shown.locator('.hits').first().getByText(/score \d/).first().waitFor();
  const { floor, good } = reply.levels;
  await shown.getByText(`The line on a score is the floor of ${floor.toFixed(2)}`).waitFor();
  await shown.getByText(`The line on a relevance is at ${good.toFixed(2)}`).waitFor();
  const best = Math.max(...reply.memories.map((/** @type {any} */ memory) => memory.score));
  const line = shown.locator('.hits').first().locator('.score .bar:not(.relevance) .limit').first();
  assert.ok(Math.abs(Number(await line.getAttribute('x1')) - (100 * floor) / best) < 0.5, 'the line of the floor');
  assert.equal(await shown.locator('section').nth(1).locator('.limit').count(), 0, 'lynkr has no levels');
});

action('as of then, by the scrubber', async () => {
  const early = 'scrub';
  for (const [at, content] of [['2026-02-01T10:00:00Z', 'I live in Graz.'], ['2026-06-01T10:00:00Z', 'Actually, I moved to Vienna last week.']]) await call('turn', { user: early, session: 's', content, at });
  await go(shown, `#/u/${early}/then?at=2026-06-20`);
  await shown.getByText('I moved to Vienna').waitFor();
  const range = shown.getByRole('slider', { name: 'Time' });
  await range.focus();
  await range.press('Home');
  await shown.getByText('I moved to Vienna').waitFor({ state: 'detached' });
  await shown.getByText('I live in Graz.').waitFor();
  await shown.getByPlaceholder('Ask as of then').fill('Where do I live?');
  await shown.keyboard.press('Enter');
  await shown.getByRole('heading', { name: 'The answer then' }).waitFor();
  const answers = await shown.locator('ol.memories li').allTextContents();
  const { memories } = await call('recall', { user: early, query: 'Where do I live?', as_of: '2026-02-01T10:00:00Z' });
  assert.equal(answers.length, memories.length);
  assert.ok(answers[0]?.includes('I live in Graz.'));
});

action('send a dead letter again', async () => {
  publishTooLong(user);
  const letters = async () => (await get('dead-letters?limit=50')).letters;
  const [letter] = await until(async () => { const found = await letters(); return found.length && found; }, 'a dead letter');
  await go(shown, '#/service');
  await shown.getByLabel(`Choose ${letter.partition}:${letter.offset}`).check();
  await shown.getByRole('button', { name: 'Send 1 again' }).click();
  await said(/^1 letter sent again/);
  // It is as bad as before, so it comes back, counted.
  await until(async () => (await letters()).some((/** @type {any} */ each) => each.value === letter.value && each.redriven > letter.redriven), 'the letter that comes back');
});

action('a shard: it answers, and its newest decisions', async () => {
  await turn('My parcel waits in the cellar.');
  const [{ event }] = (await get(`decisions/past?user=${user}&limit=1`)).decisions;
  await go(shown, '#/service');
  const rows = shown.locator('.shards > tbody > tr');
  await rows.nth(event.partition).getByText(/in \d+ ms/).waitFor();
  assert.equal(await rows.getByText(/in \d+ ms/).count(), await rows.count());
  await shown.getByRole('button', { name: `The newest decisions of shard ${event.partition}` }).click();
  await shown.locator('ol.tail').getByText('My parcel waits in the cellar.').waitFor();
});

action('the tenant is chosen where no keys are asked for', async () => {
  await elsewhere('second', 'turn', { user: 'liv', content: 'I live in Bergen.' });
  await go(shown, '#/');
  await shown.getByLabel('Tenant').selectOption('second');
  await shown.getByText('I live in Bergen.').waitFor();
  await shown.getByLabel('Tenant').selectOption('default');
  await shown.getByRole('link', { name: user }).waitFor();
  assert.equal(await shown.getByRole('link', { name: 'liv' }).count(), 0);
});

action('export, preview of an import, import', async () => {
  await go(shown, `#/u/${user}/export`);
  const saved = shown.waitForEvent('download');
  await shown.getByRole('button', { name: 'Save as a file' }).click();
  const lines = readFileSync(await (await saved).path(), 'utf8');
  const before = await all();
  assert.equal(lines.trim().split('\n').length, before.length + 2);
  const moved = lines.replaceAll(`"${user}"`, '"otto-2"');
  await go(shown, '#/move');
  await shown.getByLabel('JSON Lines').setInputFiles({ name: 'otto.jsonl', mimeType: 'application/jsonl', buffer: Buffer.from(moved) });
  await shown.getByText('2. Look at what it would change').waitFor();
  assert.equal((await call('list', { user: 'otto-2' })).memories.length, 0, 'a preview changes nothing');
  await shown.getByRole('button', { name: 'Import', exact: true }).click();
  await shown.getByText('3. Done').waitFor();
  assert.ok((await call('list', { user: 'otto-2', everything: true })).memories.length > 0);
});

action('forget a session, a query, and everything', async () => {
  await turn('My tutor is Professor Ilse Aumann.', 'two');
  await turn('My locker code is 8842.', 'two');
  await go(shown, `#/u/${user}?session=two`);
  await row('locker').waitFor();
  await shown.getByRole('button', { name: 'Forget this whole session' }).click();
  await shown.getByRole('dialog').getByText('2 memories made in the session two').waitFor();
  await shown.getByRole('dialog').getByText('My locker code is 8842.').waitFor();
  await shown.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await shown.getByRole('button', { name: 'Close' }).click();
  assert.equal(await one('My locker'), undefined);
  await go(shown, `#/u/${user}?find=dog+Bella`);
  await row('My dog').waitFor();
  await shown.getByRole('button', { name: 'Forget what this query finds' }).click();
  await shown.getByRole('dialog').getByText(/these are 1 memory/).waitFor();
  await shown.getByRole('dialog').getByText('My dog is called Bella.').waitFor();
  await shown.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await shown.getByRole('button', { name: 'Close' }).click();
  assert.equal(await one('My dog'), undefined);
  await go(shown, `#/u/${user}/forgotten`);
  await shown.getByRole('button', { name: `Forget everything of ${user}` }).click();
  await shown.getByRole('dialog').getByText(`${(await all()).length} memories: all of ${user}`).waitFor();
  await shown.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await shown.getByRole('button', { name: 'Close' }).click();
  await until(async () => !(await all()).length, 'an empty list');
  await go(shown, `#/u/${user}`);
  await shown.getByText(`Nothing is remembered of ${user}`).waitFor();
});

test('forget several: one question that counts, and an end that says which are gone', async () => {
  const several = 'several';
  const texts = ['My red kite flew away.', 'My green boat leaks.', 'My blue tent is torn.', 'My grey cat sleeps.', 'My white horse limps.'];
  for (const content of texts) await call('remember', { user: several, content, kind: 'fact' });
  const left = async () => (await call('list', { user: several, everything: true })).memories.map((/** @type {any} */ each) => each.content);
  const { shown, faults } = await page();
  const dialog = shown.getByRole('dialog');
  const mark = (/** @type {string | undefined} */ text) => shown.getByLabel(`Forget ${text}`).check();
  await go(shown, `#/u/${several}`);
  await shown.getByRole('button', { name: 'Forget several…' }).click();
  assert.ok(await shown.getByRole('button', { name: 'Forget 0 memories' }).isDisabled());
  for (const text of texts.slice(0, 3)) await mark(text);
  await shown.getByText('3 of 5 on this page marked').waitFor();

  // A second click at once, No, Escape and another address erase nothing; no mark outlives the page.
  const all = shown.getByRole('button', { name: 'Forget 3 memories' });
  await all.evaluate((button) => {
    button.click();
    document.getElementById('sure')?.click();
  });
  await dialog.getByText('Forget 3 memories for good?').waitFor();
  assert.deepEqual(await dialog.locator('.preview li').allTextContents(), (await left()).filter((/** @type {string} */ text) => texts.indexOf(text) < 3));
  await shown.setViewportSize(PHONE);
  assert.deepEqual([await unreadable(shown), await grave(shown)], [[], []]);
  await dialog.getByRole('button', { name: 'Keep them' }).click();
  await all.click();
  assert.equal(await shown.evaluate(() => document.activeElement?.textContent), 'Keep them');
  await shown.keyboard.press('Escape');
  await all.click();
  await shown.evaluate(() => { location.hash += '?sort=oldest'; });
  await dialog.waitFor({ state: 'detached' });
  await shown.getByRole('button', { name: 'Forget several…' }).click();
  await shown.getByText('0 of 5 on this page marked').waitFor();
  assert.equal((await left()).length, 5);

  // The second one fails, and the third is erased all the same.
  let calls = 0;
  await shown.route('**/v1/keepsake/forget', (route) => (++calls === 2 ? route.fulfill({ status: 503, json: { error: { code: 'overloaded', message: 'too much to do' } } }) : route.continue()));
  for (const text of texts.slice(0, 3)) await mark(text);
  await all.click();
  await dialog.getByRole('button', { name: 'Forget 3 memories' }).click();
  await dialog.getByText('2 memories forgotten, 1 not').waitFor();
  await dialog.locator('.preview li', { hasText: texts[1] }).getByText('too much to do').waitFor();
  await dialog.getByText(/^Receipt 2/).click();
  await dialog.getByText('1 digest of erased texts').last().click();
  await dialog.getByText(/^Salt /).last().waitFor();
  assert.deepEqual([await unreadable(shown), await grave(shown)], [[], []]);
  await dialog.getByRole('button', { name: 'Close' }).click();
  assert.deepEqual((await left()).sort(), [texts[1], texts[3], texts[4]].sort());
  await shown.locator('li.memory', { hasText: texts[0] }).waitFor({ state: 'detached' });
  assert.deepEqual(faults.splice(0).map((fault) => fault.includes('503')), [true]);

  // Stop keeps the rest.
  await shown.unroute('**/v1/keepsake/forget');
  await shown.route('**/v1/keepsake/forget', async (route) => { await new Promise((later) => setTimeout(later, 1_000)); await route.continue(); });
  await shown.getByRole('button', { name: 'Forget several…' }).click();
  for (const text of [texts[1], texts[3], texts[4]]) await mark(text);
  await all.click();
  await dialog.getByRole('button', { name: 'Forget 3 memories' }).click();
  await dialog.getByRole('button', { name: 'Stop' }).click();
  await dialog.getByText('1 memory forgotten, 2 not').waitFor();
  assert.equal((await left()).length, 2);
  assert.deepEqual(faults, []);
  await shown.context().close();
  done += 1;
});

test('a gateway with keys asks for one, and its rights decide', async () => {
  await call('turn', { user: 'wren', content: 'I live in Turku.' }, keyed, adminKey);
  await call('turn', { user: 'rook', content: 'I live in Porto.' }, keyed, adminKey);
  const { shown } = await page();
  await shown.setViewportSize(PHONE);
  await shown.goto(`${keyed}/`);
  await shown.getByLabel('Key').fill('ksk_wrong');
  await shown.getByRole('button', { name: 'Open' }).click();
  await shown.getByText('does not exist or was revoked').waitFor();
  assert.deepEqual([await unreadable(shown), await grave(shown)], [[], []]);
  await shown.getByLabel('Key').fill(readKey);
  await shown.getByRole('button', { name: 'Open' }).click();
  // Its user is the only one that it may see.
  await shown.getByText('I live in Turku.').waitFor();
  assert.equal(new URL(shown.url()).hash, '#/u/wren');
  await shown.getByText('read only').waitFor();
  const { memories: [memory] } = await call('list', { user: 'wren' }, keyed, adminKey);
  for (const hash of ['#/u/wren', '#/u/wren/timeline', `#/u/wren/m/${memory.id}`, '#/u/wren/ask?q=Where+do+I+live%3F', '#/u/wren/changes', '#/u/wren/forgotten', '#/u/wren?session=s', '#/u/wren?find=Turku', '#/users', '#/start', '#/move']) {
    await go(shown, hash, keyed);
    await shown.waitForTimeout(200);
    assert.equal(await shown.getByRole('button', { name: /^(Forget|Confirm|Edit|Wrong|Switch|Remember|Undo|Import$)/ }).count(), 0, `${hash} offers a change`);
    assert.equal(await shown.getByText('rook').count(), 0, `${hash} shows another user`);
    assert.deepEqual(await unreadable(shown), [], hash);
  }
  assert.equal(await shown.getByRole('link', { name: 'Service' }).count(), 0);
  for (const hash of ['#/u/rook', '#/u/rook/decisions', '#/u/rook/forgotten']) {
    await shown.goto('about:blank');
    await shown.goto(`${keyed}/${hash}`);
    await shown.getByText('This key lacks the right').first().waitFor();
    assert.equal(await shown.getByText('Porto').count(), 0);
  }
  await shown.getByRole('button', { name: 'Sign out' }).click();
  await shown.getByLabel('Key').fill(adminKey);
  await shown.getByRole('button', { name: 'Open' }).click();
  await shown.goto(`${keyed}/#/u/rook`);
  await shown.getByText('I live in Porto.').waitFor();
  assert.equal(await shown.evaluate(() => localStorage.length), 0);
  const other = await shown.context().newPage();
  await other.goto(`${keyed}/`);
  await other.getByText('This gateway asks for a key').waitFor();
  done += 1;
});
