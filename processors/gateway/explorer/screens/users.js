// The first page: the users of the tenant, found by a part of their name.

import { html, nothing } from '../vendor/lit-html.js';
import { get } from '../api.js';
import { counted, count, empty, failed, field, submitted, time, to, withQuery } from '../parts.js';

/** @typedef {import('../parts.js').Page} Page */
/** @typedef {{user: string, memories: number, first: string, changed: string, active: number}} User */

const LIMIT = 50;

export const title = () => 'Users';

/** @param {Page} page */
export async function open(page) {
  const wanted = page.query.get('find') ?? '';
  const { user } = page.session;
  /** @type {User[]} */
  const users = [];
  /** @type {{after?: string, total?: number}} */
  let last = {};
  /** @type {unknown} */
  let fault;

  const more = async () => {
    const asked = await get('users', { query: wanted || user, limit: LIMIT, after: last.after }, page.signal);
    users.push(...asked.users);
    last = asked;
    draw();
  };
  const search = (/** @type {SubmitEvent} */ event) => {
    location.hash = withQuery('#/', { find: field(submitted(event), 'find') });
  };
  const go = (/** @type {SubmitEvent} */ event) => {
    location.hash = to('u', field(submitted(event), 'user'));
  };
  const draw = () => page.draw(html`
    <div class="head"><h1>Users</h1><p class="quiet">${last.total === undefined ? nothing : counted(last.total, 'user')} with memories in the tenant <b>${page.session.tenant}</b>${wanted ? html` whose name contains <b>${wanted}</b>` : nothing}</p></div>
    <div class="row">
      <form class="search" role="search" @submit=${search}><label><span class="hidden">Part of a name</span><input type="search" name="find" placeholder="Find a user" .value=${wanted} maxlength="128"></label><button>Find</button></form>
      <form class="search" @submit=${go}><label><span class="hidden">Exact name</span><input name="user" placeholder="Open by exact name" maxlength="128" required></label><button>Open</button></form>
    </div>
    ${fault ? failed(fault) : nothing}
    ${users.length ? html`<table class="list users"><thead><tr><th scope="col">User</th><th scope="col" class="number">Memories</th><th scope="col" class="number">Recalled now</th><th scope="col">First</th><th scope="col">Changed</th></tr></thead>
      <tbody>${users.map((each) => html`<tr><th scope="row"><a href=${to('u', each.user)}>${each.user}</a></th><td class="number">${count(each.memories)}</td><td class="number">${count(each.active)}</td><td>${time(each.first)}</td><td>${time(each.changed, 'ago')}</td></tr>`)}</tbody></table>`
      : fault ? nothing : wanted ? empty('No user has this in the name', html`<p><a href="#/">Show all users</a></p>`)
        : empty('Nothing is remembered yet', html`<p>Send a turn, by Kafka, HTTP or MCP, and its user appears here.</p>
          <pre>curl -X POST ${location.origin}/memories -H 'content-type: application/json' \
  -d '{"user_id":"ada","messages":[{"role":"user","content":"I moved to Lisbon."}]}'</pre>`)}
    ${last.after ? html`<p class="buttons"><button type="button" @click=${() => more().catch((error) => { fault = error; draw(); })}>Show more of ${count(last.total ?? 0)}</button></p>` : nothing}`);
  await more();
}
