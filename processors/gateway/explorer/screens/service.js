// Whether the service keeps up: the shards with their lag, and dead letters to send again.

import { html, nothing } from '../vendor/lit-html.js';
import { get, call } from '../api.js';
import { bar } from '../charts.js';
import { act, action, ago, count, counted, empty, failed, may, outcomeChip, table, time, to } from '../parts.js';
import { WORDS } from '../words.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {{partition: number, behind: boolean, dead_letters: number, begin?: number, end?: number, applied?: number, lag?: number,
 *   restore?: number, oldest_waiting_at?: string, member?: {client: string, host?: string}}} Shard The numbers of all tenants
 *   come only from a gateway without keys.
 * @typedef {{partition: number, answers: boolean, took_ms?: number, stale?: boolean, why?: string}} Answer
 * @typedef {{partition: number, offset: number, at: string, from?: {topic: string, partition: number, offset: number},
 *   stage?: string, reason?: string, message?: string, redriven: number, key?: string, value?: string | null, value_bytes?: number, truncated?: boolean}} Letter
 */

const AGAIN_MS = 3_000;
/** Each look at the answers is a request to every shard. */
const ANSWERS_AGAIN_MS = 15_000;
const TAIL = 10;
const LIMIT = 50;
/** Characters of a record. */
const SHOWN = 2_000;

export const title = () => 'Service';

/** @param {Page} page */
export async function open(page) {
  /** @type {any} */
  let service;
  /** @type {Letter[]} */
  let letters = [];
  /** @type {{before?: string} | undefined} */
  let last;
  /** @type {Set<string>} */
  const chosen = new Set();
  /** The letters stay on their topic when they are sent again. @type {Set<string>} */
  const sent = new Set();
  /** @type {unknown} */
  let fault;

  /** @type {Map<number, Answer>} */
  let answers = new Map();
  /** @type {number | undefined} */
  let opened;
  /** @type {import('../api.js').Decision[] | undefined} */
  let tail;

  const ask = async () => {
    try {
      const asked = await get('shards/answers', {}, page.signal);
      answers = new Map(asked.shards.map((/** @type {Answer} */ each) => [each.partition, each]));
      draw();
    } catch (error) {
      if (page.signal.aborted) return;
      answers = new Map();
    }
    setTimeout(() => page.signal.aborted || ask(), ANSWERS_AGAIN_MS);
  };
  const open = async (/** @type {number} */ partition) => {
    opened = opened === partition ? undefined : partition;
    tail = undefined;
    draw();
    if (opened !== undefined) await follow();
  };
  /** Reads the newest decisions of the shard that is open. */
  const follow = async () => {
    const partition = opened;
    const past = await get('decisions/past', { partition, limit: TAIL }, page.signal);
    if (partition !== opened) return;
    tail = past.decisions;
    draw();
  };
  const place = (/** @type {Letter} */ letter) => `${letter.partition}:${letter.offset}`;
  const look = async () => {
    try {
      service = await get('shards', {}, page.signal);
      if (opened !== undefined) await follow();
      fault = undefined;
    } catch (error) {
      if (page.signal.aborted) return;
      fault = error;
    }
    draw();
    if (may(page.session, 'admin')) setTimeout(() => page.signal.aborted || look(), AGAIN_MS);
  };
  const read = async () => {
    const asked = await get('dead-letters', { limit: LIMIT, before: last?.before }, page.signal);
    letters = [...letters, ...asked.letters];
    last = asked;
    draw();
  };
  const again = async () => {
    [letters, last] = [[], undefined];
    chosen.clear();
    await read();
  };
  const choose = (/** @type {Letter} */ letter) => {
    if (!chosen.delete(place(letter))) chosen.add(place(letter));
    draw();
  };
  const redrive = () => act(async () => {
    const some = letters.filter((letter) => chosen.has(place(letter)));
    for (const letter of some) sent.add(place(letter));
    const { redriven, refused } = await call('dead-letters/redrive', { letters: some.map(({ partition, offset }) => ({ partition, offset })) });
    await again();
    if (refused.length) throw new Error(`${counted(redriven, 'letter')} sent again, ${refused.length} not: ${refused[0].why}`);
    return `${counted(redriven, 'letter')} sent again: watch the decisions.`;
  });

  const draw = () => {
    const shards = /** @type {Shard[]} */ (service?.shards ?? []);
    const numbers = shards.some((shard) => shard.lag !== undefined);
    const lag = shards.reduce((sum, shard) => sum + (shard.lag ?? 0), 0);
    const behind = shards.filter((shard) => shard.behind).length;
    const most = Math.max(100, ...shards.map((shard) => shard.lag ?? 0));
    // The embedded broker has no state of a group.
    const alone = service?.state ? shards.filter((shard) => !shard.member).length : 0;
    const letterCount = service?.dead_letters;
    const silent = [...answers.values()].filter((each) => !each.answers).length;
    page.draw(html`<div class="head"><h1>Service</h1><p class="quiet">Shards, their lag, and what could not be processed.</p></div>
      ${fault ? failed(fault, look) : nothing}
      ${service ? html`<p class="verdict" data-good=${!behind && !alone && !silent} role="status">${silent ? `${counted(silent, 'shard')} ${silent === 1 ? 'does' : 'do'} not answer` : alone ? `${counted(alone, 'shard')} without a process: its users get no answers` : lag ? `${counted(lag, 'event')} behind` : behind ? `${counted(behind, 'shard')} behind` : 'It keeps up: every event is applied'}</p>
        ${table({
          look: 'shards', caption: `${counted(shards.length, 'shard')} of the group ${service.group}${service.state ? `, which is ${service.state.toLowerCase()}` : ''}`,
          columns: columns(numbers, Boolean(service.state)),
          rows: shards.map((shard) => ({
            cells: [html`<button type="button" class="plain" aria-expanded=${opened === shard.partition} aria-label=${`The newest decisions of shard ${shard.partition}`} @click=${() => open(shard.partition).catch(() => {})}>${shard.partition}</button>`,
              ...(numbers ? [count(shard.applied ?? 0), count(shard.end ?? 0), count(shard.lag ?? 0), bar(shard.lag ?? 0, { high: most }), shard.oldest_waiting_at ? ago(shard.oldest_waiting_at) : '–', count(shard.restore ?? 0)] : [shard.behind ? 'behind' : 'up to date']),
              answer(answers.get(shard.partition)), count(shard.dead_letters),
              ...(service.state ? [shard.member ? html`${shard.member.client} <span class="quiet">${shard.member.host ?? ''}</span>` : html`<span class="mark">none</span>`] : [])],
            after: opened === shard.partition ? html`<tr class="tail" role="row"><td role="cell" colspan=${columns(numbers, Boolean(service.state)).length}>${newest(tail)}</td></tr>` : nothing,
          })),
        })}` : nothing}
      ${may(page.session, 'admin') ? html`<section><h2>Dead letters</h2>${letters.length ? html`<p class="quiet">${letterCount ? `${letterCount.complete ? '' : 'More than '}${counted(letterCount.count, 'record')}` : counted(letters.length, 'record')} could not be processed. Sending one again helps when its cause is gone.</p>
        <ul class="letters">${letters.map((letter) => html`<li class=${sent.has(place(letter)) ? 'quiet' : ''}><label><input type="checkbox" .checked=${chosen.has(place(letter))} @change=${() => choose(letter)}><span class="hidden">Choose ${place(letter)}</span></label>
          <details><summary><b>${letter.reason}</b> <span class="reason">${letter.message}</span> <span class="about">${sent.has(place(letter)) ? html`<span class="mark">sent again</span>` : nothing}${letter.redriven ? html`<span class="mark">failed again, ${counted(letter.redriven, 'time')}</span>` : nothing}${letter.at ? time(letter.at, 'ago') : nothing}</span></summary>
            <dl class="facts"><div><dt>Letter</dt><dd><code>${place(letter)}</code></dd></div>${letter.from ? html`<div><dt>From</dt><dd><code>${letter.from.topic} ${letter.from.partition}:${letter.from.offset}</code></dd></div>` : nothing}<div><dt>Stage</dt><dd>${letter.stage}</dd></div><div><dt>Key</dt><dd><code>${letter.key}</code></dd></div></dl>
            <pre tabindex="0" aria-label="The record">${letter.value === null ? 'bytes that are no text' : letter.value?.slice(0, SHOWN)}</pre>${letter.truncated || (letter.value?.length ?? 0) > SHOWN ? html`<p class="quiet">The beginning of ${count(letter.value_bytes ?? 0)} bytes.</p>` : nothing}</details></li>`)}</ul>
        <p class="buttons">${action(page.session, 'admin', `Send ${chosen.size || 'chosen ones'} again`, () => { if (chosen.size) redrive(); }, 'first')}
          ${last?.before ? html`<button type="button" @click=${() => act(async () => { await read(); return 'Older ones are below.'; })}>Show older ones</button>` : nothing}</p>`
        : !last ? nothing : empty('No dead letter', html`<p>Every record could be processed.</p>`)}</section>` : nothing}`);
  };
  await look();
  if (may(page.session, 'admin')) ask();
  if (may(page.session, 'admin') && !page.signal.aborted) {
    await read().catch((error) => {
      if (page.signal.aborted) return;
      fault = error;
      draw();
    });
  }
}

