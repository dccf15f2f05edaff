// Import of an export, with a preview of what it would change.

import { html, nothing } from '../vendor/lit-html.js';
import { importLines } from '../api.js';
import { act, action, count, counted, may, table, to } from '../parts.js';

/** @typedef {import('../parts.js').Page} Page */

/** Why the memories of a column are not taken. */
const LEFT_OUT = 'Left out: what a newer memory replaced would come back as current, and the service writes summaries anew.';

export const title = () => 'Import';

/** @param {Page} page */
export async function open(page) {
  /** @type {{name: string, text: string} | undefined} */
  let file;
  /** @type {any} */
  let preview;
  /** @type {any} */
  let result;
  let isWorking = false;

  const run = async (/** @type {() => Promise<string>} */ work) => {
    isWorking = true;
    draw();
    await act(work);
    isWorking = false;
    draw();
  };
  const choose = async (/** @type {File | undefined} */ chosen) => {
    if (!chosen) return;
    file = { name: chosen.name, text: await chosen.text() };
    preview = result = undefined;
    await run(async () => {
      preview = await importLines(/** @type {{text: string}} */ (file).text, true);
      return 'This is a preview: nothing has changed yet.';
    });
  };
  const apply = () => run(async () => {
    result = await importLines(/** @type {{text: string}} */ (file).text, false);
    return 'Imported.';
  });
  const refused = (/** @type {any} */ report) => report.refused ? table({
    caption: `${counted(report.refused, 'line')} refused`, columns: [{ label: 'Line', number: true }, { label: 'Reason' }],
    rows: report.first_refused.map((/** @type {any} */ { line, reason }) => ({ cells: [line, reason] })),
  }) : nothing;
  const users = (/** @type {any} */ report) => html`${table({
    columns: [{ label: 'User' }, { label: 'New', number: true }, { label: 'Already there', number: true }, { label: 'Replaced ones', number: true, why: LEFT_OUT }, { label: 'Summaries', number: true, why: LEFT_OUT }],
    rows: report.users.map((/** @type {any} */ each) => ({ cells: [html`<a href=${to('u', each.user)}>${each.user}</a>`, ...[each.new, each.there, each.superseded, each.summaries].map((many) => count(many ?? 0))] })),
  })}${report.user_count > report.users.length ? html`<p class="quiet">The first ${report.users.length} of ${count(report.user_count)} users.</p>` : nothing}`;

  const right = page.session.user ? 'write' : 'admin';
  const draw = () => page.draw(html`<div class="head"><h1>Import</h1><p class="quiet">Brings memories from an export of this page or of <code>keepsake export</code> into the tenant <b>${page.session.tenant}</b>.</p></div>
    <section class="card"><h2>1. Choose a file</h2><label class="file">JSON Lines <input type="file" accept=".jsonl,.json,.ndjson,application/jsonl" ?disabled=${isWorking} @change=${(/** @type {Event} */ event) => choose(/** @type {HTMLInputElement} */ (event.currentTarget).files?.[0])}></label>
      <p class="quiet">Export a user on the page of the user. The history of other programs comes by <a href="#/start">a command</a>.</p></section>
    ${file && preview ? html`<section class="card"><h2>2. Look at what it would change</h2><p><b>${file.name}</b>: ${counted(preview.lines, 'line')}, ${counted(preview.memories, 'memory', 'memories')}. ${preview.complete === false ? html`<span class="mark">The file is incomplete: its last line is missing</span>` : nothing}</p>
      ${users(preview)}${refused(preview)}
      <p class="buttons">${action(page.session, right, isWorking ? 'Importing…' : 'Import', apply, 'first')}${may(page.session, right) ? nothing : html`<span class="quiet">This key has no right to ${right}.</span>`}</p></section>` : nothing}
    ${result ? html`<section class="card"><h2>3. Done</h2><p>${Object.entries(result.outcomes ?? {}).map(([outcome, many]) => `${count(/** @type {number} */ (many))} ${outcome}`).join(', ') || 'Nothing was new.'}</p>${users(result)}${refused(result)}</section>` : nothing}`);
  draw();
}
