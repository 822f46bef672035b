/**
 * A report as data: what HTML and Markdown both say. All text is plain; each renderer escapes all of it, so that nothing
 * a protocol, record or file name holds can become markup.
 */
export type Verdictish = 'pass' | 'fail' | 'inconclusive' | 'unmeasured';

/** A cell: text, text with a verdict's mark, or a digest or name set in a fixed pitch. */
export type Cell = string | { readonly verdict: Verdictish } | { readonly code: string };

export interface Table {
  readonly kind: 'table';
  readonly caption: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
  /** Columns whose cells are figures, set to the right. */
  readonly figures?: readonly number[];
  readonly footnotes?: readonly string[];
}

export interface Chart {
  readonly kind: 'chart';
  readonly title: string;
  /** What a reader who cannot see it is told. */
  readonly description: string;
  /** Made by `charts.ts`, whose texts the SVG serialiser escapes. */
  readonly svg: string;
}

export type Block =
  | { readonly kind: 'heading'; readonly level: 2 | 3; readonly text: string }
  | { readonly kind: 'paragraph'; readonly text: string }
  | { readonly kind: 'list'; readonly items: readonly string[] }
  | { readonly kind: 'facts'; readonly facts: readonly (readonly [term: string, value: Cell])[] }
  | { readonly kind: 'verdict'; readonly verdict: Verdictish; readonly text: string }
  | Table
  | Chart;

export interface ReportDocument {
  readonly title: string;
  readonly blocks: readonly Block[];
}

export const reportFormats = ['html', 'md'] as const;
export type ReportFormat = (typeof reportFormats)[number];
