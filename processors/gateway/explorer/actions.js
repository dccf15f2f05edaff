// Changes of memories that several screens offer: edit, confirm, deny, switch off, forget. Each is an
// event like any other; a forget ends with its receipt.

import { html, nothing } from './vendor/lit-html.js';
import { call, get } from './api.js';
import { act, confirmed, counted, dialog, field, inked, minuteOf, note, submitted, table, time } from './parts.js';

/**
 * @typedef {import('./api.js').Memory} Memory
 * @typedef {import('./api.js').Decision} Decision
 * @typedef {{event: import('./api.js').Place, target: string, count: number, left: number, at: string,
 *   texts: {memory: string, digest: string}[], unlisted?: number,
 *   places: {place: string, what: string, within_ms?: number}[]}} Receipt
 */

/** @param {any} reply @returns {Decision} */
const decided = (reply) => reply.decisions[0];

/**
 * @param {string} user
 * @param {Memory} memory
 * @param {'confirmed' | 'wrong' | 'irrelevant' | 'used'} signal
 */
export const feedback = (user, memory, signal) => act(async () => {
  await call('feedback', { user, memory: memory.id, signal });
  const words = { confirmed: 'Confirmed: it is surer now, and its fading begins anew.', wrong: 'Marked as wrong: it counts for less now.', irrelevant: 'Marked as beside the point.', used: 'Counted as a use.' };
  return words[signal];
});

/**
 * Sends the older memory its own words: that takes back what a newer one did to it.
 *
 * @param {string} user
 * @param {Memory} older
 */
export const holdsStill = (user, older) => act(async () => {
  await call('update', { user, memory: older.id, content: older.content });
  return 'Undone: the earlier memory holds again, beside the newer one.';
});

/**
 * @param {string} user
 * @param {Memory} memory
 */
export const toggle = (user, memory) => act(async () => {
  const enabled = memory.enabled === false;
  await call('update', { user, memory: memory.id, enabled });
  return enabled ? 'Switched on.' : 'Switched off: it is kept, and in no recall.';
});

/**
 * @param {string} user
 * @param {Memory} memory
 * @param {string[]} kinds
 */
export async function edit(user, memory, kinds) {
  const changes = await dialog('Edit this memory', (/** @type {(answer?: Record<string, unknown>) => void} */ done) => {
    const save = (/** @type {SubmitEvent} */ event) => {
      const form = submitted(event);
      const content = field(form, 'content');
      const kind = field(form, 'kind');
      const [importance, confidence] = [Number(form.get('importance')), Number(form.get('confidence'))];
      done({
        ...(content !== memory.content && { content }),
        ...(kind !== memory.kind && { kind }),
        ...(importance !== rounded(memory.importance) && { importance }),
        ...(confidence !== rounded(memory.confidence) && { confidence }),
      });
    };
    return html`<form class="edit" @submit=${save}>
      <label>Text<textarea name="content" rows="4" required maxlength="65536" autofocus .value=${memory.content}></textarea></label>
      <div class="row">
        <label>Kind<input name="kind" list="kinds" required maxlength="64" .value=${memory.kind}><datalist id="kinds">${kinds.map((kind) => html`<option value=${kind}></option>`)}</datalist></label>
        <label>Importance<input name="importance" type="number" min="0" max="1" step="0.01" .value=${String(rounded(memory.importance))}></label>
        <label>Confidence<input name="confidence" type="number" min="0" max="1" step="0.01" .value=${String(rounded(memory.confidence))}></label>
      </div>
      <p class="quiet">The earlier text stays in the history of the memory.</p>
      <p class="buttons"><button type="button" @click=${() => done()}>Cancel</button><button class="first">Save</button></p>
    </form>`;
  });
  if (!changes) return false;
  if (!Object.keys(changes).length) {
    note('Nothing was changed.');
    return false;
  }
  return act(async () => {
    const { outcome, reason } = decided(await call('update', { user, memory: memory.id, ...changes }));
    if (outcome !== 'updated') throw new Error(`Not changed: ${reason}`);
    return 'Changed. The earlier version is in its history.';
  });
}

const rounded = (/** @type {number} */ value) => Math.round(value * 100) / 100;

/** The receipt of each event. @param {string} user @returns {Promise<(decision: Decision) => Receipt | undefined>} */
async function receipts(user) {
  const erasures = /** @type {Receipt[]} */ ((await get('erasures', { user })).erasures);
  return ({ event: { partition, offset } }) => erasures.find(({ event }) => event.partition === partition && event.offset === offset);
}

const FOR_GOOD = html`<p>Forgetting cannot be undone: later replays do not bring it back. A receipt says what was erased and where bytes may remain until when.</p>`;

/** @param {string} title @param {unknown} view */
const ended = (title, view) => dialog(title, (/** @type {(answer?: undefined) => void} */ close) => html`${view}
  <p class="buttons"><button type="button" class="first" autofocus @click=${() => close()}>Close</button></p>`);

/**
 * Asks, erases, and shows the receipt.
 *
 * @param {string} user
 * @param {{memory?: string, session?: string, query?: string, everything?: true}} target
 * @param {unknown} what
 */
