// The activation profile of a checkpoint, recorded anew where there is none of it.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseProfile, profileText } from '../../dist/acquire/activation-profile.js';
import { ActivationCounter } from '../../dist/generate/activation-counter.js';
import { openModel } from '../../dist/generate/session.js';

/** From other positions and tokens than trials use. Gives the path of the file and the share of neurons that was active. */
export async function profileOf(options, prompt) {
  const session = await openModel({ ...options, policy: 'packets', contextPositions: 400, prefillChunk: 16 });
  try {
    const { prepared } = session.plan;
    const path = join(prepared.directory, 'bench-profile.json');
    const known = existsSync(path) ? parseProfile(readFileSync(path, 'utf8'), path) : null;
    if (known?.checkpoint === prepared.sourceDigest) return { path, activeShare: shareOf(known) };
    const counter = new ActivationCounter(prepared.description);
    session.observer = counter.observer;
    for await (const _ of session.generate([prompt], { maxNewTokens: 16, ignoreEos: true }));
    session.observer = null;
    const profile = counter.profile(prepared.sourceDigest);
    writeFileSync(path, profileText(profile));
    return { path, activeShare: shareOf(profile) };
  } finally {
    await session.close();
  }
}

function shareOf({ matrices, tokens }) {
  const uses = matrices.reduce((sum, { counts }) => sum + counts.reduce((all, count) => all + count, 0), 0);
  return uses / tokens / matrices.reduce((sum, { counts }) => sum + counts.length, 0);
}
