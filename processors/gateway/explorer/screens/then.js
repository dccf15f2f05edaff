// What was known at a time: a scrubber over the life of the user, and questions asked as of then.

import { html, nothing } from '../vendor/lit-html.js';
import { call } from '../api.js';
import { density } from '../charts.js';
import { lifetime } from '../lifetime.js';
import { counted, dayOf, empty, failed, field, loading, memoryRow, submitted, time, to, userHead, withQuery } from '../parts.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Memory} Memory
 */

const LIMIT = 50;
const DAY_MS = 86_400_000;
/** A pause in the scrubbing, after which the service is asked. */
const PAUSE_MS = 120;
/** Buttons of months; a longer life gets years. */
const MONTHS_MAX = 18;

/** @param {string[]} path */
export const title = ([user = '']) => `What was known of ${user}`;

/** @param {Page} page */
export async function open(page) {
  const [user = ''] = page.path;
  const stats = await call('stats', { user }, page.signal);
  if (!stats.oldest) {
    page.draw(html`${userHead(user, 'then')}${empty(`Nothing is remembered of ${user}`, html`<p><a href=${to('u', user, 'forgotten')}>What was forgotten</a></p>`)}`);
    return;
  }
  const first = Date.parse(stats.oldest);
  const last = Date.now();
  const asked = Date.parse(page.query.get('at') ?? '');
  let at = Number.isNaN(asked) ? Math.round((first + last) / 2) : Math.min(last, Math.max(first, asked));
  let question = page.query.get('q') ?? '';
  /** @type {Memory[] | undefined} */
  let known;
  /** @type {Memory[] | undefined} */
  let answers;
  let isMore = false;
  /** @type {import('../lifetime.js').Lifetime | undefined} */
  let life;
  /** @type {unknown} */
  let fault;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  let asking = new AbortController();
  page.signal.addEventListener('abort', () => asking.abort());

  const link = (/** @type {number} */ time) => withQuery(to('u', user, 'then'), { at: new Date(time).toISOString(), q: question });
  const load = async () => {
    asking.abort();
    const { signal } = (asking = new AbortController());
    const as_of = new Date(at).toISOString();
    try {
      const [listed, recalled] = await Promise.all([
        held(user, at, signal),
        question ? call('recall', { user, query: question, as_of, format: 'none', purpose: 'prompt' }, signal) : undefined,
      ]);
      [known, isMore, answers, fault] = [listed.memories, listed.isMore, recalled?.memories, undefined];
    } catch (error) {
      if (signal.aborted) return;
      fault = error;
    }
    draw();
  };
  const scrub = (/** @type {Event} */ event) => {
    at = Number(/** @type {HTMLInputElement} */ (event.currentTarget).value);
    draw();
    clearTimeout(pause);
    pause = setTimeout(() => {
      // Not by the hash: the screen would be opened anew under the hand.
      history.replaceState(null, '', link(at));
      load();
    }, PAUSE_MS);
  };
  const ask = (/** @type {SubmitEvent} */ event) => {
    question = field(submitted(event), 'q');
    history.replaceState(null, '', link(at));
    load();
  };

  const draw = () => page.draw(html`${userHead(user, 'then')}
    <section class="scrub card" aria-label="Time">
      <p class="at">As of <b>${dayOf(at)}</b></p>
      ${density(life, (slice) => link((slice.from + slice.to) / 2), at)}
      <input type="range" aria-label="Time" aria-valuetext=${dayOf(at)} min=${first} max=${last} step=${Math.max(60_000, Math.min(DAY_MS, (last - first) / 500))} .value=${String(at)} @input=${scrub}>
      <nav class="choices" aria-label="The end of a month"><span class="quiet">End of</span>${steps(first, last).map(([words, time]) => html`<a href=${link(time)} aria-current=${Math.abs(time - at) < DAY_MS ? 'true' : nothing}>${words}</a>`)}<a href=${link(last)}>now</a></nav>
      <form class="search" role="search" @submit=${ask}><label class="wide"><span class="hidden">Question as of then</span><input type="search" name="q" .value=${question} placeholder="Ask as of then" maxlength="4000"></label><button>Ask</button></form>
    </section>
    ${fault ? failed(fault, load) : known === undefined ? loading('Going back in time') : html`
      ${answers ? html`<section><h2>The answer then</h2>${answers.length ? html`<ol class="memories">${answers.map((memory) => memoryRow(user, memory, since(memory)))}</ol>` : empty('Nothing that was known then answers this')}</section>` : nothing}
      <section><h2>Known then</h2><p class="quiet" role="status">${isMore ? `The newest ${known.length}` : counted(known.length, 'memory', 'memories')}, in the words of then.</p>
      ${known.length ? html`<ul class="memories">${known.map((memory) => memoryRow(user, memory, since(memory)))}</ul>` : empty('Nothing was known yet', html`<p>Move the time forward.</p>`)}</section>`}`);

  /** What happened to a memory after the chosen time. @param {Memory} memory */
  const since = (memory) => html`<span class="since">${memory.valid_to ? html`replaced since, ${time(memory.valid_to)}` : memory.revised_by ? 'probably changed since' : memory.state === 'archived' ? 'archived since' : nothing}</span>`;

  draw();
  await load();
  for await (const found of lifetime(user, stats, page.signal)) {
    life = found;
    draw();
  }
}

/**
 * The newest memories that held at a time, in the words that they had then.
 *
 * @param {string} user
 * @param {number} at
 * @param {AbortSignal} signal
 * @returns {Promise<{memories: Memory[], isMore: boolean}>}
 */
async function held(user, at, signal) {
  /** @type {Memory[]} */
  const memories = [];
  let after;
  do {
    const listed = await call('list', { user, everything: true, limit: LIMIT, as_of: new Date(at).toISOString(), after }, signal);
    memories.push(...listed.memories.filter((/** @type {Memory} */ memory) => !memory.valid_to || Date.parse(memory.valid_to) > at));
    after = listed.after;
  } while (after && memories.length < LIMIT);
  return { memories: memories.slice(0, LIMIT), isMore: Boolean(after) || memories.length > LIMIT };
}

/**
 * The ends of the months of a life, or of its years.
 *
 * @param {number} first
 * @param {number} last
 * @returns {[string, number][]}
 */
function steps(first, last) {
  const months = [];
  const start = new Date(first);
  for (let month = 0; ; month += 1) {
    const end = Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + month + 1, 1) - 1;
    if (end >= last) break;
    months.push(end);
  }
  const few = months.length <= MONTHS_MAX ? months : months.filter((end) => new Date(end).getUTCMonth() === 11);
  const name = new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', year: 'numeric', ...(few === months && { month: 'short' }) });
  return few.map((end) => [name.format(end), end]);
}
