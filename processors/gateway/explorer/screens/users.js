// The users of the tenant, found by a part of their name. The first page opens the only one at once, and
// the page Start where there is none.

import { html, nothing } from '../vendor/lit-html.js';
import { get } from '../api.js';
import { count, counted, empty, failed, field, submitted, table, time, to, withQuery } from '../parts.js';
import { WORDS } from '../words.js';

/** @typedef {import('../parts.js').Page} Page */
/** @typedef {{user: string, memories: number, first: string, changed: string, active: number}} User */

const LIMIT = 50;
/** A pause in the typing, after which the service is asked. */
const PAUSE_MS = 250;

export const title = () => 'Users';

/** @param {Page} page */
export async function open(page) {
  const [place = ''] = page.path;
  const first = page.query.get('find') ?? '';
  let wanted = first;
  /** @type {User[]} */
  let users = [];
  /** @type {{after?: string, total?: number}} */
  let last = {};
  /** @type {unknown} */
  let fault;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;

  const more = async () => {
    const query = wanted;
    const asked = await get('users', { query, limit: LIMIT, after: last.after }, page.signal);
    // Something else has been typed meanwhile.
    if (query !== wanted) return;
    users = [...users, ...asked.users];
    [last, fault] = [asked, undefined];
  };
  const shown = () => more().catch((error) => { fault = error; }).then(draw);
  const search = (/** @type {string} */ text) => {
    if (text === wanted) return;
    [wanted, users, last] = [text, [], {}];
    history.replaceState(null, '', withQuery('#/users', { find: wanted }));
    shown();
  };
  const typed = (/** @type {Event} */ event) => {
    const text = /** @type {HTMLInputElement} */ (event.currentTarget).value.trim();
    clearTimeout(pause);
    pause = setTimeout(() => search(text), PAUSE_MS);
  };
  const go = (/** @type {SubmitEvent} */ event) => {
    location.hash = to('u', field(submitted(event), 'user'));
  };
  const draw = () => page.draw(html`
    <div class="head"><h1>Users</h1><p class="quiet" role="status">${last.total === undefined ? nothing : counted(last.total, 'user')} with memories in the tenant <b>${page.session.tenant}</b>${wanted ? html` whose name contains <b>${wanted}</b>` : nothing}, by name.</p></div>
    <div class="row">
      <form class="search" role="search" @submit=${(/** @type {SubmitEvent} */ event) => search(field(submitted(event), 'find'))}><label><span class="hidden">Part of a name</span><input type="search" name="find" placeholder="Find a user" .value=${first} maxlength="128" @input=${typed}></label><button>Find</button></form>
      ${page.session.user ? nothing : html`<form class="search" @submit=${go}><label><span class="hidden">Exact name</span><input name="user" placeholder="Open by exact name" maxlength="128" required></label><button>Open</button></form>`}
    </div>
    ${fault ? failed(fault, shown) : nothing}
    ${users.length ? table({
      look: 'users', columns: [{ label: 'User' }, { label: 'Memories', number: true }, { label: 'Not archived', number: true, why: WORDS.get('archived') }, { label: 'First' }, { label: 'Changed' }],
      rows: users.map((each) => ({ cells: [html`<a href=${to('u', each.user)}>${each.user}</a>`, count(each.memories), count(each.active), time(each.first), time(each.changed, 'ago')] })),
    }) : fault || last.total === undefined ? nothing : wanted ? empty('No user has this in the name', html`<p><a href="#/users">Show all users</a></p>`)
      : empty('Nothing is remembered yet', html`<p>Send a turn, by Kafka, HTTP or MCP, and its user appears here. <a href="#/start">How to begin</a></p>`)}
    ${last.after ? html`<p class="buttons"><button type="button" @click=${shown}>Show more of ${count(last.total ?? 0)}</button></p>` : nothing}`);
  await more();
  if (place === 'first' && !wanted && (last.total ?? 0) < 2) {
    const [only] = users;
    location.replace(only ? to('u', only.user) : '#/start');
    return;
  }
  draw();
}
