// Explains words where they stand: a button that opens a note beside it, for mouse, touch and keyboard.

import { html } from './vendor/lit-html.js';

/** One or two sentences for each word that is not everybody's. */
export const WORDS = new Map(Object.entries({
  // Points of a statement
  surprise: 'How much a statement adds to what is known: the sum of its points. From the threshold on it is kept.',
  novelty: 'Unlike the earlier statements of this user.',
  contradiction: 'Another value of an earlier fact.',
  specificity: 'Rare words, names, numbers and times.',
  emphasis: 'The speaker stresses it, as in “never forget”.',
  context_switch: 'Away from the topic of the session.',
  total: 'The surprise: the sum of the points.',
  'kept from': 'The threshold: a statement with fewer points is dropped, unless its reason decides by itself.',
  importance: 'How surprising it was, from 0 to 1; 1 where you asked to remember. It slows the fading.',
  confidence: 'How sure it is, from 0 to 1. Confirm and Wrong change it.',
  version: 'Counts every change of this memory, also of its links and counts.',
  profile: 'A named set of rules and numbers by which the service judges and answers.',
  // States of a memory
  archived: 'Faded: it is kept, and recalled only on request.',
  superseded: 'Factor on what a newer memory replaced.',
  replaced: 'A newer memory took its place, or its time is over. It answers only questions about earlier.',
  'in conflict': 'Another memory probably contradicts it; both hold until you decide, under Changes.',
  'switched off': 'In no recall until you switch it on.',
  'in a summary': 'A summary stands for it in answers.',
  'whole tenant': 'Every user of the tenant sees it.',
  'this session only': 'Recalled only in its own session.',
  // Service
  applied: 'Events up to here are decided and stored.',
  end: 'Events that have come in.',
  lag: 'Events that wait: the end less what is applied.',
  'to restore': 'Records that a process reads to rebuild this shard on another disk.',
  shard: 'A part of the users. Each user is on one shard, and one process serves it.',
  'dead letters': 'Records that could not be processed, kept with their reason to be sent again.',
  // Terms of an answer
  relevance: 'The probability, from 0 to 1, that this memory answers the question: of those with 0.3 about a third do.',
  score: 'What orders the memories. It compares memories of one question only.',
  dense: 'Closeness of meaning, as a share of the best.',
  words: 'Common words, as a share of the best.',
  cosine: 'Closeness of meaning of the two texts, 1 for the same.',
  bm25: 'Weight of the common words: rare ones count more (BM25).',
  neighbour: 'From a better turn beside it.',
  answer: 'From the question before it.',
  speaker: 'The question names its speaker.',
  when: 'The question asks when, and it has a time.',
  month: 'From the month that is named.',
  beyond_word: 'Closer to the question than to any of its words.',
  literal: 'It contains most of the question.',
  question: 'Less, because it only asks.',
  role: 'Factor on what an assistant said.',
  nudge: 'Factor of recency, importance and confidence, at most a twentieth.',
  recency: 'What time has left of it.',
  share: 'Its share of all scores.',
  whole: 'Cosine beyond that of the nearest single word.',
  above: 'Cosine beyond the mean of the ten best.',
  shared: 'Share of the information of the question.',
  rerank: 'Probability by the cross-encoder, a model that reads both texts together.',
  before_rerank: 'The score before the cross-encoder.',
  // Outcomes
  kept: 'A new memory was made.',
  dropped: 'Not worth keeping: nothing is stored of it.',
  replaces: 'A new memory was made, and closes an older one with another value of the same fact.',
  merged: 'It says what a memory says already, which grew surer.',
  revised: 'A new memory was made, which probably changes an older one.',
  refused: 'A rule forbids to keep it.',
  forgotten: 'Memories were erased.',
  updated: 'A memory was changed by hand.',
  noted: 'Taken in without a change of a text, such as feedback.',
  duplicate: 'The same event came before: nothing was done again.',
  pruned: 'Faded memories were archived.',
  summarised: 'A summary of several memories was made.',
  outdated: 'The service’s own proposal no longer fitted, so nothing was done.',
}));

const GAP = 6;
const EDGE = 8;

/**
 * A word with its explanation.
 *
 * @param {unknown} shown
 * @param {string} why
 * @param {string} [look]
 */
export function explained(shown, why, look = '') {
  const open = (/** @type {MouseEvent} */ event) => {
    // The row around it neither opens nor closes.
    event.preventDefault();
    const word = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const place = /** @type {HTMLElement} */ (document.getElementById('word'));
    place.textContent = why;
    place.showPopover();
    const { offsetWidth, offsetHeight } = place;
    const below = word.bottom + GAP;
    const top = below + offsetHeight > innerHeight ? Math.max(EDGE, word.top - offsetHeight - GAP) : below;
    // It scrolls with its word.
    place.style.left = `${scrollX + Math.max(EDGE, Math.min(word.left, innerWidth - offsetWidth - EDGE))}px`;
    place.style.top = `${scrollY + top}px`;
    addEventListener('hashchange', () => place.hidePopover(), { once: true });
  };
  return html`<button type="button" class=${`term ${look}`} @click=${open}>${shown}</button>`;
}

/**
 * @param {string} word
 * @param {unknown} [shown]
 * @param {string} [look]
 */
export function term(word, shown = word, look = '') {
  const why = WORDS.get(word);
  return why ? explained(shown, why, look) : shown;
}
