// How to begin: connect an agent, add a memory, bring the history of other programs, try a recall.

import { html, nothing } from '../vendor/lit-html.js';
import { call, get } from '../api.js';
import { act, copied, empty, field, may, memoryRow, note, outcomeChip, submitted, to, withQuery } from '../parts.js';
import { fixed } from '../charts.js';
import { term } from '../words.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Decision} Decision
 * @typedef {import('../api.js').Recalled} Recalled
 */

/**
 * Clients of `keepsake connect`; a test compares file and paste with the table in README.
 *
 * @type {[name: string, words: string, file: string, paste: string][]}
 */
const CLIENTS = [
  ['claude-code', 'Claude Code', '.mcp.json', '{"mcpServers": {"keepsake": {"type": "stdio", "command": "keepsake", "args": ["mcp"]}}}'],
  ['claude-desktop', 'Claude Desktop', 'claude_desktop_config.json', '{"mcpServers": {"keepsake": {"command": "keepsake", "args": ["mcp"]}}}'],
  ['cursor', 'Cursor', '~/.cursor/mcp.json', '{"mcpServers": {"keepsake": {"command": "keepsake", "args": ["mcp"]}}}'],
  ['vscode', 'VS Code', '.vscode/mcp.json', '{"servers": {"keepsake": {"type": "stdio", "command": "keepsake", "args": ["mcp"]}}}'],
  ['codex', 'Codex', '~/.codex/config.toml', '[mcp_servers.keepsake]\ncommand = "keepsake"\nargs = ["mcp"]'],
];
/** @type {[words: string, source: string][]} */
const HISTORIES = [
  ['ChatGPT', 'chatgpt conversations.json'], ['Claude', 'claude conversations.json'], ['Claude Code', 'claude-code ~/.claude/projects'], ['Codex', 'codex ~/.codex/sessions'],
  ['mem0', 'mem0 memories.json'], ['MCP’s memory server', 'memory.jsonl memory.jsonl'], ['Markdown', 'markdown notes/'], ['CSV', 'csv facts.csv'],
];
const FOUND = 5;

export const title = () => 'Start';

/** @param {Page} page */
export async function open(page) {
  const { session } = page;
  let user = session.user ?? '';
  /** @type {Decision | undefined} */
  let decision;
  /** @type {Recalled | undefined} */
  let recalled;

  const name = () => {
    if (user) return user;
    document.getElementById('user')?.focus();
    note('Enter a user first.', 'bad');
    return undefined;
  };
  const add = async (/** @type {SubmitEvent} */ event) => {
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const content = field(submitted(event), 'content');
    if (!name()) return;
    await act(async () => {
      [decision] = (await call('remember', { user, content })).decisions;
      form.reset();
      return decision?.memory ? 'Remembered.' : 'Not remembered: see the reason.';
    });
    draw();
  };
  const ask = async (/** @type {SubmitEvent} */ event) => {
    const query = field(submitted(event), 'query');
    if (!name()) return;
    await act(async () => {
      recalled = await call('recall', { user, query, limit: FOUND, format: 'none', purpose: 'prompt' }, page.signal);
      return 'Answered.';
    });
    draw();
  };
  const address = () => {
    const url = new URL(`mcp/${encodeURIComponent(user || 'ada')}/`, document.baseURI).href;
    return JSON.stringify({ mcpServers: { keepsake: { url, ...(session.keys && { headers: { Authorization: 'Bearer YOUR-KEY' } }) } } }).replaceAll(/([:,])(?=["{])/g, '$1 ');
  };

  const draw = () => page.draw(html`<div class="head"><h1>Start</h1><p class="quiet">Keepsake keeps what is worth keeping of conversations, and answers from it later.</p></div>
    <section class="card"><h2>1. Connect your agent</h2>
      <p>On the machine of the agent, where the program <code>keepsake</code> is installed. It remembers for the user with the name of your account there.</p>
      <ul class="connect">${CLIENTS.map(([client, words, file, paste]) => html`<li><h3>${words}</h3>${copied(`keepsake connect ${client}`, `the command for ${words}`)}
        <details><summary>By hand, into ${file}</summary>${copied(paste, `the lines for ${words}`)}</details></li>`)}
        <li><h3>Any other, by address</h3>${copied(address(), 'the lines for any other')}${session.keys ? html`<p class="quiet">“keepsake keys new” makes a key. It belongs in the place of YOUR-KEY.</p>` : nothing}</li></ul></section>
    <section class="card"><h2>2. Try it here</h2>
      <p><label>User<input id="user" maxlength="128" placeholder="a name, such as ada" .value=${user} ?readonly=${Boolean(session.user)} autocomplete="off" spellcheck="false" @input=${(/** @type {Event} */ event) => { user = /** @type {HTMLInputElement} */ (event.currentTarget).value.trim(); draw(); }}></label></p>
      ${may(session, 'write') ? html`<form class="ask" @submit=${add}><label class="wide">Add a memory<input name="content" required maxlength="4000" placeholder="I am allergic to peanuts." autocomplete="off"></label><button class="first">Remember</button></form>`
        : html`<p class="quiet">This key has no right to write, so it adds no memory.</p>`}
      ${decision ? html`<p role="status">${outcomeChip(decision.outcome)} ${decision.reason}. ${decision.memory ? html`<a href=${to('u', user, 'm', decision.memory)}>Open it</a>` : nothing}</p>` : nothing}
      <form class="ask" role="search" @submit=${ask}><label class="wide">Ask<input type="search" name="query" required maxlength="4000" placeholder="What can I not eat?"></label><button>Recall</button></form>
      ${recalled ? html`<div role="status">${recalled.memories.length ? html`<ol class="memories" aria-label="Answer">${recalled.memories.map((memory) => memoryRow(user, memory, memory.relevance === undefined ? nothing : html`<span class="number">${term('relevance')} ${fixed(memory.relevance)}</span>`))}</ol>`
        : empty('Nothing is known of this')}</div>` : nothing}
      ${user ? html`<p><a href=${to('u', user)}>All memories of ${user}</a> · <a href=${withQuery(to('u', user, 'ask'), {})}>Ask, with the reasons</a></p>` : nothing}</section>
    <section class="card"><h2>3. Bring your history</h2>
      <p>What you told another program comes as turns with their times, of which the service keeps the few that say something, or as memories where the program keeps memories. With <code>--dry-run</code> at its end a command only counts.</p>
      <ul class="connect">${HISTORIES.map(([words, source]) => html`<li><h3>${words}</h3>${copied(`keepsake import --from ${source}`, `the command for ${words}`)}</li>`)}</ul>
      <p class="quiet">An export of Keepsake itself comes by <a href="#/move">Import</a>, in this page.</p></section>`);
  draw();
  if (user) return;
  // The name of the only user is the one that the reader means.
  const { users, total } = await get('users', { limit: 1 }, page.signal).catch(() => ({ users: [] }));
  if (total === 1 && !user) user = users[0].user;
  draw();
}
