// Shows what a forget would erase: how many memories, and the first of them.

import { html, nothing } from './vendor/lit-html.js';
import { call } from './api.js';
import { count, counted } from './parts.js';

/** @typedef {import('./api.js').Memory} Memory */

const SHOWN = 5;
/** Matches among which those of a query are looked for: the most of one recall. */
const MATCHES = 100;
/** Cosine from which on a forget by query erases a memory, whatever its words. */
const MEANT_COSINE = 0.75;
/** Share of the words of the query from which on all of them are there. */
const ALL_WORDS = 0.999;

/** @param {string} user @param {string} session */
export const ofSession = (user, session) => shown(async () => {
  const { memories, total } = await call('list', { user, session, everything: true, limit: SHOWN });
  return html`<p><b>${memoriesOf(total)}</b> made in the session <b>${session}</b>:</p>${list(memories, total)}`;
});

/** @param {string} user */
export const ofEverything = (user) => shown(async () => {
  const { memories, total } = await call('list', { user, everything: true, limit: SHOWN });
  return html`<p><b>${memoriesOf(total)}</b>: all of ${user}, and those of the tenant that ${user} created.</p>${list(memories, total)}`;
});

/**
 * A forget by query erases the memories with all of its words, or nearly its meaning. A recall has both
 * measures of each match.
 *
 * @param {string} user
 * @param {string} query
 */
export const ofQuery = (user, query) => shown(async () => {
  const found = await call('recall', { user, query, limit: MATCHES, format: 'none', purpose: 'prompt', explain: true, include_archived: true, include_compressed: true });
  const meant = found.memories.filter((/** @type {Memory} */ { explain = {} }) => (explain.shared ?? 0) >= ALL_WORDS || (explain.cosine ?? 0) >= MEANT_COSINE);
  return html`<p>All memories with all words of <b>${query}</b>, or nearly its meaning. ${meant.length ? html`Among the best matches these are <b>${memoriesOf(meant.length)}</b>:` : 'None of the best matches is certain to be one.'}</p>
    ${list(meant, meant.length)}<p class="quiet">The turns around them are forgotten too, and memories made of them. The receipt says how many it was.</p>`;
});

const memoriesOf = (/** @type {number} */ total) => counted(total, 'memory', 'memories');

/** @param {Memory[]} memories @param {number} total */
const list = (memories, total) => html`<ul class="preview">${memories.slice(0, SHOWN).map(({ content }) => html`<li>${content}</li>`)}</ul>
  ${total > SHOWN ? html`<p class="quiet">and ${count(total - SHOWN)} more</p>` : nothing}`;

/** A forget is possible without its preview. @param {() => Promise<unknown>} view */
const shown = (view) => view().catch((error) => html`<p>What it would erase cannot be shown: ${error.message}</p>`);
