import * as Plot from '@observablehq/plot';
import { parseHTML } from 'linkedom';

/** Wide enough for its labels, narrow enough that they stay legible at 360 CSS pixels. */
export const chartWidth = 420;

/**
 * Fills that keep a contrast of 3 to a white and to a near-black ground; in a fixed order, so that the same series has
 * the same fill in every figure.
 */
export const fills = ['#2f7fc1', '#c4621d', '#2f8f57', '#a65fb0', '#8a7a1f', '#6f7885', '#c8485a', '#148a8a'];

/**
 * Draws a plot without a browser, to the same bytes each time. Labels for screen readers are taken off its parts: the
 * figure has one name and one description.
 */
export function plotSvg(options: Plot.PlotOptions): string {
  const { document } = parseHTML('<!doctype html><html><body></body></html>');
  const drawn = Plot.plot({
    document: document as unknown as NonNullable<Plot.PlotOptions['document']>,
    width: chartWidth,
    style: { fontSize: '12px', background: 'none' },
    ...options,
  });
  const svg = drawn.tagName.toLowerCase() === 'svg' ? drawn : drawn.querySelector('svg');
  if (svg === null) throw new TypeError('Cannot draw the chart: Plot gave no SVG element');
  for (const style of svg.querySelectorAll('style')) style.remove();
  for (const part of svg.querySelectorAll('[aria-label],[aria-hidden]')) {
    part.removeAttribute('aria-label');
    part.removeAttribute('aria-hidden');
  }
  svg.removeAttribute('class');
  // A thousandth of a pixel is enough; labels are left as they are
  return svg.outerHTML.replace(/="[^"]*"/g, (value: string) => value.replace(/(\d+\.\d{3})\d+/g, '$1'));
}
