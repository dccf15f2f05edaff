// The memories of a user as a list or as a timeline, with filters, search and the actions of each.

import { html, nothing } from '../vendor/lit-html.js';
import { call } from '../api.js';
import { edit, feedback, forget } from '../actions.js';
import { density, spans } from '../charts.js';
import { lifetime } from '../lifetime.js';
import { ofQuery, ofSession } from '../previews.js';
import { action, count, counted, dayOf, empty, failed, field, loading, memoryRow, submitted, to, userHead, withQuery } from '../parts.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Memory} Memory
 */

const LIMIT = 50;

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
  /** @type {import('../lifetime.js').Lifetime | undefined} */
  let life;
  /** @type {unknown} */
  let fault;
  const isFiltered = Boolean(asked.find || asked.kind || asked.session || asked.from || asked.to || asked.label);

  const load = async () => {
    const found = asked.find ? await search(user, asked, page.signal) : await list(user, asked, skip, page.signal);
    memories = found.memories;
    isMore = found.isMore;
    draw();
  };
  const again = () => load().catch((error) => {
    fault = error;
    draw();
  });
  const change = (/** @type {SubmitEvent} */ event) => {
    const form = submitted(event);
    location.hash = link(Object.fromEntries(['find', 'kind', 'session', 'from', 'to', 'label', 'all'].map((name) => [name, field(form, name)])));
  };
  const kinds = () => Object.keys(stats?.memories.by_kind ?? {});
  const buttons = (/** @type {Memory} */ memory) => html`<span class="actions">
    ${action(page.session, 'write', 'Confirm', async () => { if (await feedback(user, memory, 'confirmed')) again(); }, 'plain')}
    ${action(page.session, 'write', 'Edit', async () => { if (await edit(user, memory, kinds())) again(); }, 'plain')}
    ${action(page.session, 'forget', 'Forget', async () => { if (await forget(user, { memory: memory.id }, html`<blockquote>${memory.content}</blockquote>`)) again(); }, 'plain danger')}</span>`;

  const draw = () => page.draw(html`${userHead(user, view)}
    ${stats ? summary(stats) : nothing}
    ${density(life, (slice) => link({ from: new Date(slice.from).toISOString().slice(0, 10), to: new Date(slice.to + 86_400_000).toISOString().slice(0, 10) }))}
    <form class="filters" role="search" aria-label="Filter the memories" @submit=${change}>
      <label>Find<input type="search" name="find" .value=${asked.find ?? ''} placeholder="by meaning and words" maxlength="1000"></label>
      <button>Show</button>${isFiltered || asked.all ? html`<a href=${withQuery(link({}).split('?')[0] ?? '', {})}>Clear</a>` : nothing}
      <details ?open=${isFiltered || Boolean(asked.all)}><summary>Filters</summary><div class="row">
      <label>Kind<select name="kind"><option value="">all</option>${kinds().map((kind) => html`<option value=${kind} ?selected=${kind === asked.kind}>${kind}</option>`)}</select></label>
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
        : empty(`Nothing is remembered of ${user}`, html`<p>Either nothing was kept, or it was forgotten: see <a href=${to('u', user, 'decisions')}>decisions</a> and <a href=${to('u', user, 'forgotten')}>what was forgotten</a>.</p>`);
    }
    return html`${asked.find ? html`<p class="quiet">Best match first. <a href=${withQuery(to('u', user, 'ask'), { q: asked.find })}>See why each was found</a></p>` : nothing}
      ${view ? spans(user, shown) : html`<ul class="memories">${shown.map((memory) => memoryRow(user, memory, buttons(memory)))}</ul>`}
      ${skip || isMore ? html`<nav class="pages" aria-label="Pages">
        ${skip ? html`<a href=${link({ skip: String(Math.max(0, skip - LIMIT)) })} rel="prev">← Newer</a>` : html`<span></span>`}
        <span>${count(skip + 1)} to ${count(skip + shown.length)}${isFiltered || !stats ? '' : ` of ${count(stats.memories.total)}`}</span>
        ${isMore ? html`<a href=${link({ skip: String(skip + LIMIT) })} rel="next">Older →</a>` : html`<span></span>`}</nav>` : nothing}
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

/**
 * @param {string} user
 * @param {Record<string, string>} asked
 * @param {number} offset
 * @param {AbortSignal} signal
 */
async function list(user, asked, offset, signal) {
  const found = await call('list', {
    user, limit: LIMIT, offset, where: where(asked), ...(asked.all !== 'no' && { everything: true }),
    ...(asked.kind && { kinds: [asked.kind] }), ...(asked.session && { session: asked.session }),
  }, signal);
  let { memories } = found;
  if (asked.all === 'no') memories = memories.filter((/** @type {Memory} */ memory) => !memory.valid_to && memory.enabled !== false);
  return { memories, isMore: Boolean(found.after) };
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
  return { memories: found.memories, isMore: false };
}

/** @param {any} stats */
const summary = ({ memories, oldest, decisions }) => html`<p class="summary">
  <b>${counted(memories.total, 'memory', 'memories')}</b>
  ${Object.entries(memories.by_state).filter(([state]) => state !== 'active').map(([state, many]) => html`<span>${count(/** @type {number} */ (many))} ${state === 'superseded' ? 'replaced' : state}</span>`)}
  ${oldest ? html`<span>since ${dayOf(oldest)}</span>` : nothing}
  ${decisions.dropped ? html`<span>${counted(decisions.dropped, 'statement')} dropped</span>` : nothing}
</p>`;