/** @param {boolean} numbers @param {boolean} isGroup @returns {import('../parts.js').Column[]} */
const columns = (numbers, isGroup) => [
  { label: 'Shard', number: true, why: WORDS.get('shard') },
  ...(numbers ? [{ label: 'Applied', number: true, why: WORDS.get('applied') }, { label: 'End', number: true, why: WORDS.get('end') }, { label: 'Lag', number: true, why: WORDS.get('lag') },
    { label: 'Lag as a bar', hidden: true }, { label: 'Oldest waiting' }, { label: 'To restore', number: true, why: WORDS.get('to restore') }] : [{ label: 'State' }]),
  { label: 'Answers' }, { label: 'Dead letters', number: true, why: WORDS.get('dead letters') }, ...(isGroup ? [{ label: 'Process' }] : []),
];

/** @param {Answer | undefined} asked */
function answer(asked) {
  if (!asked) return html`<span class="quiet">…</span>`;
  if (!asked.answers) return html`<span class="mark">${asked.why}</span>`;
  return html`in ${asked.took_ms} ms${asked.stale ? html` <span class="mark">behind</span>` : nothing}`;
}

/** @param {import('../api.js').Decision[] | undefined} decisions */
function newest(decisions) {
  if (!decisions) return html`<span class="quiet">Reading…</span>`;
  if (!decisions.length) return html`<span class="quiet">No decision for this tenant among the newest records.</span>`;
  return html`<ol class="tail">${decisions.map((each) => html`<li>${time(each.at, 'minute')} ${outcomeChip(each.outcome)} <a href=${to('u', each.user, 'decisions')}>${each.user}</a> <span>${each.candidate ?? each.reason}</span></li>`)}</ol>`;
}
