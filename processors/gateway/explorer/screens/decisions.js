// Decisions as they are made and those before, kept or not, each with its reason and its numbers.

import { html, nothing } from '../vendor/lit-html.js';
import { Refused, decisions, get } from '../api.js';
import { bar, factors, fixed } from '../charts.js';
import { act, empty, failed, inked, kindChip, loading, outcomeChip, outcomeWord, time, to, userHead, withQuery } from '../parts.js';
import { WORDS, term } from '../words.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Decision} Decision
 */

const OUTCOMES = ['kept', 'dropped', 'superseded', 'merged', 'revised', 'refused', 'forgotten', 'updated', 'noted', 'duplicate', 'pruned', 'summarised', 'outdated'];
const LIMIT = 50;
/** Answers that are asked for at once. */
const ANSWERS_MAX = 5;
/** Live decisions on the page; above, the oldest leave it, because a service can make thousands a second. */
const SHOWN_MAX = 500;
const AGAIN_MS = 2_000;

/** @param {string[]} path */
export const title = ([user]) => (user ? `Decisions about ${user}` : 'Decisions');

/** @param {Page} page */
export async function open(page) {
  const user = page.path[0] ?? page.session.user ?? undefined;
  const outcome = page.query.get('outcome') ?? '';
  const link = (/** @type {string} */ chosen) => withQuery(page.path[0] ? to('u', page.path[0], 'decisions') : '#/decisions', { outcome: chosen });
  /** @type {Decision[]} */
  let live = [];
  /** @type {Decision[]} */
  let past = [];
  /** @type {string | undefined} */
  let before;
  let state = 'connecting';
  let missed = 0;
  let paused = false;
  /** @type {unknown} */
  let fault;
  let isLoaded = false;
  let isDue = false;

  const older = async () => {
    // One answer reads a bounded part of the topic, so it may have few although there are more.
    for (let answers = 0, found = 0; answers < ANSWERS_MAX && found < LIMIT; answers += 1) {
      const asked = await get('decisions/past', { user, outcome, limit: LIMIT, before }, page.signal);
      const known = new Set(live.map(place));
      past.push(...asked.decisions.filter((/** @type {Decision} */ each) => !known.has(place(each))));
      found += asked.decisions.length;
      before = asked.before;
      isLoaded = true;
      draw();
      if (!before) break;
    }
  };
  // Many decisions in one frame are drawn once.
  const soon = () => {
    if (isDue || paused) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      draw();
    });
  };
  const listen = async () => {
    while (!page.signal.aborted) {
      try {
        await decisions(user, page.signal, (name, data) => {
          if (name === 'missed') missed += data.missed;
          else if (!outcome || data.outcome === outcome) live = [data, ...live].slice(0, SHOWN_MAX);
          soon();
        }, () => {
          state = 'live';
          draw();
        });
      } catch (error) {
        if (page.signal.aborted) return;
        if (error instanceof Refused && ['forbidden', 'unauthorized'].includes(error.code)) {
          state = error.message;
          draw();
          return;
        }
      }
      state = 'connection lost, trying again';
      draw();
      await new Promise((again) => setTimeout(again, AGAIN_MS));
    }
  };
  const pause = () => {
    paused = !paused;
    draw();
  };

  const draw = () => page.draw(html`
    ${page.path[0] ? userHead(page.path[0], 'decisions') : html`<div class="head"><h1>Decisions</h1><p class="quiet">What became of every statement, and why.</p></div>`}
    <div class="row"><nav class="choices" aria-label="Outcome"><a href=${link('')} aria-current=${outcome ? nothing : 'true'}>all</a>
      ${OUTCOMES.map((each) => html`<a href=${link(each)} aria-current=${outcome === each ? 'true' : nothing}>${outcomeWord(each)}</a>`)}</nav>
      <p class="live" data-state=${state === 'live' && !paused ? 'live' : 'waiting'} role="status">${paused ? 'paused' : state}${missed ? html` · ${missed} missed, this page was too slow` : nothing}
      <button type="button" class="plain" @click=${pause}>${paused ? 'Go on' : 'Pause'}</button></p></div>
    ${outcome ? html`<p class="quiet">${WORDS.get(outcomeWord(outcome))}</p>` : nothing}
    ${fault ? failed(fault) : !isLoaded && !live.length ? loading('Reading decisions') : live.length + past.length ? html`
      <ul class="decisions">${[...live, ...past].map((decision) => row(decision, !page.path[0]))}</ul>
      ${before ? html`<p class="buttons"><button type="button" @click=${() => act(async () => { await older(); return 'Older decisions are below.'; })}>Show older ones</button></p>` : nothing}`
      : empty(outcome ? `No decision ended as ${outcomeWord(outcome)}` : 'No decision yet', html`<p>Send a turn and its decision appears here at once.</p>`)}`);

  draw();
  listen();
  await older().catch((error) => {
    if (page.signal.aborted || (error instanceof Refused && error.code === 'unauthorized')) throw error;
    fault = error;
    draw();
  });
}

/** @param {Decision} decision */
const place = ({ event, candidate, shadow }) => `${event.partition}:${event.offset}:${shadow ?? ''}:${candidate ?? ''}`;

/**
 * @param {Decision} decision
 * @param {boolean} withUser
 */
function row(decision, withUser) {
  const { surprise, threshold } = decision;
  return html`<li data-outcome=${decision.outcome}><details>
    <summary><span class="lead">${outcomeChip(decision.outcome)}${withUser ? html`<b class="user">${decision.user || 'the service'}</b>` : nothing}
      <span class="words">${decision.candidate !== undefined ? inked(decision.candidate) : html`<i>${decision.withheld ? 'not to be shown' : 'without text'}</i>`}</span></span>
      <span class="reason">${decision.reason}</span>
      <span class="about">${surprise ? html`${bar(surprise.total, { low: -0.5, line: threshold })}<span class="number">${fixed(surprise.total)}</span>` : nothing}${time(decision.at, 'ago')}</span></summary>
    <div class="more">
      <p class="quiet">${WORDS.get(outcomeWord(decision.outcome))}${surprise ? html` What counts is its ${term('surprise')}.` : nothing}</p>
      ${surprise ? factors('Points that add up to the total', Object.entries(surprise.points ?? {}), { total: ['total', surprise.total], ...(threshold !== undefined && { line: ['kept from', threshold] }) }) : nothing}
      <dl class="facts"><div><dt>Time</dt><dd>${time(decision.at, 'minute')}</dd></div>${decision.kind ? html`<div><dt>Kind</dt><dd>${kindChip(decision.kind)}</dd></div>` : nothing}
        ${decision.session ? html`<div><dt>Session</dt><dd>${decision.session}</dd></div>` : nothing}
        <div><dt>Event</dt><dd><code>${decision.event.partition}:${decision.event.offset}</code></dd></div><div><dt>Profile</dt><dd>${decision.profile}${decision.shadow ? ', shadow only' : ''}</dd></div>
        ${decision.memory && decision.user ? html`<div><dt>Memory</dt><dd><a href=${to('u', decision.user, 'm', decision.memory)}>open it</a></dd></div>` : nothing}
        ${(decision.related ?? []).slice(0, 5).map((other, index) => html`<div><dt>${index === 0 && decision.outcome === 'superseded' ? 'Replaces' : 'Concerns'}</dt><dd><a href=${to('u', decision.user, 'm', other)}>${index === 0 && decision.outcome === 'superseded' ? 'the older memory' : 'another memory'}</a></dd></div>`)}</dl>
    </div></details></li>`;
}
