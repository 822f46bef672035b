import type { Protocol } from './protocol-schema.js';

/** Why a program (`program/waybill@0.1.0`) may not run a protocol, or null. */
export function programProblem({ program }: Protocol, name: string): string | null {
  if (program === 'any') return null;
  const version = name.slice(name.lastIndexOf('@') + 1);
  if (!/^\d+\.\d+\.\d+/.test(version)) return `"${name}" names no version`;
  const within =
    compareVersions(version, program.atLeast) >= 0 && compareVersions(version, program.below) < 0;
  return within
    ? null
    : `version ${version} is outside of the range, want at least ${program.atLeast} and below ${program.below}`;
}

/** Order of versions by their three numbers; what follows a "-" is not looked at. */
function compareVersions(a: string, b: string): number {
  const numbers = (text: string): number[] => text.split('-')[0]!.split('.').map(Number);
  const [left, right] = [numbers(a), numbers(b)];
  for (let place = 0; place < 3; place++) {
    const difference = (left[place] ?? 0) - (right[place] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
