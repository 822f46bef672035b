import type { Block, Cell, Chart, ReportDocument, Table } from './document.js';
import { reportStyle } from './style.js';

/**
 * The report as one HTML file that fetches nothing and runs nothing: its policy forbids scripts and network, so that
 * even a hole in the escaping could do no harm.
 */
export function htmlReport({ title, blocks }: ReportDocument): string {
  return [
    '<!doctype html>',
    '<html lang="en">',
    '<head>',
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">`,
    '<meta name="color-scheme" content="light dark">',
    `<title>${escapeHtml(title)}</title>`,
    `<style>${reportStyle}</style>`,
    '</head>',
    '<body>',
    '<main>',
    `<h1>${escapeHtml(title)}</h1>`,
    ...blocks.map(blockHtml),
    '</main>',
    '</body>',
    '</html>',
    '',
  ].join('\n');
}

/** Text that is text in any element and any quoted attribute; controls, and marks that reverse or hide, become U+FFFD. */
export function escapeHtml(text: string): string {
  return text
    .replace(/(?![\n\t])[\p{Cc}\p{Cf}]/gu, '\ufffd')
    .replace(/&/g, '&amp;')
    .replace(/</g, '&lt;')
    .replace(/>/g, '&gt;')
    .replace(/"/g, '&quot;')
    .replace(/'/g, '&#39;');
}

function blockHtml(block: Block, index: number): string {
  switch (block.kind) {
    case 'heading':
      return `<h${block.level}>${escapeHtml(block.text)}</h${block.level}>`;
    case 'paragraph':
      return `<p>${escapeHtml(block.text)}</p>`;
    case 'list':
      return `<ul>${block.items.map((item) => `<li>${escapeHtml(item)}</li>`).join('')}</ul>`;
    case 'facts':
      return `<dl>${block.facts.map(([term, value]) => `<div><dt>${escapeHtml(term)}</dt><dd>${cellHtml(value)}</dd></div>`).join('')}</dl>`;
    case 'verdict':
      return `<p class="verdict ${block.verdict}"><strong>${block.verdict}</strong> ${escapeHtml(block.text)}</p>`;
    case 'chart':
      return chartHtml(block, index);
    case 'table':
      return tableHtml(block, index);
  }
}

/** The picture has its text alternative inside; the sentence below is for everybody. */
function chartHtml({ title, description, svg }: Chart, index: number): string {
  const [name, text] = [`figure-${index}`, `figure-${index}-text`];
  const labelled = svg.replace(
    /^<svg /,
    `<svg role="img" aria-labelledby="${name}" aria-describedby="${text}" `,
  );
  return `<figure>${labelled}<figcaption><b id="${name}">${escapeHtml(title)}</b> <span id="${text}">${escapeHtml(description)}</span></figcaption></figure>`;
}

function tableHtml({ caption, head, rows, figures = [], footnotes = [] }: Table, index: number): string {
  const id = `table-${index}`;
  const side = (column: number): string => (figures.includes(column) ? ' class="figure"' : '');
  const heads = head
    .map((text, column) => `<th scope="col"${side(column)}>${escapeHtml(text)}</th>`)
    .join('');
  const body = rows
    .map((row) => {
      const cells = row.map((cell, column) =>
        column === 0 ? `<th scope="row">${cellHtml(cell)}</th>` : `<td${side(column)}>${cellHtml(cell)}</td>`,
      );
      return `<tr>${cells.join('')}</tr>`;
    })
    .join('');
  const notes = footnotes.map((note) => `<li>${escapeHtml(note)}</li>`).join('');
  return [
    `<div class="scroll" role="region" aria-labelledby="${id}" tabindex="0">`,
    `<table><caption id="${id}">${escapeHtml(caption)}</caption>`,
    `<thead><tr>${heads}</tr></thead><tbody>${body}</tbody></table></div>`,
    notes === '' ? '' : `<ul class="notes">${notes}</ul>`,
  ].join('');
}

function cellHtml(cell: Cell): string {
  if (typeof cell === 'string') return escapeHtml(cell);
  if ('verdict' in cell) return `<span class="mark ${cell.verdict}">${cell.verdict}</span>`;
  return `<code>${escapeHtml(cell.code)}</code>`;
}
