// One memory: why it was kept, where it came from, how it fades, its versions, links and neighbours.

import { html, nothing } from '../vendor/lit-html.js';
import { Refused, call, get } from '../api.js';
import { edit, feedback, forget, holdsStill, toggle } from '../actions.js';
import { factors, fadeCurve, fixed } from '../charts.js';
import { action, counted, inked, kindChip, marks, may, memoryRow, minuteOf, outcomeChip, time, to, userHead } from '../parts.js';
import { term } from '../words.js';

/**
 * @typedef {import('../parts.js').Page} Page
 * @typedef {import('../api.js').Memory} Memory
 * @typedef {import('../api.js').Decision} Decision
 */

/** Words for effects of newer memories. @type {Record<string, string>} */
const CHANGED = { superseded: 'replaced by a newer one', revised: 'probably changed by a newer one' };

/** @param {string[]} path */
export const title = ([user = '']) => `A memory of ${user}`;

/** Nothing instead of a fault: the page stands without this part. @template T @param {Promise<T>} asked */
const ifThere = (asked) => asked.catch((error) => {
  if (error instanceof Refused && error.code !== 'unauthorized') return undefined;
  throw error;
});

/** @param {Page} page */
export async function open(page) {
  const [user = '', id = ''] = page.path;
  let loads = 0;
  const load = async () => {
    loads += 1;
    const mine = loads;
    const [{ memory, history = [], context = [] }, explained] = await Promise.all([
      call('get', { user, memory: id, history: true }, page.signal),
      ifThere(call('explain', { user, memory: id }, page.signal)),
    ]);
    if (mine !== loads) return;
    draw(memory, history, context, explained);
    const linked = [...new Set([...(memory.supersedes ?? []), memory.superseded_by, ...(memory.revises ?? []), memory.revised_by,
      ...(memory.conflicts_with ?? []), ...(memory.covers ?? []), memory.compressed_by].filter(Boolean))];
    const [links, near, source] = await Promise.all([
      Promise.all(linked.map((other) => ifThere(call('get', { user, memory: other }, page.signal)))),
      ifThere(call('recall', { user, query: memory.content, limit: 7, format: 'none', purpose: 'prompt', include_archived: true }, page.signal)),
      may(page.session, 'admin') ? ifThere(get('event', { user, partition: memory.source.partition, offset: memory.source.offset }, page.signal)) : undefined,
    ]);
    // An action since then has loaded the memory again: this one is as it was before.
    if (mine !== loads) return;
    const found = new Map(links.filter(Boolean).map((reply) => [reply.memory.id, reply.memory]));
    draw(memory, history, context, explained, { found, near: near?.memories.filter((/** @type {Memory} */ other) => other.id !== id) ?? [], source });
  };

  /**
   * @param {Memory} memory
   * @param {{content: string, until: string}[]} history
   * @param {{speaker: string, words: string}[]} context
   * @param {any} explained
   * @param {{found: Map<string, Memory>, near: Memory[], source: any}} [rest]
   */
  function draw(memory, history, context, explained, rest) {
    const decision = /** @type {Decision | undefined} */ (explained?.decision);
    const surprise = memory.surprise ?? decision?.surprise;
    const link = (/** @type {string | undefined} */ other) => {
      const memory = other && rest?.found.get(other);
      return memory ? memoryRow(user, memory) : other ? html`<li class="memory quiet">${rest ? 'A memory that is gone' : '…'}</li>` : nothing;
    };
    const group = (/** @type {string} */ words, /** @type {(string | undefined)[]} */ ids) => {
      const some = ids.filter(Boolean);
      return some.length ? html`<h3>${words}</h3><ul class="memories">${some.map(link)}</ul>` : nothing;
    };
    const links = [group('Replaces', memory.supersedes ?? []), group('Replaced by', [memory.superseded_by]),
      group('Probably changes', memory.revises ?? []), group('Probably changed by', [memory.revised_by]),
      group('In conflict with', memory.conflicts_with ?? []), group('Summary of', memory.covers ?? []), group('Is in the summary', [memory.compressed_by])];
    page.draw(html`${userHead(user, 'm')}
      <article class="whole">
        <header class="card lead"><p class="about">${kindChip(memory.kind)}${marks(user, memory)}</p>
          <blockquote>${inked(memory.content)}</blockquote>
          <p class="quiet">${memory.speaker ?? memory.role ?? 'user'} · ${time(memory.created_at, 'minute')}${memory.session ? html` · session ${memory.session}` : nothing}${memory.valid_to ? html` · held until ${time(memory.valid_to, 'minute')}` : nothing}</p>
          <p class="buttons">
            ${action(page.session, 'write', 'Confirm', async () => { if (await feedback(user, memory, 'confirmed')) load(); }, 'first')}
            ${action(page.session, 'write', 'Wrong', async () => { if (await feedback(user, memory, 'wrong')) load(); })}
            ${action(page.session, 'write', 'Edit', async () => { if (await edit(user, memory, [])) load(); })}
            ${action(page.session, 'write', memory.enabled === false ? 'Switch on' : 'Switch off', async () => { if (await toggle(user, memory)) load(); })}
            ${memory.superseded_by || memory.revised_by || memory.conflicts_with?.length ? action(page.session, 'write', 'It still holds', async () => { if (await holdsStill(user, memory)) load(); }) : nothing}
            ${action(page.session, 'forget', 'Forget', async () => {
              if (await forget(user, { memory: memory.id }, html`<blockquote>${memory.content}</blockquote>`)) location.hash = to('u', user);
            }, 'danger')}</p></header>

        <div><section class="card"><h2>Why it was kept</h2>
          ${decision ? html`<p>${outcomeChip(decision.outcome)} ${decision.reason}</p>` : html`<p>${memory.reason ?? 'The decision is no longer held by the shard.'}</p>`}
          ${surprise ? html`${factors('Points that add up to the total', Object.entries(surprise.points ?? {}), { total: ['total', surprise.total], ...(memory.threshold !== undefined && { line: ['kept from', memory.threshold] }) })}
            ${factors('Factors, 0 to 1', [['novelty', surprise.novelty], ['contradiction', surprise.contradiction], ['specificity', surprise.specificity], ['emphasis', surprise.emphasis], ['context_switch', surprise.context_switch]])}`
            : html`<p class="quiet">It was stored without being judged, so it has no factors.</p>`}
          <p class="quiet">${surprise && memory.threshold !== undefined && surprise.total < memory.threshold ? 'The total is below the line: here the reason decides by itself. ' : nothing}${term('profile', 'Profile')} ${memory.profile ?? decision?.profile}.</p></section>
        <section class="card"><h2>Where it came from</h2>
          ${rest?.source ? html`<figure class="turn"><figcaption>${rest.source.event.speaker ?? rest.source.event.role ?? 'user'}, ${time(rest.source.event.at ?? new Date(rest.source.timestamp_ms).toISOString(), 'minute')}</figcaption><blockquote>${inked(rest.source.event.content)}</blockquote></figure>`
            : rest ? html`<p class="quiet">The turn is no longer there, may not be shown, or this key may not read it.</p>` : nothing}
          ${context.length ? html`<h3>Beside it in the conversation</h3><ul class="turns">${context.map(({ speaker, words }) => html`<li><b>${speaker}</b> ${words}</li>`)}</ul>` : nothing}
          <dl class="facts"><div><dt>Event</dt><dd><code>${memory.source.topic} ${memory.source.partition}:${memory.source.offset}</code></dd></div><div><dt>Memory</dt><dd><code>${memory.id}</code></dd></div>
            ${Object.entries(memory.metadata ?? {}).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl></section></div>
        <div><section class="card"><h2>How it fades</h2>${explained?.fade ? fadeCurve(explained.fade) : nothing}
          ${factors('Strength is their product with the time since the last use', [['importance', memory.importance], ['confidence', memory.confidence]])}
          <dl class="facts"><div><dt>Uses</dt><dd>${memory.uses ?? 0}</dd></div><div><dt>Confirmed</dt><dd>${memory.confirmed ?? 0}</dd></div>
            <div><dt>Last use or confirmation</dt><dd>${memory.fresh_at && (memory.uses || memory.confirmed) ? time(memory.fresh_at, 'ago') : 'never'}</dd></div><div><dt>${term('version', 'Version')}</dt><dd>${memory.version}</dd></div></dl></section>
        <section class="card"><h2>Links</h2>${links.some((each) => each !== nothing) ? links : html`<p class="quiet">No other memory replaces, changes or contradicts it.</p>`}</section>
        <section class="card"><h2>Versions and history</h2><ol class="history">
          <li>${time(memory.created_at, 'minute')} <span>made${history[0] ? html`: <q>${history[0].content}</q>` : nothing}</span></li>
          ${history.map(({ until }, index) => html`<li>${time(until, 'minute')} <span>changed to <q>${history[index + 1]?.content ?? memory.content}</q></span></li>`)}
          ${(explained?.since ?? []).filter((/** @type {any} */ each) => each.what !== 'updated').map((/** @type {any} */ each) => html`<li>${each.at ? time(each.at, 'minute') : html`<span class="quiet">no time noted</span>`} <span>${CHANGED[each.what] ?? each.what.replaceAll('_', ' ')}${each.count ? `, ${counted(each.count, 'time')}` : ''}</span></li>`)}
          </ol></section>
        <section class="card"><h2>Neighbours</h2>${rest ? rest.near.length ? html`<p class="quiet">The nearest by meaning and words.</p><ul class="memories">${rest.near.map((other) => memoryRow(user, other, html`<span class="number">score ${fixed(other.score ?? 0)}</span>`))}</ul>`
          : html`<p class="quiet">No other memory is near.</p>` : html`<p class="quiet">…</p>`}</section></div>
        ${memory.expires_at ? html`<p class="quiet">Erased by itself on ${minuteOf(memory.expires_at)}.</p>` : nothing}
      </article>`);
  }
  await load();
}
