// Changes of memories that several screens offer: edit, confirm, deny, switch off, forget. Each is an
// event like any other; a forget ends with its receipt.

import { html, nothing } from './vendor/lit-html.js';
import { call, get } from './api.js';
import { act, confirmed, counted, dialog, field, minuteOf, note, submitted, time } from './parts.js';

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

/**
 * Asks, erases, and shows the receipt.
 *
 * @param {string} user
 * @param {{memory?: string, session?: string, query?: string, everything?: true}} target
 * @param {unknown} what
 */
export async function forget(user, target, what) {
  const sure = await confirmed('Forget for good?', html`${what}<p>Forgetting cannot be undone: later replays do not bring it back. A receipt says what was erased and where bytes may remain until when.</p>`, 'Forget');
  if (!sure) return false;
  /** @type {Decision | undefined} */
  let decision;
  /** @type {Receipt | undefined} */
  let receipt;
  const done = await act(async () => {
    decision = decided(await call('forget', { user, ...target }));
    const { erasures } = await get('erasures', { user });
    const { partition, offset } = decision.event;
    receipt = erasures.find((/** @type {Receipt} */ each) => each.event.partition === partition && each.event.offset === offset);
    return 'Forgotten.';
  });
  if (done) {
    await dialog('Forgotten', (/** @type {(answer?: undefined) => void} */ close) => html`
      ${receipt ? receiptView(receipt, decision?.salt) : html`<p>${decision?.reason}</p>`}
      <p class="buttons"><button type="button" class="first" autofocus @click=${() => close()}>Close</button></p>`);
  }
  return done;
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
    <table class="list"><caption>Where bytes may remain</caption><thead><tr><th scope="col">Place</th><th scope="col">What</th><th scope="col">Until</th></tr></thead>
      <tbody>${receipt.places.map(({ place, what, within_ms: within }) => {
        const end = within === undefined ? undefined : began + within;
        return html`<tr class=${end !== undefined && end < Date.now() ? 'quiet' : ''}><th scope="row"><code>${place}</code></th><td>${what}</td>
          <td>${end === undefined ? 'no limit of Keepsake’s' : end < Date.now() ? html`gone since ${minuteOf(end)}` : time(new Date(end).toISOString(), 'minute')}</td></tr>`;
      })}</tbody></table>
    <details><summary>${counted(receipt.texts.length + (receipt.unlisted ?? 0), 'digest')} of erased texts</summary>
      <p class="quiet">HMAC-SHA256 of each text. ${salt ? 'Its key is the salt below, which is shown only now: keep it to prove later what was erased.' : 'Its key, the salt, was in the reply to the forget.'}</p>
      ${salt ? html`<p>Salt <code class="long">${salt}</code></p>` : nothing}
      <ul class="digests">${receipt.texts.slice(0, 100).map(({ memory, digest }) => html`<li><code>${memory}</code> <code class="long">${digest}</code></li>`)}</ul></details>
  </section>`;
}
