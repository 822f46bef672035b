/**
 * A wall time with its zone, as records carry it: `2026-03-01T09:30:00.250+01:00` (RFC 3339).
 * `offsetMinutes` is the zone east of UTC, by default the zone that the system has at that time.
 */
export function zonedTime(epochMs: number, offsetMinutes = -new Date(epochMs).getTimezoneOffset()): string {
  const local = new Date(epochMs + offsetMinutes * 60_000).toISOString().slice(0, -1);
  if (offsetMinutes === 0) return `${local}Z`;
  const minutes = Math.abs(offsetMinutes);
  const pad = (value: number) => String(value).padStart(2, '0');
  return `${local}${offsetMinutes < 0 ? '-' : '+'}${pad(Math.floor(minutes / 60))}:${pad(minutes % 60)}`;
}
