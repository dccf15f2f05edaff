// The memories of a user as a list or as a timeline, with filters, search and the actions of each.

import { html, nothing } from '../vendor/lit-html.js';
import { call } from '../api.js';
import { edit, feedback, forget, forgetEach } from '../actions.js';
import { density, spans } from '../charts.js';
import { lifetime } from '../lifetime.js';
import { ofQuery, ofSession } from '../previews.js';
import { action, count, counted, dayOf, empty, failed, field, loading, may, memoryRow, submitted, to, userHead, withQuery } from '../parts.js';
import { term } from '../words.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Memory} Memory
 */

const LIMIT = 50;
/** The most of one list. An order that the service does not have is made among so many. */
const SORTED = 100;

/** @param {string[]} path */
export const title = ([user = '', view = '']) => `${view ? 'Timeline' : 'Memories'} of ${user}`;

/** @param {Page} page */
export async function open(page) {
  const [user = '', view = ''] = page.path;
  const asked = Object.fromEntries(page.query);
  const link = (/** @type {Record<string, string | undefined>} */ change) => withQuery(view ? to('u', user, view) : to('u', user), { ...asked, skip: undefined, ...change });
  const skip = Number(asked.skip ?? 0) || 0;
  /** @type {Memory[] | undefined} */
  let memories;
  /** @type {any} */
  let stats;
  let isMore = false;
  let total = 0;
  /**
   * Memories that are marked to be forgotten. The marks end with the page: none is out of sight.
   *
   * @type {Set<string> | undefined}
   */
  let chosen;
  const size = sizeOf(asked);
  /** @type {import('../lifetime.js').Lifetime | undefined} */
  let life;
  /** @type {unknown} */
  let fault;
  const isFiltered = Boolean(asked.find || asked.kind || asked.session || asked.from || asked.to || asked.label);

  let loads = 0;
  const load = async () => {
    loads += 1;
    const mine = loads;
    const found = asked.find ? await search(user, asked, page.signal) : await list(user, asked, skip, page.signal);
    if (mine !== loads) return;
    ({ memories, isMore, total } = found);
    chosen = undefined;
    draw();
  };
  const again = () => load().catch((error) => {
    fault = error;
    draw();
  });
  const change = (/** @type {SubmitEvent} */ event) => {
    const form = submitted(event);
    location.hash = link(Object.fromEntries(['find', 'kind', 'session', 'from', 'to', 'label', 'all', 'sort'].map((name) => [name, field(form, name)])));
  };
  const kinds = () => Object.keys(stats?.memories.by_kind ?? {});
  const mark = (/** @type {Memory} */ { id }) => {
    if (!chosen?.delete(id)) chosen?.add(id);
    draw();
  };
  const buttons = (/** @type {Memory} */ memory) => chosen ? html`<label class="choose"><input type="checkbox" .checked=${chosen.has(memory.id)} @change=${() => mark(memory)}><span>Forget<span class="hidden"> ${memory.content.slice(0, 80)}</span></span></label>` : html`<span class="actions">
    ${action(page.session, 'write', 'Confirm', async () => { if (await feedback(user, memory, 'confirmed')) again(); }, 'plain')}
    ${action(page.session, 'write', 'Edit', async () => { if (await edit(user, memory, kinds())) again(); }, 'plain')}
    ${action(page.session, 'forget', 'Forget', async () => { if (await forget(user, { memory: memory.id }, html`<blockquote>${memory.content}</blockquote>`)) again(); }, 'plain danger')}</span>`;

  const draw = () => page.draw(html`${userHead(user, view)}
    ${stats ? summary(stats) : nothing}
    ${density(life, (slice) => link({ from: new Date(slice.from).toISOString().slice(0, 10), to: new Date(slice.to + 86_400_000).toISOString().slice(0, 10) }))}
    <form class="filters" role="search" aria-label="Filter the memories" @submit=${change}>
      <label>Find<input type="search" name="find" .value=${asked.find ?? ''} placeholder="by meaning and words" maxlength="1000"></label>
      <button>Show</button>${isFiltered || asked.all || asked.sort ? html`<a href=${withQuery(link({}).split('?')[0] ?? '', {})}>Clear</a>` : nothing}
      <details ?open=${isFiltered || Boolean(asked.all || asked.sort)}><summary>Filters and order</summary><div class="row">
      <label>Kind<select name="kind"><option value="">all</option>${kinds().map((kind) => html`<option value=${kind} ?selected=${kind === asked.kind}>${kind}</option>`)}</select></label>
      <label>Sort<select name="sort">${Object.entries(SORTS).map(([name, words]) => html`<option value=${name} ?selected=${name === (asked.sort ?? '')}>${name || !asked.find ? words : 'best match first'}</option>`)}</select></label>
      <label>Session<input name="session" .value=${asked.session ?? ''} maxlength="128" size="10"></label>
      <label>From<input type="date" name="from" .value=${asked.from ?? ''}></label>
      <label>Until<input type="date" name="to" .value=${asked.to ?? ''}></label>
      <label>Label<input name="label" .value=${asked.label ?? ''} placeholder="name=value" pattern="[^=]+=.*" title="name=value of the metadata" size="12"></label>
      <label class="check"><input type="checkbox" name="all" value="no" ?checked=${asked.all === 'no'}>only what counts now</label></div></details>
    </form>
    ${fault ? failed(fault, again) : memories === undefined ? loading('Reading the memories') : body(memories)}`);

  const body = (/** @type {Memory[]} */ shown) => {
    if (!shown.length) {
      return isFiltered ? empty('No memory fits these filters', html`<p><a href=${to('u', user)}>Show all</a></p>`)
        : empty(`Nothing is remembered of ${user}`, html`<p><a href="#/start">Add a memory</a>, if nothing was ever said. Else nothing was kept, or it was forgotten: see <a href=${to('u', user, 'decisions')}>decisions</a> and <a href=${to('u', user, 'forgotten')}>what was forgotten</a>.</p>`);
    }
    const some = shown.filter(({ id }) => chosen?.has(id));
    return html`<p class="quiet">${order(asked, shown.length, skip || isMore ? total : 0)} ${asked.find ? html`<a href=${withQuery(to('u', user, 'ask'), { q: asked.find })}>See why each was found</a>` : nothing}</p>
      ${view ? spans(user, shown) : html`<ul class="memories">${shown.map((memory) => memoryRow(user, memory, buttons(memory)))}</ul>`}
      ${view || !may(page.session, 'forget') ? nothing : chosen ? html`<div class="chosen" role="group" aria-label="Several memories"><span role="status">${some.length} of ${shown.length} on this page marked</span>
        <button type="button" class="danger" ?disabled=${!some.length} @click=${async () => { if (await forgetEach(user, some)) again(); }}>Forget ${counted(some.length, 'memory', 'memories')}</button>
        <button type="button" @click=${() => { chosen = undefined; draw(); }}>Cancel</button></div>`
        : html`<p class="buttons"><button type="button" class="plain danger" @click=${() => { chosen = new Set(); draw(); }}>Forget several…</button></p>`}
      ${skip || isMore ? html`<nav class="pages" aria-label="Pages">
        ${skip ? html`<a href=${link({ skip: String(Math.max(0, skip - size)) })} rel="prev">← ${asked.sort === 'oldest' ? 'Older' : 'Newer'}</a>` : html`<span></span>`}
        <span>${count(skip + 1)} to ${count(Math.min(total, skip + size))} of ${count(total)}</span>
        ${isMore ? html`<a href=${link({ skip: String(skip + size) })} rel="next">${asked.sort === 'oldest' ? 'Newer' : 'Older'} →</a>` : html`<span></span>`}</nav>` : nothing}
      ${asked.session ? html`<p class="buttons">${action(page.session, 'forget', 'Forget this whole session', async () => {
        if (await forget(user, { session: asked.session ?? '' }, await ofSession(user, asked.session ?? ''))) again();
      }, 'danger')}</p>` : nothing}
      ${asked.find ? html`<p class="buttons">${action(page.session, 'forget', 'Forget what this query finds', async () => {
        if (await forget(user, { query: asked.find ?? '' }, await ofQuery(user, asked.find ?? ''))) again();
      }, 'danger')}</p>` : nothing}`;
  };

  draw();
  const overview = async () => {
    stats = await call('stats', { user }, page.signal);
    draw();
    if (!isFiltered && !skip) {
      for await (const found of lifetime(user, stats, page.signal)) {
        life = found;
        draw();
      }
    }
  };
  await load();
  await overview().catch((error) => {
    if (!page.signal.aborted) throw error;
  });
}

