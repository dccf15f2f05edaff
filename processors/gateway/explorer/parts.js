// Pieces that several screens share: links, times, chips, tables, rows of memories, dialogs and the
// states empty, loading and failed.

import { html, nothing, render } from './vendor/lit-html.js';
import { Refused } from './api.js';
import { explained, term } from './words.js';

/**
 * @typedef {import('./api.js').Memory} Memory
 * @typedef {import('./api.js').Session} Session
 *
 * @typedef {object} Page What a screen gets.
 * @property {string[]} path Parts of the address behind the screen's own name.
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal Aborts when the screen is left.
 * @property {Session} session
 * @property {(view: unknown) => void} draw Shows the screen anew; ignored once it is left.
 */

/** @param {...string} path */
export const to = (...path) => `#/${path.map(encodeURIComponent).join('/')}`;

/**
 * @param {string} link
 * @param {Record<string, string | undefined>} query
 */
export function withQuery(link, query) {
  const given = Object.entries(query).filter(([, value]) => value);
  return given.length ? `${link}?${new URLSearchParams(/** @type {[string, string][]} */ (given))}` : link;
}

const number = new Intl.NumberFormat('en-GB');
/** @param {number} value */
export const count = (value) => number.format(value);
/**
 * @param {number} value
 * @param {string} one
 * @param {string} [many]
 */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

const DAY_MS = 86_400_000;
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });
const minute = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit' });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

/** @param {string | number} at */
export const dayOf = (at) => day.format(new Date(at));
/** @param {string | number} at */
export const minuteOf = (at) => minute.format(new Date(at));

/** @param {string | number} at */
export function ago(at) {
  const days = (new Date(at).getTime() - Date.now()) / DAY_MS;
  const size = Math.abs(days);
  if (size < 1 / 24) return relative.format(Math.round(days * 1440), 'minute');
  if (size < 1) return relative.format(Math.round(days * 24), 'hour');
  if (size < 60) return relative.format(Math.round(days), 'day');
  if (size < 700) return relative.format(Math.round(days / 30.44), 'month');
  return relative.format(Math.round(days / 365.25), 'year');
}

/**
 * @param {string} at
 * @param {'day' | 'minute' | 'clock' | 'ago'} [form]
 */
export function time(at, form = 'day') {
  // The service reads times that a browser does not, such as a leap second.
  if (Number.isNaN(Date.parse(at))) return html`<time>${at}</time>`;
  const shown = { day: dayOf, minute: minuteOf, ago, clock: (/** @type {string} */ it) => clock.format(new Date(it)) }[form](at);
  return html`<time datetime=${at} title=${`${minuteOf(at)} (${ago(at)})`}>${shown}</time>`;
}

/** @param {string | undefined} kind */
export const kindChip = (kind) => (kind ? html`<span class="kind" data-kind=${kind}>${kind}</span>` : nothing);
/**
 * The word of an outcome. `superseded` on the newer memory would be read the other way round.
 *
 * @param {string} outcome
 */
export const outcomeWord = (outcome) => (outcome === 'superseded' ? 'replaces' : outcome);
/** @param {string} outcome */
export const outcomeChip = (outcome) => html`<span class="outcome" data-outcome=${outcome}>${outcomeWord(outcome)}</span>`;

/**
 * The links and states of a memory besides active, in words. With several older ones the link leads to
 * the memory's own page, which lists them.
 *
 * @param {string} user
 * @param {Memory} memory
 */
export function marks(user, memory) {
  const link = (/** @type {string} */ words, /** @type {(string | undefined)[]} */ ids) => {
    const [id, ...others] = ids.filter((id) => id !== undefined);
    return id ? html`<a class="mark" href=${to('u', user, 'm', others.length ? memory.id : id)}>${words}${others.length ? ` ${others.length + 1} older ones` : ''}</a>` : nothing;
  };
  const { supersedes = [], superseded_by: newer, revises = [] } = memory;
  const found = [link(supersedes.length > 1 ? 'replaces' : 'replaces an older one', supersedes), link(revises.length > 1 ? 'probably changes' : 'probably changes an older one', revises),
    newer ? link('replaced by a newer one', [newer]) : memory.valid_to ? term('replaced', 'replaced', 'mark') : link('probably changed by a newer one', [memory.revised_by])];
  if (memory.conflicts_with?.length) found.push(term('in conflict', 'in conflict', 'mark'));
  if (memory.state === 'archived') found.push(term('archived', 'archived', 'mark'));
  if (memory.enabled === false) found.push(term('switched off', 'switched off', 'mark'));
  if (memory.compressed_by) found.push(term('in a summary', 'in a summary', 'mark'));
  if (memory.scope && memory.scope !== 'user') {
    const seen = memory.scope === 'tenant' ? 'whole tenant' : 'this session only';
    found.push(term(seen, seen, 'mark'));
  }
  if (memory.expires_at) found.push(explained(`expires ${ago(memory.expires_at)}`, `Erased by itself on ${minuteOf(memory.expires_at)}.`, 'mark'));
  return found.filter((each) => each !== nothing);
}

