// What remains of forgotten memories: the receipts of all erasures of a user.

import { html } from '../vendor/lit-html.js';
import { get } from '../api.js';
import { forget, receiptView } from '../actions.js';
import { action, counted, empty, userHead } from '../parts.js';
import { ofEverything } from '../previews.js';

/** @typedef {import('../parts.js').Page} Page */

const SHOWN = 20;

/** @param {string[]} path */
export const title = ([user = '']) => `Forgotten of ${user}`;

/** @param {Page} page */
export async function open(page) {
  const [user = ''] = page.path;
  let shown = SHOWN;
  const load = async () => {
    /** @type {import('../actions.js').Receipt[]} */
    const receipts = (await get('erasures', { user }, page.signal)).erasures.reverse();
    const draw = () => page.draw(html`${userHead(user, 'forgotten')}
      <p class="summary"><b>${counted(receipts.length, 'receipt')}</b><span>No words of what was erased are kept: only digests, and where bytes may be until when.</span></p>
      ${receipts.length ? html`<ul class="receipts">${receipts.slice(0, shown).map((receipt) => html`<li class="card">${receiptView(receipt)}</li>`)}</ul>` : empty('Nothing was forgotten', html`<p>A receipt appears here when a memory, a session, a query or everything of ${user} is forgotten.</p>`)}
      ${receipts.length > shown ? html`<p class="buttons"><button type="button" @click=${() => { shown += SHOWN; draw(); }}>Show older receipts</button></p>` : ''}
      <p class="buttons">${action(page.session, 'forget', `Forget everything of ${user}`, async () => {
        if (await forget(user, { everything: true }, await ofEverything(user))) load();
      }, 'danger')}</p>`);
    draw();
  };
  await load();
}
