// Markup in texts, names and metadata is shown as it is written, and never runs.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { call, close, figure, go, page } from './browser.mjs';

const RUN = 'window.executed=(window.executed||0)+1';
/** 50 tries; %s is what must not run. */
const tries = [
  '<script>%s</script>', '<SCRIPT>%s</SCRIPT>', '"><script>%s</script>', "'><script>%s</script>", '</title><script>%s</script>', '</textarea><script>%s</script>', '</style><script>%s</script>', '<scr<script>ipt>%s</scr</script>ipt>', '<script src=data:text/javascript,%s></script>', '<script type=module>%s</script>',
  '<img src=x onerror=%s>', '<img src=x onerror="%s">', '"><img src=x onerror=%s>', "' onerror='%s", '<img/src=x/onerror=%s>', '<IMG SRC=x OnErRoR=%s>', '<img src=x onload=%s>', '<image src=x onerror=%s>', '<img srcset=x onerror=%s>', '`><img src=x onerror=%s>',
  '<svg onload=%s>', '<svg><script>%s</script></svg>', '<svg><animate onbegin=%s attributeName=x dur=1s>', '<svg><use href="data:image/svg+xml,<svg onload=%s>">', '<svg><foreignObject><img src=x onerror=%s></foreignObject></svg>', '<math><mi//xlink:href="javascript:%s">', '<svg><a xlink:href="javascript:%s"><text>x</text></a></svg>', '<svg><set onbegin=%s>', '<svg><style><img src=x onerror=%s></style></svg>', ']]><script>%s</script>',
  '<a href="javascript:%s">x</a>', 'javascript:%s', '[x](javascript:%s)', '<iframe src="javascript:%s">', '<iframe srcdoc="<script>parent.%s</script>">', '<object data="javascript:%s">', '<embed src="javascript:%s">', '<form action="javascript:%s"><button autofocus>x</button></form>', '<base href="javascript:%s//">', '<meta http-equiv=refresh content="0;url=javascript:%s">',
  '<body onload=%s>', '<details open ontoggle=%s>', '<input autofocus onfocus=%s>', '<video><source onerror=%s></video>', '<audio src=x onerror=%s>', '<marquee onstart=%s>', '<style>@import "javascript:%s";</style>', '<div style="background:url(javascript:%s)">', '${%s}', '<!--><img src=x onerror=%s>-->',
].map((text) => text.replace('%s', RUN));

/** A name has no slash. */
const names = tries.filter((text) => !text.includes('/')).slice(0, 12);
const user = '"><img src=x onerror=window.executed=1>';

before(async () => {
  assert.equal(tries.length, 50);
  for (const [index, text] of tries.entries()) {
    await call('remember', { user, content: `${text} number ${index}`, session: text, metadata: { note: text, [text]: 'x' }, kind: ['fact', 'event'][index % 2] });
    await call('turn', { user, speaker: text, session: 'turns', content: `My word ${index} is ${text}, and I like it.` });
  }
  for (const name of names) await call('remember', { user: name, content: `My name is ${name}`, kind: 'fact' });
  const { memories } = await call('list', { user, limit: 1 });
  await call('update', { user, memory: memories[0].id, content: `${tries[10]} changed`, kind: '<b onclick=x>' });
  await call('forget', { user, query: 'number 49' });
});
after(close);

test('50 tries of markup run on no screen and are read as written', async () => {
  const { shown, faults } = await page();
  const at = encodeURIComponent(user);
  const { memories } = await call('list', { user, everything: true, limit: 100 });
  const hashes = ['#/users', '#/start', `#/u/${at}`, `#/u/${at}?sort=kind`, `#/u/${at}?skip=50`, `#/u/${at}/timeline`, `#/u/${at}/timeline?skip=50`, `#/u/${at}/ask?q=${encodeURIComponent(String(tries[0]))}`, `#/u/${at}/ask?q=number&beside=lynkr&limit=50`, `#/u/${at}/then?q=number`, `#/u/${at}/changes`, `#/u/${at}/decisions`, `#/u/${at}/forgotten`, `#/u/${at}/export`, '#/decisions', '#/service',
    `#/users?find=${encodeURIComponent(String(tries[10]))}`, `#/u/${encodeURIComponent(String(tries[10]))}`, `#/u/${at}?kind=${encodeURIComponent(String(tries[0]))}&label=${encodeURIComponent(String(tries[2]))}`, ...names.map((name) => `#/u/${encodeURIComponent(name)}`), ...memories.slice(0, 12).map((/** @type {any} */ memory) => `#/u/${at}/m/${memory.id}`)];
  const read = new Set();
  let ran = 0;
  for (const hash of hashes) {
    await go(shown, hash);
    await shown.waitForTimeout(350);
    const text = await shown.evaluate(() => document.body.innerText);
    for (const wanted of tries) if (text.includes(wanted)) read.add(wanted);
    const found = await shown.evaluate(() => ({ ran: Number(/** @type {any} */ (window).executed ?? 0), foreign: document.querySelectorAll('main :is(script, iframe, object, embed, img, base, meta, marquee, audio, video), main [onerror], main [onload], main [style], main a[href^="javascript:" i]').length }));
    ran += found.ran;
    assert.equal(found.foreign, 0, `${hash} has an element of a text`);
    // Hovering and clicking what a person would.
    for (const summary of (await shown.locator('summary').all()).slice(0, 5)) await summary.click();
    ran += await shown.evaluate(() => Number(/** @type {any} */ (window).executed ?? 0));
  }
  // The question of a forget of several quotes them too.
  await go(shown, `#/u/${at}`);
  await shown.getByRole('button', { name: 'Forget several…' }).click();
  await shown.evaluate(() => document.querySelectorAll('.choose input').forEach((each) => /** @type {HTMLElement} */ (each).click()));
  await shown.getByRole('button', { name: 'Forget 50 memories' }).click();
  await shown.getByRole('dialog').getByText('Forget 50 memories for good?').waitFor();
  assert.equal(await shown.locator('dialog .preview li').count(), 50);
  assert.equal(await shown.locator('dialog li *').count(), 0, 'the question has an element of a text');
  ran += await shown.evaluate(() => Number(/** @type {any} */ (window).executed ?? 0));
  figure('markup that ran, of 50 tries', ran, '0');
  assert.equal(ran, 0);
  assert.deepEqual(tries.filter((text) => !read.has(text)), [], 'each try is on some screen, as it is written');
  assert.deepEqual(faults, []);
});
