// Charts in plain SVG. Each has its numbers in words too: as a table beside it, or as its label.

import { html, nothing, svg } from './vendor/lit-html.js';
import { dayOf, kindChip, time, to } from './parts.js';
import { term } from './words.js';

/** @typedef {import('./api.js').Memory} Memory */

/** @param {number} value @param {number} [places] */
export const fixed = (value, places = 2) => value.toFixed(places).replace(/^-/, '−');

/**
 * One horizontal bar between `low` and `high`, from zero, with an optional line.
 *
 * @param {number} value
 * @param {{low?: number, high?: number, line?: number, look?: string}} [scale]
 */
export function bar(value, { low = 0, high = 1, line, look = '' } = {}) {
  const at = (/** @type {number} */ it) => (100 * (Math.min(high, Math.max(low, it)) - low)) / (high - low || 1);
  const [from, end] = [at(Math.min(0, value)), at(Math.max(0, value))];
  return html`<svg class=${`bar ${look}`} viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
    <rect class="track" width="100" height="10"></rect>
    <rect class=${value < 0 ? 'minus' : 'plus'} x=${from} width=${value ? Math.max(0.4, end - from) : 0} height="10"></rect>
    ${line === undefined ? nothing : svg`<line class="halo" x1=${at(line)} x2=${at(line)} y1="0" y2="10"></line><line class="limit" x1=${at(line)} x2=${at(line)} y1="0" y2="10"></line>`}
  </svg>`;
}

/**
 * A table of named numbers with bars, largest effect first. Known words among the names are explained,
 * unless they are `foreign`: those of another system.
 *
 * @param {string} caption
 * @param {[name: string, value: number][]} rows
 * @param {{total?: [string, number], line?: [string, number], foreign?: boolean}} [end]
 */
export function factors(caption, rows, { total, line, foreign } = {}) {
  const values = [...rows.map(([, value]) => value), total?.[1] ?? 0, line?.[1] ?? 0];
  const scale = { low: Math.min(0, ...values), high: Math.max(0.01, ...values) };
  const sorted = [...rows].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  return html`<table class="factors"><caption>${caption}</caption><tbody>
    ${sorted.map(([name, value]) => html`<tr><th scope="row">${foreign ? name.replaceAll('_', ' ') : named(name)}</th>
      <td class="chart">${bar(value, scale)}</td><td class="number">${fixed(value)}</td></tr>`)}
    </tbody>${total ? html`<tfoot><tr><th scope="row">${named(total[0])}</th>
      <td class="chart">${bar(total[1], { ...scale, line: line?.[1], look: 'total' })}</td><td class="number">${fixed(total[1])}</td></tr>
      ${line ? html`<tr class="quiet"><th scope="row">${named(line[0])}</th><td></td><td class="number">${fixed(line[1])}</td></tr>` : nothing}</tfoot>` : nothing}
  </table>`;
}

const named = (/** @type {string} */ name) => term(name, name.replaceAll('_', ' '));

/** @typedef {{strength: number, at: string, half_life_days?: number, shape: string, prune_below?: number,
 *   prune_after_days?: number, points: [string, number][]}} Fade */

/**
 * Strength over time: what was, today, and what comes if nobody uses the memory.
 *
 * @param {Fade} fade
 */