/**
 * A table; on a phone each row is a card whose cells have the names of their columns. The roles keep it
 * a table for screen readers there too.
 *
 * @typedef {{label: string, why?: string, number?: boolean, hidden?: boolean}} Column
 * @param {{look?: string, caption?: unknown, columns: Column[], rows: {cells: unknown[], look?: string, after?: unknown}[]}} parts
 */
export const table = ({ look = '', caption, columns, rows }) => html`<table class=${`list ${look}`} role="table">${caption ? html`<caption>${caption}</caption>` : nothing}
  <thead role="rowgroup"><tr role="row">${columns.map(({ label, why, number, hidden }) => html`<th scope="col" role="columnheader" class=${number ? 'number' : ''}>${hidden ? html`<span class="hidden">${label}</span>` : why ? explained(label, why) : label}</th>`)}</tr></thead>
  <tbody role="rowgroup">${rows.map(({ cells, look, after = nothing }) => html`<tr role="row" class=${look ?? ''}>${cells.map((cell, index) => {
    const { label = '', number, hidden } = columns[index] ?? {};
    const [column, shown] = [number ? 'number' : hidden ? 'chart' : '', html`<div>${cell}</div>`];
    return index ? html`<td role="cell" class=${column} data-label=${hidden ? nothing : label}>${shown}</td>` : html`<th scope="row" role="rowheader" class=${column} data-label=${label}>${shown}</th>`;
  })}</tr>${after}`)}</tbody></table>`;

const INVISIBLE = /(\u{1F3F4}[\u{E0030}-\u{E0039}\u{E0061}-\u{E007A}]{2,6}\u{E007F})|([\u{E0000}-\u{E007F}\u202A-\u202E\u2066-\u2069]+)/u;

/**
 * A text with its invisible characters marked: a model reads tag characters, and no person does. Flags
 * made of tags stay.
 *
 * @param {string} text
 */
export const inked = (text) => text.split(INVISIBLE).map((part, index) => index % 3 === 2 && part
  ? html`<mark title="invisible characters, which reach no prompt unless they are balanced">${[...part].map((letter) => `U+${/** @type {number} */ (letter.codePointAt(0)).toString(16).toUpperCase().padStart(4, '0')}`).join(' ')}</mark>` : part ?? '');

/**
 * One memory of a list, as a link to its page.
 *
 * @param {string} user
 * @param {Memory} memory
 * @param {unknown} [more]
 */
export const memoryRow = (user, memory, more = nothing) => html`
  <li class=${memory.valid_to || memory.state === 'archived' || memory.enabled === false ? 'memory past' : 'memory'}>
    <a class="words" href=${to('u', user, 'm', memory.id)}>${inked(memory.content)}</a>
    <span class="about">${kindChip(memory.kind)}${marks(user, memory)}${memory.session ? html`<span class="session">${memory.session}</span>` : nothing}
      ${time(memory.created_at)}</span>
    ${more}
  </li>`;

/**
 * @param {string} title
 * @param {unknown} [rest]
 */
export const empty = (title, rest = nothing) => html`<div class="state"><p class="title">${title}</p>${rest}</div>`;

export const loading = (what = 'Loading') => html`<div class="state" role="status"><span class="dots" aria-hidden="true"></span>${what}…</div>`;

/**
 * Says who is at fault and what to do.
 *
 * @param {unknown} error
 * @param {(() => void)} [again]
 */
