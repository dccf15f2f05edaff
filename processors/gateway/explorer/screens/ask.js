// The recall bench: a question, the terms of each hit, the floor, and the prompt block as a model gets it.

import { html, nothing } from '../vendor/lit-html.js';
import { call } from '../api.js';
import { bar, factors, fixed } from '../charts.js';
import { empty, failed, field, inked, kindChip, loading, marks, submitted, time, to, userHead, withQuery } from '../parts.js';
import { term } from '../words.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Memory} Memory
 * @typedef {import('../api.js').Recalled} Recalled
 */

const FORMATS = ['markdown', 'xml', 'compact', 'json'];

const ADDED = ['dense', 'words', 'neighbour', 'answer', 'speaker', 'when', 'month', 'specificity', 'beyond_word', 'literal', 'question'];
const FACTORS = ['role', 'superseded', 'nudge'];

/** @param {string[]} path */
export const title = ([user = '']) => `Ask about ${user}`;

/** @param {Page} page */
export async function open(page) {
  const [user = ''] = page.path;
  const asked = Object.fromEntries(page.query);
  /** @type {{profile: string, reply?: Recalled, fault?: unknown}[]} */
  const sides = [];
  const submit = (/** @type {SubmitEvent} */ event) => {
    const form = submitted(event);
    location.hash = withQuery(to('u', user, 'ask'), Object.fromEntries(['q', 'profile', 'beside', 'format', 'budget', 'limit', 'floor', 'as_of', 'session'].map((name) => [name, field(form, name)])));
  };
  const profiles = (/** @type {string} */ name, /** @type {string} */ none) => html`<select name=${name}><option value="">${none}</option>${page.session.profiles.map((each) => html`<option ?selected=${asked[name] === each}>${each}</option>`)}</select>`;
  const draw = () => page.draw(html`${userHead(user, 'ask')}
    <form class="ask" role="search" @submit=${submit}>
      <label class="wide">Question<input type="search" name="q" required maxlength="4000" placeholder=${`What does ${user} like?`} .value=${asked.q ?? ''}></label><button class="first">Ask</button>
      <details ?open=${Boolean(asked.beside || asked.profile || asked.as_of || asked.floor)}><summary>Options</summary><div class="row">
        <label>Profile${profiles('profile', 'of the tenant')}</label><label>Beside it${profiles('beside', 'none')}</label>
        <label>Format<select name="format">${FORMATS.map((each) => html`<option ?selected=${asked.format === each}>${each}</option>`)}</select></label>
        <label>Memories<input type="number" name="limit" min="1" max="100" .value=${asked.limit ?? '8'}></label>
        <label>Tokens<input type="number" name="budget" min="0" max="32000" .value=${asked.budget ?? '2000'}></label>
        <label>Smallest relevance<input type="number" name="floor" min="0" max="1" step="0.05" .value=${asked.floor ?? ''} placeholder="0"></label>
        <label>As of<input type="date" name="as_of" .value=${asked.as_of ?? ''}></label><label>Session<input name="session" maxlength="128" size="10" .value=${asked.session ?? ''}></label></div></details>
    </form>
    ${asked.q ? html`<div class=${sides.length > 1 ? 'sides' : ''}>${sides.map(({ profile, reply, fault }, index) => html`<section aria-label=${`Answer with the profile ${profile || 'of the tenant'}`}>
      ${sides.length > 1 ? html`<h2>${profile || 'Profile of the tenant'}</h2>` : nothing}
      ${fault ? failed(fault) : reply ? answer(user, reply, sides[1 - index]?.reply) : loading('Asking')}</section>`)}</div>`
      : empty('Ask a question', html`<p>You see which memories would reach a model, why in this order, and the block exactly as the model gets it.</p>`)}`);

  if (asked.q) sides.push({ profile: asked.profile ?? '' });
  if (asked.q && asked.beside) sides.push({ profile: asked.beside });
  draw();
  // One after the other: both are answered by the same shard, and the times can be compared.
  for (const side of sides) {
    try {
      side.reply = await call('recall', {
        user, query: asked.q, explain: true, purpose: 'prompt', limit: Number(asked.limit || 8), token_budget: Number(asked.budget || 2000), format: asked.format || 'markdown',
        ...(side.profile && { profile: side.profile }), ...(asked.floor && { min_relevance: Number(asked.floor) }),
        ...(asked.as_of && { as_of: `${asked.as_of}T00:00:00Z` }), ...(asked.session && { session: asked.session }),
      }, page.signal);
    } catch (error) {
      if (page.signal.aborted) return;
      side.fault = error;
    }
    draw();
  }
}

const MATCHES = /** @type {Record<string, string>} */ ({ good: 'good: some memory probably answers', weak: 'weak: near, but no memory surely answers', none: 'none: no memory is about this, so the prompt block is empty' });