export async function forget(user, target, what) {
  if (!await confirmed('Forget for good?', html`${what}${FOR_GOOD}`, 'Forget')) return false;
  /** @type {Decision | undefined} */
  let decision;
  /** @type {Receipt | undefined} */
  let receipt;
  const done = await act(async () => {
    decision = decided(await call('forget', { user, ...target }));
    receipt = (await receipts(user))(decision);
    return 'Forgotten.';
  });
  if (done) await ended('Forgotten', receipt ? receiptView(receipt, decision?.salt) : html`<p>${decision?.reason}</p>`);
  return done;
}

/**
 * Asks once, erases one after the other, and says which are gone. A fault of one does not keep the next;
 * Stop, Escape and leaving the page do.
 *
 * @param {string} user
 * @param {Memory[]} memories
 */
export async function forgetEach(user, memories) {
  const some = counted(memories.length, 'memory', 'memories');
  const all = (/** @type {unknown[]} */ items) => html`<ul class="preview long-list" tabindex="0" aria-label="Memories">${items.map((item) => html`<li>${item}</li>`)}</ul>`;
  if (!await confirmed(`Forget ${some} for good?`, html`${all(memories.map(({ content }) => inked(content)))}${FOR_GOOD}`, `Forget ${some}`, 'Keep them')) return false;
  let isStopped = false;
  /** @type {(answer?: undefined) => void} */
  let close = () => {};
  const closed = dialog('Forgetting', (/** @type {(answer?: undefined) => void} */ done) => {
    close = done;
    return html`<p id="progress" role="status"></p><p class="buttons"><button type="button" autofocus @click=${() => done()}>Stop</button></p>`;
  }).then(() => { isStopped = true; });
  /** @type {{memory: Memory, decision?: Decision, why?: string}[]} */
  const ends = [];
  for (const [index, memory] of memories.entries()) {
    if (isStopped) {
      ends.push({ memory, why: 'kept, because you stopped' });
      continue;
    }
    const progress = document.getElementById('progress');
    if (progress) progress.textContent = `${index + 1} of ${some}`;
    try {
      ends.push({ memory, decision: decided(await call('forget', { user, memory: memory.id })) });
    } catch (error) {
      ends.push({ memory, why: error instanceof Error ? error.message : String(error) });
    }
  }
  close();
  await closed;
  const of = await receipts(user).catch(() => undefined);
  const receiptOf = (/** @type {Decision | undefined} */ decision) => decision && of?.(decision);
  for (const each of ends) if (receiptOf(each.decision)?.count === 0) each.why = 'was gone before';
  const gone = ends.filter(({ why }) => why === undefined);
  const failed = ends.filter(({ why }) => why !== undefined);
  const erased = gone.reduce((sum, { decision }) => sum + (receiptOf(decision)?.count ?? 1), 0);
  await ended(`${counted(gone.length, 'memory', 'memories')} forgotten${failed.length ? `, ${failed.length} not` : ''}`, html`
    ${failed.length ? html`<p role="alert">Not forgotten, or not certainly:</p>${all(failed.map(({ memory, why }) => html`${inked(memory.content)} <span class="mark">${why}</span>`))}` : nothing}
    ${erased > gone.length ? html`<p>With what was made of them, <b>${counted(erased, 'memory', 'memories')}</b> were erased.</p>` : nothing}
    ${of ? nothing : html`<p>The receipts cannot be read now: see Forgotten.</p>`}
    ${gone.map(({ memory, decision }, index) => {
      const receipt = receiptOf(decision);
      return receipt ? html`<details><summary>Receipt ${index + 1}: <code>${memory.id}</code></summary>${receiptView(receipt, decision?.salt)}</details>` : nothing;
    })}`);
  return true;
}

/**
 * What an erasure removed and what remains of it, without a word of the text.
 *
 * @param {Receipt} receipt
 * @param {string} [salt]
 */
export function receiptView(receipt, salt) {
  const began = Date.parse(receipt.at);
  const whole = { memory: 'one memory', session: 'a session', query: 'a query', everything: 'everything' }[receipt.target] ?? receipt.target;
  return html`<section class="receipt" aria-label="Receipt">
    <p><b>${counted(receipt.count, 'memory', 'memories')}</b> erased ${time(receipt.at, 'minute')}; asked for: ${whole}.
      ${receipt.left ? html`<b>${counted(receipt.left, 'more matches', 'more match')}</b>: Keepsake goes on by itself.` : 'Nothing that matches is left.'}</p>
    ${table({
      caption: 'Where bytes may remain', columns: [{ label: 'Place' }, { label: 'What' }, { label: 'Until' }],
      rows: receipt.places.map(({ place, what, within_ms: within }) => {
        const end = within === undefined ? undefined : began + within;
        const until = end === undefined ? 'no limit of Keepsake’s' : end < Date.now() ? html`gone since ${minuteOf(end)}` : time(new Date(end).toISOString(), 'minute');
        return { cells: [html`<code>${place}</code>`, what, until], look: end !== undefined && end < Date.now() ? 'quiet' : '' };
      }),
    })}
    <details><summary>${counted(receipt.texts.length + (receipt.unlisted ?? 0), 'digest')} of erased texts</summary>
      <p class="quiet">HMAC-SHA256 of each text. ${salt ? 'Its key is the salt below, which is shown only now: keep it to prove later what was erased.' : 'Its key, the salt, was in the reply to the forget.'}</p>
      ${salt ? html`<p>Salt <code class="long">${salt}</code></p>` : nothing}
      <ul class="digests">${receipt.texts.slice(0, 100).map(({ memory, digest }) => html`<li><code>${memory}</code> <code class="long">${digest}</code></li>`)}</ul></details>
  </section>`;
}