/** @param {Record<string, string>} asked */
function where(asked) {
  const between = { ...(asked.from && { $gte: `${asked.from}T00:00:00Z` }), ...(asked.to && { $lt: `${asked.to}T00:00:00Z` }) };
  const [name, ...value] = (asked.label ?? '').split('=');
  return { ...(Object.keys(between).length && { $created_at: between }), ...(name && { [name]: value.join('=') }) };
}

const SORTS = /** @type {Record<string, string>} */ ({ '': 'newest first', oldest: 'oldest first', importance: 'most important first', kind: 'by kind' });

/** @param {Record<string, string>} asked */
const sizeOf = ({ sort }) => (sort === 'importance' || sort === 'kind' ? SORTED : LIMIT);

/**
 * Says what is in which order: the service lists by time, so other orders are those of a page.
 *
 * @param {Record<string, string>} asked
 * @param {number} shown
 * @param {number} total 0 if the page has all
 */
function order({ sort = '', find }, shown, total) {
  const words = SORTS[sort] && (sort || !find) ? SORTS[sort] : 'best match first';
  const among = find ? `, among the best ${counted(shown, 'match', 'matches')}` : !total ? '' : sort === 'importance' || sort === 'kind' ? `, among the ${count(shown)} of this page only: the pages are by time` : `, of ${count(total)}`;
  return `${words[0]?.toUpperCase()}${words.slice(1)}${among}.`;
}