/**
 * @param {string} user
 * @param {Recalled} reply
 * @param {Recalled} [other]
 */
function answer(user, reply, other) {
  const { memories } = reply;
  const { floor, good } = reply.levels ?? {};
  const best = Math.max(0, floor ?? 0, ...memories.map((memory) => memory.score ?? 0));
  const places = new Map(other?.memories.map(({ id }, index) => [id, index + 1]));
  return html`<p class="summary">${reply.match ? html`<b class="match" data-match=${reply.match}>Match ${MATCHES[reply.match] ?? reply.match}</b>` : html`<b>This profile computes no relevance</b>`}
      <span>${(reply.took_us / 1000).toFixed(1)} ms</span>${reply.stale ? html`<span class="mark">behind: the newest events are missing</span>` : nothing}${reply.partial ? html`<span class="mark">cut short by the deadline</span>` : nothing}</p>
    ${memories.length ? html`<p class="quiet">Best first, by ${term('score')}${memories[0]?.relevance === undefined ? nothing : html`, with the ${term('relevance')} of each`}. Open one for the terms of its score.</p><ol class="hits">${memories.map((memory, index) => html`<li>${linked(user, memory)}<details ?open=${index === 0}>
      <summary><span class="place">${index + 1}</span><span class="words">${inked(memory.content)}</span>
        <span class="about">${kindChip(memory.kind)}${time(memory.created_at)}${above(memory, memories.slice(index + 1))}${other ? html`<span class="mark">${places.has(memory.id) ? `beside: ${places.get(memory.id)}` : 'only here'}</span>` : nothing}</span>
        <span class="score">${bar(memory.score ?? 0, { high: best || 1, line: floor })}<span class="number">score ${fixed(memory.score ?? 0)}</span></span>
        ${memory.relevance === undefined ? nothing : html`<span class="score">${bar(memory.relevance, { line: good, look: 'relevance' })}<span class="number">relevance ${fixed(memory.relevance)}</span></span>`}</summary>
      <div class="more">${memory.note ? html`<p>${memory.note}</p>` : nothing}${terms(memory.explain ?? {})}<p><a href=${to('u', user, 'm', memory.id)}>Open this memory</a></p></div></details></li>`)}</ol>
      ${levels(reply.levels)}`
      : empty('No memory is returned', html`<p>None is above the floor. Lower the smallest relevance, or ask in other words.</p>`)}
    <section class="card"><h3>What the model gets</h3><p class="quiet">${reply.tokens} tokens, ${Math.round(reply.budget_used * 100)} % of the budget</p>${bar(reply.budget_used)}
      ${reply.prompt ? html`<pre class="prompt" tabindex="0" aria-label="The prompt block">${reply.prompt}</pre>` : html`<p>Nothing: the block is empty.</p>`}</section>`;
}

/**
 * Links and explanations stand outside the summary, which is a button itself.
 *
 * @param {string} user
 * @param {Memory} memory
 */
function linked(user, memory) {
  const found = marks(user, memory);
  return found.length ? html`<p class="about linked">${found}</p>` : nothing;
}

/** @param {Recalled['levels']} levels */
function levels(levels) {
  const lines = [
    levels?.floor !== undefined && `The line on a score is the floor of ${fixed(levels.floor)}: memories with a lower score were left out.`,
    levels?.good !== undefined && `The line on a relevance is at ${fixed(levels.good)}: from there on the match is good.`,
  ].filter(Boolean);
  return lines.length ? html`<p class="quiet">${lines.join(' ')}</p>` : nothing;
}

/**
 * Versions of one fact stay together, the newest first, whatever their scores.
 *
 * @param {Memory} memory
 * @param {Memory[]} below
 */
function above(memory, below) {
  const older = [...(memory.supersedes ?? []), ...(memory.revises ?? [])];
  return below.some(({ id, score = 0 }) => older.includes(id) && score > (memory.score ?? 0)) ? html`<span class="mark">above the older version that it changes</span>` : nothing;
}

/** @param {Record<string, number>} explain */
function terms(explain) {
  const of = (/** @type {string[]} */ names) => /** @type {[string, number][]} */ (names.filter((name) => explain[name]).map((name) => [name, explain[name]]));
  const rest = Object.keys(explain).filter((name) => !ADDED.includes(name) && !FACTORS.includes(name) && name !== 'score');
  const isOurs = 'dense' in explain;
  return html`<div class="terms">${factors(isOurs ? 'Added up' : 'Terms', of(isOurs ? ADDED : Object.keys(explain)), { foreign: !isOurs })}
    ${isOurs ? html`${factors('Then multiplied by', of(FACTORS))}${factors('Measured', of(rest))}` : nothing}</div>`;
}
