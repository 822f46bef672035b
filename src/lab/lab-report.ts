import { InputError, TamperedError } from '../base/errors.js';
import type { AuditedArchive } from './audit.js';
import type { ReportFormat } from './report/document.js';

/**
 * The report of an audited archive as one HTML or Markdown text. What draws it is loaded at the first call.
 * @throws TamperedError with what the audit found broken
 */
export async function labReport({ archive, audit }: AuditedArchive, format: ReportFormat): Promise<string> {
  if (audit.broken !== null) throw new TamperedError(audit.broken.code, audit.broken.problem);
  if (archive === null) throw new InputError('no-archive', 'Cannot report on an archive that was not read');
  const { renderReport, reportDocument } = await import('./report/report.js');
  return renderReport(reportDocument(archive, audit), format);
}
