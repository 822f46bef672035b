import type { Audit } from '../audit.js';
import type { JudgedArchive } from '../lab-receipt.js';
import type { ReportDocument, ReportFormat } from './document.js';
import { environmentSection } from './environment-section.js';
import { htmlReport } from './html.js';
import { markdownReport } from './markdown.js';
import {
  bytesSection,
  memorySection,
  metricSection,
  phaseSection,
  resourceSection,
} from './measurement-sections.js';
import { designSection, deviationSection, digestSection, nonClaimSection } from './record-sections.js';
import { effectSection, verdictSection } from './verdict-sections.js';

/** Everything a report says, recomputed from raw records; `audit` is that of the archive, null for a bare run. */
export function reportDocument(archive: JudgedArchive, audit: Audit | null): ReportDocument {
  const { run } = archive;
  return {
    title: `Lab report: ${run.part.protocol.protocol.name}`,
    blocks: [
      ...verdictSection(archive),
      ...nonClaimSection(run),
      ...effectSection(archive),
      ...metricSection(run),
      ...bytesSection(run),
      ...memorySection(run),
      ...phaseSection(run),
      ...resourceSection(run),
      ...deviationSection(archive),
      ...designSection(run),
      ...environmentSection(run),
      ...digestSection(archive, audit),
    ],
  };
}

/** The report as text: the same bytes for the same archive. */
export function renderReport(document: ReportDocument, format: ReportFormat): string {
  return format === 'html' ? htmlReport(document) : markdownReport(document);
}
