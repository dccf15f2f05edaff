// A copy of all memories of a user as JSON Lines, in the form that the import reads.

import { html, nothing } from '../vendor/lit-html.js';
import { call, exportLines } from '../api.js';
import { act, counted, userHead } from '../parts.js';

/** @typedef {import('../parts.js').Page} Page */

const SHOWN = 5;

/** @param {string[]} path */
export const title = ([user = '']) => `Export of ${user}`;

/** @param {Page} page */
export async function open(page) {
  const [user = ''] = page.path;
  /** @type {string[]} */
  let lines = [];
  let bytes = 0;
  let isWorking = false;
  const { memories } = await call('stats', { user }, page.signal);
  const save = async () => {
    isWorking = true;
    draw();
    await act(async () => {
      const blob = await exportLines(user);
      lines = (await blob.text()).split('\n').filter(Boolean);
      bytes = blob.size;
      if (!lines.at(-1)?.includes('"end"')) throw new Error('The export broke off: its last line is missing. Try again.');
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = `${user.replaceAll(/[^\p{L}\p{N}._-]/gu, '_')}.jsonl`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
      return `${counted(lines.length - 2, 'memory', 'memories')} exported.`;
    });
    isWorking = false;
    draw();
  };
  const draw = () => page.draw(html`${userHead(user, 'export')}
    <section class="card"><h2>Export</h2><p>${counted(memories.total, 'memory', 'memories')} with their earlier contents, as JSON Lines. The <a href="#/move">import</a> reads this file, here or elsewhere. Decisions and events are in <code>keepsake export --user ${user}</code>.</p>
      <p class="buttons"><button type="button" class="first" ?disabled=${isWorking} @click=${save}>${isWorking ? 'Exporting…' : 'Save as a file'}</button></p>
      ${lines.length ? html`<p class="quiet">${counted(lines.length, 'line')}, ${(bytes / 1024).toFixed(1)} KiB. The first ones:</p><pre tabindex="0" aria-label="The first lines">${lines.slice(0, SHOWN).join('\n')}</pre>` : nothing}</section>`);
  draw();
}
