import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { renderReport, reportDocument } from '../../src/lab/report/report.js';
import { reportSample } from './support/report-sample.js';

const executablePath = '/usr/bin/chromium';
const present = existsSync(executablePath);
if (!present) {
  process.stdout.write(`DID NOT RUN: the report in a browser, because ${executablePath} is not installed\n`);
}
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// What runs in the page is text, so that the rest of the program is not checked as if it ran in one
const outsideOfPage = `[...document.querySelectorAll('main > *')]
  .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map(({ tagName }) => tagName)`;
const figureSizes = `[...document.querySelectorAll('figure svg')].map((svg) => {
  const frame = svg.getBoundingClientRect();
  const labels = [...svg.querySelectorAll('text')].map((text) => text.getBoundingClientRect());
  return {
    width: frame.width,
    height: frame.height,
    least: Math.min(...labels.map(({ height }) => height)),
    outside: labels.filter(({ left, right }) => left < frame.left - 1 || right > frame.right + 1).length,
  };
})`;
const cutOff = `[...document.querySelectorAll('.scroll')]
  .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth + 1).length`;

interface FigureSize {
  readonly width: number;
  readonly height: number;
  /** Height of the smallest label. */
  readonly least: number;
  /** Labels that leave their figure. */
  readonly outside: number;
}

describe.skipIf(!present)('report in Chromium', () => {
  let browser: Browser;
  let html: string;
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
    const long = 'x'.repeat(300);
    const { archive, audit } = await reportSample({
      question: `Does a report hold ${long} without a space, and ordinary words as well?`,
      nonClaims: [`Nothing is said of ${long}`, 'Nothing is said of other models.'],
    });
    html = renderReport(reportDocument(archive!, audit), 'html');
  });
  afterAll(async () => {
    await browser?.close();
  });

  async function open(width: number, colorScheme: 'light' | 'dark'): Promise<{ page: Page; said: string[] }> {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    const said: string[] = [];
    page.on('console', (message) => said.push(message.text()));
    page.on('pageerror', (error) => said.push(error.message));
    page.on('request', ({ url }) => said.push(`request ${url()}`));
    await page.setContent(html);
    return { page, said };
  }

  test.each([
    [360, 'light'],
    [360, 'dark'],
    [800, 'light'],
    [800, 'dark'],
    [1400, 'light'],
    [1400, 'dark'],
  ] as const)('fits %i pixels (%s), says nothing, and is clean by axe', async (width, scheme) => {
    const { page, said } = await open(width, scheme);
    expect(
      await page.evaluate('[document.documentElement.scrollWidth, document.documentElement.clientWidth]'),
    ).toEqual([width, width]);
    expect(await page.evaluate(outsideOfPage)).toEqual([]);
    expect(said).toEqual([]);
    // Given to the page by the debugger, so the page's own policy against scripts stays as it is
    await page.evaluate(axe);
    const violations = await page.evaluate(async () => {
      const { axe: checker } = globalThis as unknown as {
        axe: { run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
      };
      const found = await checker.run({ resultTypes: ['violations'] });
      return found.violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
    });
    expect(violations).toEqual([]);
    await page.close();
  });

  test('draws figures that can be seen, with labels that can be read', async () => {
    const { page } = await open(360, 'light');
    const figures = await page.evaluate<FigureSize[]>(figureSizes);
    expect(figures).toHaveLength(4);
    for (const { width, height, least, outside } of figures) {
      expect(width).toBeGreaterThan(300);
      expect(height).toBeGreaterThan(80);
      expect(least).toBeGreaterThan(8);
      expect(outside).toBe(0);
    }
    await page.close();
  });

  test('prints on light ground with nothing cut off', async () => {
    const { page } = await open(794, 'dark');
    await page.emulateMedia({ media: 'print' });
    expect(await page.evaluate('getComputedStyle(document.body).backgroundColor')).toBe('rgb(255, 255, 255)');
    expect(await page.evaluate(cutOff)).toBe(0);
    expect((await page.pdf({ format: 'A4' })).byteLength).toBeGreaterThan(10_000);
    await page.close();
  });
});
