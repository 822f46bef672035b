import type { Block, Cell, ReportDocument, Table } from './document.js';

/** The report as GitHub-flavoured Markdown; charts are told by their descriptions. */
export function markdownReport({ title, blocks }: ReportDocument): string {
  const parts = [`# ${escapeMarkdown(title)}`, ...blocks.map(blockText)];
  return `${parts.join('\n\n')}\n`;
}

/**
 * Text in which no character can begin markup: every ASCII punctuation mark that Markdown knows is escaped, angle
 * brackets and ampersands become entities, and line ends and other controls become spaces.
 */
export function escapeMarkdown(text: string): string {
  return flat(text)
    .replace(/[\\`*_{}[\]()#+\-.!|~=:@$^"']/g, '\\$&')
    .replace(/&/g, '&amp;')
    .replace(/</g, '&lt;')
    .replace(/>/g, '&gt;');
}

function blockText(block: Block): string {
  switch (block.kind) {
    case 'heading':
      return `${'#'.repeat(block.level)} ${escapeMarkdown(block.text)}`;
    case 'paragraph':
      return escapeMarkdown(block.text);
    case 'list':
      return block.items.map((item) => `- ${escapeMarkdown(item)}`).join('\n');
    case 'facts':
      return block.facts
        .map(([term, value]) => `- **${escapeMarkdown(term)}**: ${cellText(value)}`)
        .join('\n');
    case 'verdict':
      return `**${block.verdict.toUpperCase()}** ${escapeMarkdown(block.text)}`;
    case 'chart':
      return `*Figure: ${escapeMarkdown(block.title)}.* ${escapeMarkdown(block.description)}`;
    case 'table':
      return tableText(block);
  }
}

function tableText({ caption, head, rows, figures = [], footnotes = [] }: Table): string {
  const rule = head.map((_, column) => (figures.includes(column) ? '---:' : '---'));
  const lines = [
    `*${escapeMarkdown(caption)}*`,
    '',
    `| ${head.map((text) => escapeMarkdown(text)).join(' | ')} |`,
    `| ${rule.join(' | ')} |`,
    ...rows.map((row) => `| ${row.map(cellText).join(' | ')} |`),
  ];
  const notes = footnotes.map((note) => `- ${escapeMarkdown(note)}`);
  return [...lines, ...(notes.length === 0 ? [] : ['', ...notes])].join('\n');
}

function cellText(cell: Cell): string {
  if (typeof cell === 'string') return escapeMarkdown(cell);
  if ('verdict' in cell) return `**${cell.verdict}**`;
  // A code span shows backslashes as they are, so what could end it or the table's cell is left out of it
  return /^[\w./@+:-]+$/.test(cell.code) ? `\`${cell.code}\`` : escapeMarkdown(cell.code);
}

function flat(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ');
}