export function failed(error, again) {
  const refused = error instanceof Refused ? error : new Refused('page', error instanceof Error ? error.message : String(error));
  const fault = refused.code === 'page' ? 'This page has a fault' : refused.fault;
  const cure = refused.code === 'page' ? 'Please report it with the words above.' : refused.cure;
  return html`<div class="state failed" role="alert"><p class="title">${fault}</p><p>${refused.message}</p><p class="quiet">${cure}</p>
    ${again ? html`<button type="button" @click=${again}>Try again</button>` : nothing}</div>`;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let noteEnds;
/**
 * Shows a line that goes by itself; screen readers speak it.
 *
 * @param {string} text
 * @param {'good' | 'bad'} [tone]
 */
export function note(text, tone = 'good') {
  const place = /** @type {HTMLElement} */ (document.getElementById('note'));
  render(html`<p class=${tone}>${text}</p>`, place);
  clearTimeout(noteEnds);
  noteEnds = setTimeout(() => render(nothing, place), tone === 'bad' ? 12_000 : 5_000);
}

/**
 * Runs an action and says how it ended. Returns whether it was done.
 *
 * @param {() => Promise<string>} action
 */
export async function act(action) {
  try {
    note(await action());
    return true;
  } catch (error) {
    note(error instanceof Refused ? `${error.fault}: ${error.message} ${error.cure}` : String(error), 'bad');
    return false;
  }
}

/** @param {Session} session @param {string} right */
export const may = (session, right) => session.rights.includes(right);

/**
 * A button of an action; there is none where the key lacks the right.
 *
 * @param {Session} session
 * @param {string} right
 * @param {string} words
 * @param {() => void} click
 * @param {string} [look]
 */
export const action = (session, right, words, click, look = '') => (may(session, right) ? html`<button type="button" class=${look} @click=${click}>${words}</button>` : nothing);

/**
 * Text to be copied. Without a clipboard, as on a page that came by http from elsewhere, the text is
 * selected instead.
 *
 * @param {string} text
 * @param {string} what
 */
export function copied(text, what) {
  const copy = async (/** @type {MouseEvent} */ event) => {
    const shown = /** @type {HTMLElement} */ (event.currentTarget).previousElementSibling;
    try {
      await navigator.clipboard.writeText(text);
      note('Copied.');
    } catch {
      if (shown) getSelection()?.selectAllChildren(shown);
      note('The text is selected: copy it with the keyboard or by a long touch.');
    }
  };
  return html`<div class="copied"><pre tabindex="0" aria-label=${what}>${text}</pre><button type="button" aria-label=${`Copy ${what}`} @click=${copy}>Copy</button></div>`;
}

/**
 * Opens a dialog. `view` gets `done`, which closes it with an answer; Escape and another address answer
 * nothing.
 *
 * @template T
 * @param {string} title
 * @param {(done: (answer?: T) => void) => unknown} view
 * @returns {Promise<T | undefined>}
 */
export function dialog(title, view) {
  return new Promise((answered) => {
    const element = document.createElement('dialog');
    element.setAttribute('aria-labelledby', 'dialog-title');
    /** @type {T | undefined} */
    let answer;
    const done = (/** @type {T | undefined} */ given) => {
      answer = given;
      element.close();
    };
    const left = () => element.close();
    addEventListener('hashchange', left);
    element.addEventListener('close', () => {
      removeEventListener('hashchange', left);
      element.remove();
      answered(answer);
    });
    render(html`<h2 id="dialog-title">${title}</h2>${view(done)}`, element);
    document.body.append(element);
    element.showModal();
  });
}

/** A double click on what opened the question does not answer it. */
const READ_MS = 500;

/**
 * Asks before something that cannot be undone.
 *
 * @param {string} title
 * @param {unknown} body
 * @param {string} words
 * @param {string} [no]
 */
export function confirmed(title, body, words, no = 'Keep it') {
  const answered = dialog(title, (/** @type {(answer?: boolean) => void} */ done) => html`
    <div class="prose">${body}</div>
    <p class="buttons"><button type="button" autofocus @click=${() => done()}>${no}</button>
    <button type="button" class="danger" id="sure" disabled @click=${() => done(true)}>${words}</button></p>`);
  setTimeout(() => document.getElementById('sure')?.removeAttribute('disabled'), READ_MS);
  return answered;
}

/**
 * @param {string} user
 * @param {string} here
 */
export const userHead = (user, here) => html`
  <p class="crumbs"><a href="#/users">Users</a></p>
  <h1>${user}</h1>
  <nav class="tabs" aria-label=${`Screens of ${user}`}>${[
    ['Memories', ''], ['Timeline', 'timeline'], ['Ask', 'ask'], ['As of', 'then'], ['Changes', 'changes'], ['Decisions', 'decisions'], ['Forgotten', 'forgotten'], ['Export', 'export'],
  ].map(([words, name]) => html`<a href=${name ? to('u', user, name) : to('u', user)} aria-current=${here === name ? 'page' : nothing}>${words}</a>`)}</nav>`;

/** @param {SubmitEvent} event @returns {FormData} */
export function submitted(event) {
  event.preventDefault();
  return new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
}

/** @param {FormData} form @param {string} name */
export const field = (form, name) => String(form.get(name) ?? '').trim();
