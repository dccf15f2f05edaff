// A page in Chromium that notes everything that must not happen, and the calls of a test to the gateway.

import { spawnSync } from 'node:child_process';
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

export const close = async () => browser?.close();

/** Opens a screen and waits until it is there. */
export async function go(/** @type {import('playwright-core').Page} */ shown, /** @type {string} */ hash, base = url) {
  await shown.goto('about:blank');
  await shown.goto(`${base}/${hash}`);
  await shown.locator('main h1').first().waitFor();
}