/** @param {Memory[]} memories newest or best first @param {string} [sort] */
function sorted(memories, sort) {
  const by = { importance: (/** @type {Memory} */ a, /** @type {Memory} */ b) => b.importance - a.importance, kind: (/** @type {Memory} */ a, /** @type {Memory} */ b) => a.kind.localeCompare(b.kind),
    oldest: (/** @type {Memory} */ a, /** @type {Memory} */ b) => a.created_at.localeCompare(b.created_at) }[sort ?? ''];
  return by ? memories.toSorted(by) : memories;
}

/**
 * A page in the order of time; its memories in the order that is asked for.
 *
 * @param {string} user
 * @param {Record<string, string>} asked
 * @param {number} skip
 * @param {AbortSignal} signal
 */
async function list(user, asked, skip, signal) {
  const part = (/** @type {number} */ offset, /** @type {number} */ limit) => call('list', {
    user, limit, offset, where: where(asked), ...(asked.all !== 'no' && { everything: true }),
    ...(asked.kind && { kinds: [asked.kind] }), ...(asked.session && { session: asked.session }),
  }, signal);
  const size = sizeOf(asked);
  let [offset, end] = [skip, skip + size];
  if (asked.sort === 'oldest') {
    const { total } = await part(0, 1);
    [offset, end] = [Math.max(0, total - skip - size), Math.max(0, total - skip)];
  }
  /** @type {Memory[]} */
  let memories = [];
  let total = 0;
  // One answer has 1 MiB at most, so of long memories less than a page.
  while (offset + memories.length < end) {
    const found = await part(offset + memories.length, end - offset - memories.length);
    memories.push(...found.memories);
    ({ total } = found);
    if (!found.after || !found.memories.length) break;
  }
  if (asked.all === 'no') memories = memories.filter((memory) => !memory.valid_to && memory.enabled !== false);
  return { memories: sorted(memories, asked.sort), isMore: asked.sort === 'oldest' ? offset > 0 : end < total, total };
}

/**
 * @param {string} user
 * @param {Record<string, string>} asked
 * @param {AbortSignal} signal
 */
async function search(user, asked, signal) {
  const found = await call('recall', {
    user, query: asked.find, limit: LIMIT, format: 'none', purpose: 'prompt', where: { ...where(asked), ...(asked.session && { $session: asked.session }) },
    include_archived: asked.all !== 'no', include_compressed: true, ...(asked.kind && { kinds: [asked.kind] }), ...(asked.session && { session: asked.session }),
  }, signal);
  return { memories: sorted(found.memories, asked.sort), isMore: false, total: found.memories.length };
}

/** @param {any} stats */
const summary = ({ memories, oldest, decisions }) => html`<p class="summary">
  <b>${counted(memories.total, 'memory', 'memories')}</b>
  ${Object.entries(memories.by_state).filter(([state]) => state !== 'active').map(([state, many]) => html`<span>${count(/** @type {number} */ (many))} ${term(state === 'superseded' ? 'replaced' : state)}</span>`)}
  ${oldest ? html`<span>since ${dayOf(oldest)}</span>` : nothing}
  ${decisions.dropped ? html`<span>${counted(decisions.dropped, 'statement')} dropped</span>` : nothing}
</p>`;