export function fadeCurve(fade) {
  const [width, height, left, bottom] = [640, 230, 60, 36];
  const times = fade.points.map(([at]) => Date.parse(at));
  const now = Date.parse(fade.at) || Date.now();
  const [first, last] = [Math.min(...times, now), Math.max(...times, now)];
  const x = (/** @type {number} */ at) => left + ((at - first) / (last - first || 1)) * (width - left - 12);
  const y = (/** @type {number} */ value) => 10 + (1 - value) * (height - bottom - 10);
  const line = (/** @type {[number, number][]} */ list) => list.map(([at, value], index) => `${index ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  const all = /** @type {[number, number][]} */ (fade.points.map(([at, value]) => [Date.parse(at), value]));
  const today = /** @type {[number, number]} */ ([now, fade.strength]);
  const before = [...all.filter(([at]) => at < now), today];
  const after = [today, ...all.filter(([at]) => at > now)];
  const words = `Strength ${fixed(fade.strength)} today${fade.half_life_days ? `, half-life ${Math.round(fade.half_life_days)} days` : ''}${fade.prune_below ? `; below ${fixed(fade.prune_below)} it may be archived` : ''}.`;
  return html`<figure class="fade"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label=${words}>
    ${[0, 0.25, 0.5, 0.75, 1].map((value) => svg`<line class="grid" x1=${left} x2=${width - 12} y1=${y(value)} y2=${y(value)}></line>
      <text class="tick" x=${left - 8} y=${y(value) + 4} text-anchor="end">${value}</text>`)}
    ${fade.prune_below ? svg`<line class="limit" x1=${left} x2=${width - 12} y1=${y(fade.prune_below)} y2=${y(fade.prune_below)}></line>
      <text class="tick" x=${width - 14} y=${y(fade.prune_below) - 4} text-anchor="end">archived below ${fixed(fade.prune_below)}</text>` : nothing}
    <path class="area" d=${`${line(before)}L${x(now)} ${y(0)}L${x(before[0]?.[0] ?? now)} ${y(0)}Z`}></path>
    <path class="was" d=${line(before)}></path><path class="will" d=${line(after)}></path>
    <line class="today" x1=${x(now)} x2=${x(now)} y1="10" y2=${height - bottom}></line>
    <circle class="today" cx=${x(now)} cy=${y(fade.strength)} r="5"></circle>
    <text class="today" x=${x(now) + (x(now) > width * 0.75 ? -9 : 9)} y=${Math.max(22, y(fade.strength) - 9)} text-anchor=${x(now) > width * 0.75 ? 'end' : 'start'}>today ${fixed(fade.strength)}</text>
    ${[first, (first + last) / 2, last].map((at, index) => svg`<text class="tick" x=${x(at)} y=${height - 6} text-anchor=${['start', 'middle', 'end'][index]}>${dayOf(at)}</text>`)}
  </svg><figcaption>${words} ${!fade.half_life_days ? 'It does not fade.' : fade.shape === 'exponential' ? 'It halves with each half-life.' : 'It fades by a power law, as people forget: a quarter is left after five half-lives.'}</figcaption></figure>`;
}

/**
 * When the memories of a page held: one lane each, from the beginning to the end of its validity.
 *
 * @param {string} user
 * @param {Memory[]} memories
 */
export function spans(user, memories) {
  const now = Date.now();
  const times = memories.flatMap((memory) => [Date.parse(memory.created_at), memory.valid_to ? Date.parse(memory.valid_to) : now]);
  const [first, last] = [Math.min(...times), Math.max(...times, now)];
  const x = (/** @type {number} */ at) => ((at - first) / (last - first || 1)) * 100;
  /** @type {string} */
  let session;
  return html`<ol class="spans" aria-label="Memories by the time in which they hold">${memories.map((memory) => {
    const [from, end] = [Date.parse(memory.valid_from), memory.valid_to ? Date.parse(memory.valid_to) : now];
    const begins = memory.session !== undefined && memory.session !== session;
    session = memory.session ?? '';
    return html`<li class=${begins ? 'begins' : ''}>${begins ? html`<span class="session">${memory.session}</span>` : nothing}
      <span class="when">${time(memory.created_at)}</span>
      <a class="words" href=${to('u', user, 'm', memory.id)}>${memory.content}</a>
      <svg class="span" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${memory.valid_to ? `until ${dayOf(memory.valid_to)}` : 'still holds'}>
        <rect class="track" y="4" width="100" height="2"></rect>
        <rect class=${memory.valid_to ? 'past' : memory.revised_by ? 'shaken' : 'holds'} data-kind=${memory.kind} x=${x(from)} width=${Math.max(0.6, x(end) - x(from))} y="2" height="6"></rect>
      </svg>
      <span class="until">${memory.valid_to ? html`until ${time(memory.valid_to)}` : memory.revised_by ? 'probably changed' : memory.state === 'archived' ? term('archived') : 'holds'}</span>
      ${kindChip(memory.kind)}</li>`;
  })}</ol>`;
}

/**
 * How many memories begin in which stretch of time: the area of a bar is their number.
 *
 * @param {import('./lifetime.js').Lifetime | undefined} life
 * @param {(slice: {from: number, to: number}) => string} link
 * @param {number} [chosen] a time that a line marks
 */
export function density(life, link, chosen) {
  if (!life) return nothing;
  const { first, last, slices } = life;
  const [width, height] = [1000, 70];
  const x = (/** @type {number} */ at) => ((at - first) / (last - first || 1)) * width;
  const rate = (/** @type {{from: number, to: number, memories: number}} */ slice) => slice.memories / Math.max(1, slice.to - slice.from);
  const most = Math.max(...slices.map(rate)) || 1;
  return html`<figure class="density"><svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="group" aria-label="Memories over time">
    ${slices.filter(({ memories }) => memories).map((slice) => {
      const tall = Math.max(slice.memories ? 3 : 0, (rate(slice) / most) * (height - 2));
      return svg`<a href=${link(slice)} aria-label=${`${slice.memories} from ${dayOf(slice.from)} to ${dayOf(slice.to)}`}>
        <title>${`${slice.memories} memories, ${dayOf(slice.from)} to ${dayOf(slice.to)}`}</title>
        <rect class="hit" x=${x(slice.from)} width=${Math.max(2, x(slice.to) - x(slice.from))} height=${height}></rect>
        <rect class="slice" x=${x(slice.from)} width=${Math.max(2, x(slice.to) - x(slice.from) - 2)} y=${height - tall} height=${tall}></rect></a>`;
    })}
    ${chosen === undefined ? nothing : svg`<line class="today" x1=${x(chosen)} x2=${x(chosen)} y1="0" y2=${height}></line>`}
  </svg><figcaption><span>${dayOf(first)}</span><span>${dayOf(last)}</span></figcaption></figure>`;
}
