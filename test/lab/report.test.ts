import { parseHTML } from 'linkedom';
import { describe, expect, test } from 'vitest';
import { stackedBars } from '../../src/lab/report/charts.js';
import { escapeHtml } from '../../src/lab/report/html.js';
import { escapeMarkdown } from '../../src/lab/report/markdown.js';
import { renderReport, reportDocument } from '../../src/lab/report/report.js';
import { reportSample } from './support/report-sample.js';

const plain = reportSample();

async function rendered(
  format: 'html' | 'md',
  changes: Parameters<typeof reportSample>[0] = {},
): Promise<string> {
  const { archive, audit } = await (Object.keys(changes).length === 0 ? plain : reportSample(changes));
  return renderReport(reportDocument(archive!, audit), format);
}

const hostile = {
  question:
    'Is <script>alert(1)</script> "quoted" & \'fine\' | `code` [a](javascript:alert(1)) <img src=x onerror=alert(1)> ?',
  nonClaims: [
    '</style></li><svg onload=alert(1)>',
    '# no heading\n- no list\n\n<b>no bold</b> **no** _no_',
    '\u202egnp.exe',
  ],
};

describe('report', () => {
  test('has every section, with its figures', async () => {
    const { document } = parseHTML(await rendered('html'));
    const headings = [...document.querySelectorAll('h2')].map(({ textContent }) => textContent);
    expect(headings).toEqual([
      'Question',
      'Verdicts',
      'What this does not show',
      'Effects',
      'Measurements',
      'Bytes by cause',
      'Memory over time',
      'Time by phase',
      'Resources charged',
      'Deviations and failures',
      'Design',
      'Environment',
      'Digests',
    ]);
    const text = document.body.textContent ?? '';
    for (const wanted of [
      'same bits',
      'not slower',
      'Geometric mean ratio',
      'Noise floor (A/A)',
      'Ratio of medians',
      'covers about 88 % at 10 pairs',
      'Nothing is said of other models.',
      'was killed: nothing says how it ended',
      'max of p95',
      'rest on whoever signed',
    ]) {
      expect(text).toContain(wanted);
    }
    expect(document.querySelectorAll('figure svg')).toHaveLength(4);
  });

  test('charges what a warm-up took to set up', async () => {
    const { document } = parseHTML(await rendered('html'));
    const cells = (label: string): (string | null)[] => {
      const row = [...document.querySelectorAll('tr')].find(
        (candidate) => candidate.querySelector('th')?.textContent === label,
      );
      return [...(row?.querySelectorAll('td') ?? [])].map(({ textContent }) => textContent);
    };
    expect(cells('Setup')).toEqual(['2.500 s', '2.500 s']);
    expect(cells('Moved while setting up')).toEqual(['3 MiB', '3 MiB']);
  });

  test('is accessible by its structure', async () => {
    const { document } = parseHTML(await rendered('html'));
    expect(document.documentElement.getAttribute('lang')).toBe('en');
    expect(document.querySelectorAll('h1')).toHaveLength(1);
    for (const svg of document.querySelectorAll('svg')) {
      expect(svg.getAttribute('role')).toBe('img');
      for (const reference of ['aria-labelledby', 'aria-describedby']) {
        expect(document.getElementById(svg.getAttribute(reference)!)?.textContent?.length).toBeGreaterThan(
          10,
        );
      }
    }
    for (const table of document.querySelectorAll('table')) {
      expect(table.querySelector('caption')?.textContent?.length).toBeGreaterThan(5);
      for (const head of table.querySelectorAll('th'))
        expect(head.getAttribute('scope')).toMatch(/^(row|col)$/);
    }
    const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('has the same bytes each time', async () => {
    const { archive, audit } = await reportSample();
    for (const format of ['html', 'md'] as const) {
      expect(renderReport(reportDocument(archive!, audit), format)).toBe(await rendered(format));
    }
  });

  test('fetches nothing and runs nothing', async () => {
    const html = await rendered('html');
    const { document } = parseHTML(html);
    expect(
      document.querySelectorAll('script,link,img,iframe,object,embed,form,a,base,use,image'),
    ).toHaveLength(0);
    expect(html).not.toMatch(/url\(|@import|\bsrc=|\bhref=/);
    const hosts = [...html.matchAll(/https?:\/\/[^"\s<]+/g)].map(([url]) => url);
    expect(new Set(hosts)).toEqual(new Set());
    expect(html).toContain(`default-src 'none'; style-src 'unsafe-inline'`);
  });

  test('takes no markup from a hostile protocol', async () => {
    const { document } = parseHTML(await rendered('html', hostile));
    expect(document.querySelectorAll('script,img,b:not([id])')).toHaveLength(0);
    for (const element of document.querySelectorAll('*')) {
      for (const { name } of element.attributes) expect(name).not.toMatch(/^on/);
    }
    expect(document.querySelectorAll('svg')).toHaveLength(4);
    expect(document.body.textContent).toContain(hostile.question);
    expect(document.body.textContent).toContain('\ufffdgnp.exe');
  });

  test('takes no markup from a hostile protocol in Markdown either', async () => {
    const [markdown, honest] = [await rendered('md', hostile), await rendered('md')];
    expect(markdown).not.toMatch(/<(?!!)/);
    expect(markdown).not.toContain('](javascript');
    const starts = (text: string, mark: RegExp) => text.split('\n').filter((line) => mark.test(line)).length;
    expect(starts(markdown, /^#/)).toBe(starts(honest, /^#/));
    expect(starts(markdown, /^- /)).toBe(starts(honest, /^- /) + hostile.nonClaims.length - 1);
    for (const line of markdown.split('\n').filter((text) => text.startsWith('|'))) {
      expect(line.replace(/\\\|/g, '').endsWith('|')).toBe(true);
    }
  });

  test('takes no markup from hostile names in figures', () => {
    const name = '<img src=x onerror=alert(1)>"&';
    const { document } = parseHTML(
      `<html><body>${stackedBars({ unit: name, bars: [{ arm: name, parts: [{ name, value: 1 }] }] })}</body></html>`,
    );
    expect(document.querySelectorAll('img,script')).toHaveLength(0);
    const texts = [...document.querySelectorAll('text')].map(({ textContent }) => textContent);
    expect(texts).toContain(name);
    expect(texts).toContain(`${name.slice(0, 25)}…`);
  });

  test('escapes whatever could begin markup', () => {
    expect(escapeHtml(`<a b="c" d='e'>&\u0000\u200b`)).toBe(
      '&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;\ufffd\ufffd',
    );
    expect(escapeMarkdown('a|b\n# c <d> `e` [f](g) \\')).toBe(
      'a\\|b \\# c &lt;d&gt; \\`e\\` \\[f\\]\\(g\\) \\\\',
    );
  });

  test('shows what is missing instead of leaving it out', async () => {
    const { archive, audit } = await plain;
    const { run } = archive!;
    const bare = {
      run: { ...run, selection: { ...run.selection, blocks: run.selection.blocks.map(() => null) } },
      noise: null,
      attempts: [],
    };
    const html = renderReport(reportDocument(bare, audit), 'html');
    for (const wanted of [
      'unmeasured',
      'No arm recorded its phases',
      'No arm recorded samples of memory',
      'No A/A run is in this archive',
    ]) {
      expect(html).toContain(wanted);
    }
  });
});
