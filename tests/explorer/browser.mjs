// A page in Chromium that notes everything that must not happen, and the calls of a test to the gateway.

import { spawnSync } from 'node:child_process';
import axe from 'axe-core';
import { chromium } from 'playwright-core';
import { appendFileSync } from 'node:fs';
import assert from 'node:assert/strict';

export const url = /** @type {string} */ (process.env.KEEPSAKE_URL);

/** Adds a row to the table that run.sh prints. */
export function figure(/** @type {string} */ name, /** @type {unknown} */ value, must = '') {
  appendFileSync(/** @type {string} */ (process.env.EXPLORER_FIGURES), `${name}|${value}|${must}\n`);
}

/** Sends a message of the contract. */
export async function call(/** @type {string} */ kind, /** @type {object} */ message, base = url, /** @type {string | undefined} */ key = undefined) {
  const headers = { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) };
  const response = await fetch(`${base}/v1/keepsake/${kind}`, { method: 'POST', headers, body: JSON.stringify(message) });
  const reply = await response.json();
  assert.ok(response.ok, `${kind}: ${JSON.stringify(reply)}`);
  return reply;
}

export async function get(/** @type {string} */ path) {
  const response = await fetch(`${url}/v1/keepsake/${path}`);
  assert.ok(response.ok, `${path}: HTTP status ${response.status}`);
  return response.json();
}

/** Waits until `holds` returns something true. */
export async function until(/** @type {() => Promise<unknown> | unknown} */ holds, what = 'it', seconds = 10) {
  const began = performance.now();
  while (performance.now() - began < seconds * 1_000) {
    const found = await holds();
    if (found) return found;
    await new Promise((again) => setTimeout(again, 50));
  }
  throw new Error(`${what} did not come true within ${seconds} s`);
}

let browser;

/**
 * Publishes a turn that the contract refuses, which becomes a dead letter. The gateway would not let it through.
 *
 * @param {string} user
 */
export function publishTooLong(user) {
  const options = ['publish', '--data', process.env.KEEPSAKE_OPEN_DATA ?? '', '--user', user, '-'];
  spawnSync(process.env.KEEPSAKE ?? '', options, { input: 'x'.repeat(70_000) });
}

/**
 * Opens a page with an empty session. Faults are errors and warnings of the console, exceptions,
 * refused scripts and requests to other origins.
 *
 * @param {import('playwright-core').BrowserContextOptions} [options]
 */
export async function page(options = {}) {
  browser ??= await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: 'en-GB', timezoneId: 'UTC', ...options });
  const shown = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  shown.on('console', (message) => {
    // The event of a memory that was forgotten while its page was open is not shown.
    const isGone = message.text().includes('404') && message.location().url.includes('/v1/keepsake/event?');
    if (['error', 'warning'].includes(message.type()) && !isGone) faults.push(message.text());
  });
  shown.on('pageerror', (error) => faults.push(error.message));
  shown.on('dialog', (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  shown.on('request', (request) => {
    if (!request.url().startsWith('blob:') && !request.url().startsWith('http://127.0.0.1:')) faults.push(`a request to ${request.url()}`);
  });
  shown.setDefaultTimeout(15_000);
  return { shown, faults };
}

export const PHONE = { width: 390, height: 844 };

/** Serious and critical findings of axe. @param {import('playwright-core').Page} shown @returns {Promise<string[]>} */
export async function grave(shown) {
  if (!(await shown.evaluate(() => 'axe' in window))) await shown.evaluate(axe.source);
  const { violations } = await shown.evaluate(() => /** @type {any} */ (window).axe.run());
  return violations.filter((/** @type {any} */ each) => ['serious', 'critical'].includes(each.impact))
    .map((/** @type {any} */ each) => `${each.id}: ${each.nodes.map((/** @type {any} */ node) => node.html).slice(0, 3)}`);
}

/**
 * Finds text that a person could not read: beside the window, in a box that scrolls or cuts sideways,
 * in a cell that is too small, in letters below 11 pixels, or a word whose letters are in two lines.
 *
 * @param {import('playwright-core').Page} shown
 * @returns {Promise<string[]>}
 */
export const unreadable = (shown) => shown.evaluate(() => {
  const root = /** @type {Element} */ (document.scrollingElement);
  const found = new Set(root.scrollWidth > innerWidth ? [`the page is ${root.scrollWidth} pixels wide`] : []);
  // Words for screen readers alone are clipped away.
  const isClipped = (/** @type {Element | null} */ element) => element !== null && (getComputedStyle(element).clipPath !== 'none' || isClipped(element.parentElement));
  const isHidden = (/** @type {Element} */ element) => !element.checkVisibility({ visibilityProperty: true }) || element.closest('.skip') || isClipped(element);
  for (const element of document.body.querySelectorAll('*')) {
    if (isHidden(element) || element.closest('svg') || element.matches('input, select, textarea')) continue;
    const { overflowX } = getComputedStyle(element);
    const isCut = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0;
    if (isCut && (overflowX !== 'visible' || element.matches('td, th'))) found.add(`cut sideways: ${element.outerHTML.slice(0, 120)}`);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    const text = node.textContent ?? '';
    if (!element || !text.trim() || element.matches('option, title') || isHidden(element)) continue;
    range.selectNodeContents(node);
    const { left, right } = range.getBoundingClientRect();
    if (left === right) continue;
    if (left < -0.5 || right > innerWidth + 0.5) found.add(`beside the window: ${text.trim().slice(0, 60)}`);
    const drawing = /** @type {SVGGraphicsElement | null} */ (element.closest('svg text'));
    const pixels = parseFloat(getComputedStyle(element).fontSize) * (drawing?.getScreenCTM()?.a ?? 1);
    if (pixels < 11) found.add(`${pixels.toFixed(1)} pixels small: ${text.trim().slice(0, 60)}`);
    if (element.closest('pre, code, svg')) continue;
    // Longer ones, such as ids, may break, and so may any at a hyphen or a slash.
    for (const word of text.matchAll(/[^\s/-]+/g)) {
      if (word[0].length > 16) continue;
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((line) => Math.round(line.top / 4)));
      if (lines.size > 1) found.add(`broken word: ${word[0]}`);
    }
  }
  return [...found].slice(0, 12);
});

export const close = async () => browser?.close();

/** Opens a screen and waits until it is there. */
export async function go(/** @type {import('playwright-core').Page} */ shown, /** @type {string} */ hash, base = url) {
  await shown.goto('about:blank');
  await shown.goto(`${base}/${hash}`);
  await shown.locator('main h1').first().waitFor();
}
