// Shows the screen that the address names, and keeps the frame around it: navigation, key, faults.

import { html, nothing, render } from './vendor/lit-html.js';
import { Refused, get, key, tenant } from './api.js';
import { failed, field, loading, may, submitted } from './parts.js';

/**
 * @typedef {import('./parts.js').Page} Page
 * @typedef {import('./api.js').Session} Session
 * @typedef {{title: (path: string[]) => string, open: (page: Page) => unknown}} Screen
 */

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const nav = /** @type {HTMLElement} */ (document.getElementById('nav'));
const who = /** @type {HTMLElement} */ (document.getElementById('who'));

/**
 * Screens of the whole tenant, with the right that each needs.
 *
 * @type {[name: string, words: string, right: string][]}
 */
const PLACES = [['start', 'Start', 'read'], ['users', 'Users', 'read'], ['decisions', 'Decisions', 'read'], ['service', 'Service', 'admin'], ['move', 'Import', 'read']];
const OF_USER = ['timeline', 'ask', 'then', 'changes', 'decisions', 'forgotten', 'export'];

/** @type {AbortController} */
let leaving = new AbortController();
/** @type {Session | undefined} */
let session;
/** The tenants to choose from: more than one only where no keys are asked for. @type {string[]} */
let tenants = [];

/** The module of the address, and the parts that it gets. @param {string[]} path */
function module(path) {
  const [first = '', user, second = '', id] = path;
  if (first === '') return ['users', 'first'];
  if (first === 'u' && user) {
    if (second === 'm' && id) return ['memory', user, id];
    if (second === '' || second === 'timeline') return ['memories', user, second];
    if (OF_USER.includes(second)) return [second, user];
  }
  if (PLACES.some(([name]) => name === first) && path.length === 1) return [first];
  return undefined;
}

function address() {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  try {
    return { path: path.split('/').map(decodeURIComponent), query: new URLSearchParams(query) };
  } catch {
    return { path: ['?'], query: new URLSearchParams() };
  }
}

function frame() {
  const [first] = address().path;
  const here = first === 'u' || !first ? 'users' : first;
  const known = session;
  const places = known ? PLACES.filter(([, , right]) => may(known, right)) : [];
  render(places.map(([name, words]) => html`<a href=${`#/${name}`} aria-current=${name === here ? 'page' : nothing}>${words}</a>`), nav);
  if (!session) return;
  const forget = () => {
    key.set('');
    session = undefined;
    show();
  };
  const { tenant: own } = session;
  const choose = (/** @type {Event} */ event) => {
    tenant.set(/** @type {HTMLSelectElement} */ (event.currentTarget).value);
    session = undefined;
    location.hash = '#/';
    show();
  };
  render(html`${tenants.length > 1 ? html`<label class="tenant"><span class="hidden">Tenant</span><select @change=${choose}>${tenants.map((each) => html`<option ?selected=${each === own}>${each}</option>`)}</select></label>`
    : html`<span class="tenant" title="Tenant of this page">${own}</span>`}
    ${may(session, 'write') ? nothing : html`<span class="tenant">read only</span>`}
    ${key.get() ? html`<button type="button" class="plain" @click=${forget}>Sign out</button>` : nothing}`, who);
}

/** @param {string} why */
function askForKey(why) {
  const enter = (/** @type {SubmitEvent} */ event) => {
    key.set(field(submitted(event), 'key'));
    session = undefined;
    show();
  };
  render(nothing, who);
  render(html`<form class="key card" @submit=${enter}>
    <h1>This gateway asks for a key</h1>
    <p>${why}</p>
    <label>Key <input name="key" type="password" autocomplete="off" required autofocus spellcheck="false"></label>
    <button class="first">Open</button>
    <p class="quiet">The key stays in this tab and is gone when the tab is closed. “keepsake keys new” makes one.</p>
  </form>`, main);
}

async function show() {
  leaving.abort();
  const left = (leaving = new AbortController());
  const { path, query } = address();
  const [name = '', ...rest] = module(path) ?? [];
  const late = setTimeout(() => draw(loading()), 250);
  const draw = (/** @type {unknown} */ view) => {
    // What a screen has drawn stays: somebody may be typing there.
    clearTimeout(late);
    if (!left.signal.aborted) render(view, main);
  };
  frame();
  try {
    if (!name) throw new Refused('not_found', 'No screen has this address.');
    const [screen, known] = await Promise.all([
      /** @type {Promise<Screen>} */ (import(`./screens/${name}.js`)),
      session ?? get('session', {}, left.signal),
    ]);
    if (left.signal.aborted) return;
    if (!session && known && !known.keys) {
      // The page does not wait for the names: the gateway reads a topic to know them.
      get('tenants').then((found) => {
        ({ tenants } = found);
        frame();
      }, () => {});
    }
    session = known;
    frame();
    document.title = `${screen.title(rest)} · Keepsake`;
    await screen.open({ path: rest, query, signal: left.signal, session: /** @type {Session} */ (session), draw });
  } catch (error) {
    if (left.signal.aborted) return;
    document.title = 'Keepsake';
    if (error instanceof Refused && error.code === 'unauthorized') askForKey(error.message);
    else draw(failed(error, show));
  } finally {
    clearTimeout(late);
  }
}

/** A new screen begins at its top, also for the keyboard and a screen reader. */
function moved(/** @type {HashChangeEvent} */ event) {
  const [before, after] = [event.oldURL, event.newURL].map((url) => url.split('?')[0]);
  if (before !== after) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  show();
}

addEventListener('hashchange', moved);
document.querySelector('.skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
show();
