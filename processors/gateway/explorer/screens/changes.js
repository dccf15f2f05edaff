// What changed or contradicts: pairs to confirm or to undo, and duplicates, previewed before they go.

import { html, nothing } from '../vendor/lit-html.js';
import { Refused, call } from '../api.js';
import { feedback, forget, holdsStill } from '../actions.js';
import { fixed } from '../charts.js';
import { act, action, count, counted, empty, inked, kindChip, loading, time, to, userHead } from '../parts.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Memory} Memory
 * @typedef {{how: 'replaces' | 'probably changes' | 'contradicts', newer: Memory, older: Memory}} Change
 * @typedef {{newer: Memory, older: Memory, cosine: number}} Pair
 */

const PAGE = 100;
/** Pages that are read at once; each costs the service a list. */
const PAGES = 3;
/** Memories that the service compares with all others at once, each in about a millisecond. */
const COMPARED = 100;

/** @param {string[]} path */
export const title = ([user = '']) => `Changes of ${user}`;

/** @param {Page} page */
export async function open(page) {
  const [user = ''] = page.path;
  /** @type {Map<string, Memory>} */
  const known = new Map();
  /** Memories of which the reply had the counts too. @type {Map<string, Memory>} */
  const whole = new Map();
  /** @type {string | undefined} */
  let after;
  let isLoaded = false;
  /** @type {Pair[]} */
  let pairs = [];
  let compared = 0;
  /** @type {string | undefined} */
  let pairsAfter;
  let level = 1;

  const read = async () => {
    for (let pages = 0; pages < PAGES; pages += 1) {
      const listed = await call('list', { user, everything: true, limit: PAGE, after }, page.signal);
      for (const memory of listed.memories) known.set(memory.id, memory);
      after = listed.after;
      if (!after) break;
    }
    isLoaded = true;
    const linked = new Set([...known.values()].flatMap((memory) => [...(memory.supersedes ?? []), ...(memory.revises ?? []), ...(memory.conflicts_with ?? [])]));
    for (const { newer } of changes()) linked.add(newer.id);
    await Promise.all([...linked].filter((id) => !whole.has(id)).map((id) => fetchOne(id)));
    draw();
  };
  const compare = async () => {
    const found = await call('duplicates', { user, limit: COMPARED, after: pairsAfter }, page.signal);
    pairs = [...pairs, ...found.pairs];
    compared += found.compared;
    ({ after: pairsAfter, level } = found);
    draw();
  };
  const fetchOne = async (/** @type {string} */ id) => {
    try {
      const { memory } = await call('get', { user, memory: id }, page.signal);
      known.set(id, memory);
      whole.set(id, memory);
    } catch (error) {
      if (!(error instanceof Refused && error.code === 'not_found')) throw error;
      known.delete(id);
    }
  };
  /** @returns {Change[]} */
  const changes = () => {
    /** @type {Change[]} */
    const found = [];
    const add = (/** @type {Change['how']} */ how, /** @type {Memory} */ newer, /** @type {string[] | undefined} */ ids) => {
      for (const id of ids ?? []) {
        const older = known.get(id);
        // Both memories of a conflict name each other.
        if (older && (how !== 'contradicts' || older.created_at < newer.created_at || (older.created_at === newer.created_at && older.id < newer.id))) found.push({ how, newer, older });
      }
    };
    for (const memory of known.values()) {
      add('replaces', memory, memory.supersedes);
      add('probably changes', memory, memory.revises);
      add('contradicts', memory, memory.conflicts_with);
    }
    return found.sort((a, b) => b.newer.created_at.localeCompare(a.newer.created_at));
  };
  const again = async (/** @type {Change} */ { newer, older }) => {
    await Promise.all([fetchOne(newer.id), fetchOne(older.id)]);
    draw();
  };

  const draw = () => {
    const all = changes();
    const isSettled = (/** @type {Change} */ { how, newer, older }) => Boolean(whole.get(newer.id)?.confirmed || (how === 'contradicts' && whole.get(older.id)?.confirmed));
    const open = all.filter((each) => !isSettled(each));
    const settled = all.filter(isSettled);
    page.draw(html`${userHead(user, 'changes')}
      ${!isLoaded ? loading('Looking for changes') : html`
      <section><h2>To look at</h2>${open.length ? html`<p class="quiet">${counted(open.length, 'pair')} of memories, of which the newer changes or contradicts the older. Nothing is lost: what is replaced can be asked for as of its time.</p><ul class="changes">${open.map(change)}</ul>`
        : empty('No change waits for you')}</section>
      ${compared ? html`<section><h2>Duplicates</h2><p class="quiet">${pairs.length ? counted(pairs.length, 'pair') : 'No pair'} among the newest ${counted(compared, 'memory', 'memories')}, each compared with all others: of one speaker and kind, with a cosine from ${fixed(level)} on, at which the profile merges repetitions. Nothing goes before you have seen it.</p>
        ${pairs.length ? html`<ul class="changes">${pairs.map(double)}</ul>` : nothing}
        ${pairsAfter ? html`<p class="buttons"><button type="button" @click=${() => act(async () => { await compare(); return 'Compared more.'; })}>Compare older memories</button></p>` : nothing}</section>` : nothing}
      ${settled.length ? html`<section><h2>Confirmed</h2><ul class="changes">${settled.map(change)}</ul></section>` : nothing}
      ${after ? html`<p class="buttons"><span class="quiet">${count(known.size)} memories were looked at.</span><button type="button" @click=${() => act(async () => { await read(); return 'Looked further back.'; })}>Look further back</button></p>` : nothing}`}`);
  };

  const side = (/** @type {string} */ words, /** @type {Memory} */ memory) => html`<div class="side"><p class="about">${words} ${time(memory.created_at)} ${kindChip(memory.kind)}</p>
    <a class="words" href=${to('u', user, 'm', memory.id)}>${inked(memory.content)}</a></div>`;
  const change = (/** @type {Change} */ found) => {
    const { how, newer, older } = found;
    return html`<li><p class="how" data-how=${how}>${how}</p>${side('newer', newer)}${side('older', older)}
      <span class="actions">${action(page.session, 'write', 'Confirm', async () => { if (await feedback(user, newer, 'confirmed')) again(found); })}
      ${how === 'contradicts' ? action(page.session, 'write', 'The older is right', async () => { if (await feedback(user, newer, 'wrong') && await feedback(user, older, 'confirmed')) again(found); })
        : action(page.session, 'write', 'Undo', async () => { if (await holdsStill(user, older)) again(found); })}</span></li>`;
  };
  const double = (/** @type {Pair} */ { newer, older, cosine }) => html`<li><p class="how">probably the same <span class="number">${fixed(cosine)}</span></p>${side('newer', newer)}${side('older', older)}
    <span class="actions">${[['Forget the newer', newer, older], ['Forget the older', older, newer]].map(([words, goes, stays]) =>
      action(page.session, 'forget', /** @type {string} */ (words), async () => {
        const [one, other] = /** @type {Memory[]} */ ([goes, stays]);
        if (one && other && await forget(user, { memory: one.id }, html`<p>This one goes:</p><blockquote>${one.content}</blockquote><p>This one stays:</p><blockquote>${other.content}</blockquote>`)) {
          known.delete(one.id);
          pairs = pairs.filter((pair) => pair.newer.id !== one.id && pair.older.id !== one.id);
          draw();
        }
      }))}</span></li>`;

  draw();
  await read();
  await compare();
}
