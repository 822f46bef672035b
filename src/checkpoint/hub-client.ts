import { listFiles, modelInfo } from '@huggingface/hub';
import { z } from 'zod';
import { InterruptedError, SetupError, WaybillError } from '../base/errors.js';
import { type HubId, isCommit } from './hub-id.js';
import type { HubSettings } from './hub-settings.js';

/** A file of a repository at one commit. */
export interface HubFile {
  readonly path: string;
  readonly byteLength: number;
  /** `sha256` of the bytes for a Git LFS file, else the id of the Git blob (SHA-1 over a header and the bytes). */
  readonly digest: { readonly kind: 'sha256' | 'git-blob'; readonly hex: string };
}

const entrySchema = z.object({
  type: z.string(),
  path: z.string().min(1),
  size: z.int().nonnegative(),
  oid: z.string().regex(/^[0-9a-f]{40}$/),
  lfs: z.object({ oid: z.string().regex(/^[0-9a-f]{64}$/), size: z.int().nonnegative() }).optional(),
});

/**
 * One repository on the hub. The library builds the addresses and reads the answers; what it lacks is added here: the
 * endpoint of HF_ENDPOINT, any form of token, typed errors, cancelling.
 */
export class HubClient {
  readonly #settings: HubSettings;
  readonly #id: HubId;
  readonly #signal: AbortSignal | undefined;

  constructor(settings: HubSettings, id: HubId, signal?: AbortSignal) {
    this.#settings = settings;
    this.#id = id;
    this.#signal = signal;
  }

  /** The commit that the revision names now. */
  async commit(): Promise<string> {
    const info = await this.#answer(() =>
      modelInfo({
        name: this.#id.name,
        revision: this.#id.revision,
        additionalFields: ['sha'],
        ...this.#access(),
      }),
    );
    if (typeof info.sha !== 'string' || !isCommit(info.sha)) throw this.#badAnswer('it names no commit');
    return info.sha;
  }

  /** Every file of the repository at `commit`. */
  async files(commit: string): Promise<HubFile[]> {
    return await this.#answer(async () => {
      const files: HubFile[] = [];
      const listing = listFiles({
        repo: this.#id.name,
        revision: commit,
        recursive: true,
        ...this.#access(),
      });
      for await (const entry of listing) {
        if (entry.type !== 'file') continue;
        const parsed = entrySchema.safeParse(entry);
        if (!parsed.success) throw this.#badAnswer(`its entry for "${entry.path}" is malformed`);
        const { path, size, oid, lfs } = parsed.data;
        files.push({
          path,
          byteLength: lfs?.size ?? size,
          digest: lfs === undefined ? { kind: 'git-blob', hex: oid } : { kind: 'sha256', hex: lfs.oid },
        });
      }
      return files;
    });
  }

  /** The bytes of a file from `firstByte` on; the answer may ignore that and begin at 0 (status 200). */
  async open(commit: string, path: string, firstByte: number): Promise<Response> {
    const address = path.split('/').map(encodeURIComponent).join('/');
    return await this.#fetch(`${this.#settings.endpoint}/${this.#id.name}/resolve/${commit}/${address}`, {
      headers: {
        // A compressed answer has other lengths and cannot be resumed.
        'Accept-Encoding': 'identity',
        ...(firstByte > 0 ? { Range: `bytes=${firstByte}-` } : {}),
      },
    });
  }

  #access(): { hubUrl: string; fetch: typeof fetch } {
    return { hubUrl: this.#settings.endpoint, fetch: (input, init) => this.#fetch(input, init) };
  }

  async #fetch(input: Parameters<typeof fetch>[0], init: RequestInit = {}): Promise<Response> {
    const { endpoint, token } = this.#settings;
    const url = new URL(input instanceof Request ? input.url : input);
    const headers = new Headers(init.headers);
    if (token !== null && url.origin === new URL(endpoint).origin)
      headers.set('Authorization', `Bearer ${token}`);
    let response: Response;
    try {
      response = await fetch(url, {
        ...init,
        headers,
        ...(this.#signal === undefined ? {} : { signal: this.#signal }),
      });
    } catch (cause) {
      throw this.#unreachable(cause);
    }
    if (response.ok) return response;
    await response.body?.cancel().catch(() => {});
    throw this.#refusal(response);
  }

  /** Errors of reading an answer, beyond those of `#fetch`: cut or malformed JSON. */
  async #answer<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (cause) {
      if (cause instanceof WaybillError) throw cause;
      if (cause instanceof SyntaxError) throw this.#badAnswer('it is no JSON', cause);
      throw this.#unreachable(cause);
    }
  }

  /** What a failed connection means, whether it failed at once or in the middle of a file. */
  #unreachable(cause: unknown): WaybillError {
    const { name } = this.#id;
    if (this.#signal?.aborted === true) {
      return new InterruptedError(
        'interrupted',
        `Fetching "${name}" failed: cancelled`,
        { model: name },
        { cause },
      );
    }
    const reason = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
    const text = reason instanceof Error ? reason.message || reason.name : String(reason);
    return new SetupError(
      'hub-unreachable',
      `Fetching "${name}" failed: no connection to "${this.#settings.endpoint}" (${text})`,
      { model: name, endpoint: this.#settings.endpoint },
      { cause },
    );
  }

  /** The error for a connection that broke while a file came. */
  lost(cause: unknown): WaybillError {
    return cause instanceof WaybillError ? cause : this.#unreachable(cause);
  }

  #badAnswer(reason: string, cause?: unknown): SetupError {
    return new SetupError(
      'hub-bad-answer',
      `Fetching "${this.#id.name}" failed: the answer of "${this.#settings.endpoint}" cannot be used, ${reason}`,
      { model: this.#id.name, endpoint: this.#settings.endpoint },
      { cause },
    );
  }

  #refusal(response: Response): SetupError {
    const { endpoint, token } = this.#settings;
    const { name, revision } = this.#id;
    const { status } = response;
    const hubCode = response.headers.get('X-Error-Code');
    const data = { model: name, revision, endpoint, status, hubCode };
    const fail = (code: string, reason: string): SetupError =>
      new SetupError(code, `Fetching "${name}" failed: ${reason}`, data);
    const access =
      token === null ? 'set HF_TOKEN to a token with access' : 'the token in HF_TOKEN has no access';

    if (hubCode === 'GatedRepo') {
      return fail('hub-gated', `the model is gated, accept its terms at "${endpoint}/${name}" and ${access}`);
    }
    if (hubCode === 'RevisionNotFound') {
      return fail('hub-revision-unknown', `"${endpoint}" has no revision "${revision}" of it`);
    }
    if (hubCode === 'EntryNotFound') return fail('hub-file-missing', `"${response.url}" does not exist`);
    // The hub answers 401 for what does not exist, so as not to tell what is private.
    if (status === 404 || hubCode === 'RepoNotFound') {
      return fail('hub-not-found', `"${endpoint}" has no such model, or it is private and ${access}`);
    }
    if (status === 401 || status === 403) {
      return fail('hub-unauthorised', `"${endpoint}" refuses access with status ${status}, ${access}`);
    }
    if (status === 429) return fail('hub-rate-limited', `"${endpoint}" asks to wait (status 429)`);
    return fail('hub-server-error', `"${endpoint}" answers with status ${status}`);
  }
}
