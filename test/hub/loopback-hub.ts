import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface HubFileSpec {
  readonly bytes: Buffer;
  /** Large files are Git LFS files on the hub: named by SHA-256, served by another host. */
  readonly lfs: boolean;
}

/** What the server does wrong, for one file. */
export interface Fault {
  /** Cut the connection after so many bytes of an answer, this many times. */
  cutAfter?: { bytes: number; times: number };
  ignoreRange?: boolean;
  /** Serve other bytes of the same length. */
  corrupt?: boolean;
  /** Serve fewer bytes, as if the file were shorter. */
  shorten?: number;
  /** State another size in the listing. */
  statedSize?: number;
  statusOnce?: number;
}

export interface SeenRequest {
  readonly url: string;
  readonly range: string | null;
  readonly authorization: string | null;
  readonly host: 'hub' | 'store';
}

/** A hub of one repository on loopback, with a second server as the store that LFS files are redirected to. */
export class LoopbackHub {
  readonly name = 'org/tiny-opt';
  readonly commit = 'c0ffee'.padEnd(40, '1');
  readonly files = new Map<string, HubFileSpec>();
  readonly faults = new Map<string, Fault>();
  readonly revisions = new Map<string, string>([['main', this.commit]]);
  readonly seen: SeenRequest[] = [];
  /** Only this token is let in; null lets everybody in. */
  token: string | null = null;
  gated = false;
  entriesPerPage = 3;
  #hub: Server | null = null;
  #store: Server | null = null;

  async start(): Promise<void> {
    this.#hub = await listen((request, response) => this.#onHub(request, response));
    this.#store = await listen((request, response) => this.#onStore(request, response));
  }

  async stop(): Promise<void> {
    await Promise.all([close(this.#hub), close(this.#store)]);
    this.#hub = null;
    this.#store = null;
  }

  get endpoint(): string {
    return address(this.#hub);
  }

  /** Requests for the bytes of `path`, redirects not counted. */
  fetchesOf(path: string): SeenRequest[] {
    const lfs = this.files.get(path)?.lfs === true;
    return this.seen.filter(({ url, host }) => host === (lfs ? 'store' : 'hub') && url.endsWith(`/${path}`));
  }

  add(path: string, bytes: Buffer | string, lfs = false): void {
    this.files.set(path, { bytes: Buffer.from(bytes), lfs });
  }

  #onHub(request: IncomingMessage, response: ServerResponse): unknown {
    const url = new URL(request.url ?? '/', this.endpoint);
    this.#note(request, 'hub');
    const authorized = this.token === null || request.headers.authorization === `Bearer ${this.token}`;
    if (!authorized || this.gated) {
      response.setHeader('X-Error-Code', this.gated ? 'GatedRepo' : '');
      return answer(response, this.gated ? 403 : 401, { error: 'no access' });
    }
    const match = /^\/(?:api\/models\/)?org\/tiny-opt\/(revision|tree|resolve)\/([^/]+)(?:\/(.*))?$/.exec(
      url.pathname,
    );
    if (match === null) {
      response.setHeader('X-Error-Code', 'RepoNotFound');
      return answer(response, 404, { error: 'Repository not found' });
    }
    const [, kind, revision, path] = match;
    const commit =
      this.revisions.get(decodeURIComponent(revision!)) ?? (revision === this.commit ? this.commit : null);
    if (commit === null) {
      response.setHeader('X-Error-Code', 'RevisionNotFound');
      return answer(response, 404, { error: 'Invalid rev id' });
    }
    if (kind === 'revision')
      return answer(response, 200, { _id: '1', id: this.name, sha: commit, lastModified: 0 });
    if (kind === 'tree') {
      this.#tree(url, response);
      return;
    }
    const file = this.files.get(decodeURIComponent(path ?? ''));
    if (file === undefined) {
      response.setHeader('X-Error-Code', 'EntryNotFound');
      return answer(response, 404, { error: 'Entry not found' });
    }
    if (!file.lfs) return this.#send(path!, file.bytes, request, response);
    response.writeHead(302, { Location: `${address(this.#store)}/store/${path}` }).end();
  }

  #onStore(request: IncomingMessage, response: ServerResponse): void {
    this.#note(request, 'store');
    const path = (request.url ?? '').replace('/store/', '');
    this.#send(path, this.files.get(path)!.bytes, request, response);
  }

  #tree(url: URL, response: ServerResponse): void {
    const all = [...this.files].map(([path, { bytes, lfs }]) => {
      const size = this.faults.get(path)?.statedSize ?? bytes.length;
      const oid = gitBlobId(bytes);
      return {
        type: 'file',
        path,
        size,
        oid,
        ...(lfs ? { lfs: { oid: sha256(bytes), size, pointerSize: 130 } } : {}),
      };
    });
    const listed = [{ type: 'directory', path: 'runs', size: 0, oid: ''.padEnd(40, 'a') }, ...all];
    const from = Number(url.searchParams.get('cursor') ?? 0);
    const until = from + this.entriesPerPage;
    if (until < listed.length) {
      url.searchParams.set('cursor', String(until));
      response.setHeader('Link', `<${url.href}>; rel="next"`);
    }
    answer(response, 200, listed.slice(from, until));
  }

  #send(path: string, whole: Buffer, request: IncomingMessage, response: ServerResponse): unknown {
    const fault = this.faults.get(path) ?? {};
    if (fault.statusOnce !== undefined) {
      const status = fault.statusOnce;
      delete fault.statusOnce;
      return answer(response, status, { error: 'busy' });
    }
    let bytes = fault.corrupt === true ? Buffer.from(whole.map((byte) => byte ^ 1)) : whole;
    if (fault.shorten !== undefined) bytes = bytes.subarray(0, bytes.length - fault.shorten);
    const start = /^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1];
    const first = start === undefined || fault.ignoreRange === true ? 0 : Number(start);
    if (first > 0 && first >= bytes.length) return answer(response, 416, { error: 'range' });
    const body = bytes.subarray(first);
    if (first > 0) response.setHeader('Content-Range', `bytes ${first}-${bytes.length - 1}/${bytes.length}`);
    response.writeHead(first > 0 ? 206 : 200, { 'Content-Length': body.length, ETag: `"${sha256(whole)}"` });
    const cut = fault.cutAfter;
    if (cut !== undefined && cut.times > 0) {
      cut.times -= 1;
      response.write(body.subarray(0, cut.bytes), () => setTimeout(() => response.destroy(), 20));
      return;
    }
    response.end(body);
  }

  #note(request: IncomingMessage, host: SeenRequest['host']): void {
    const { range, authorization } = request.headers;
    this.seen.push({
      url: request.url ?? '',
      range: range ?? null,
      authorization: authorization ?? null,
      host,
    });
  }
}

export function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

export function gitBlobId(bytes: Buffer): string {
  return createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
}

function answer(response: ServerResponse, status: number, body: unknown): unknown {
  return response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}

async function listen(
  handler: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Server> {
  const server = createServer(handler);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return server;
}

async function close(server: Server | null): Promise<void> {
  if (server === null) return;
  server.closeAllConnections();
  await new Promise<void>((done) => server.close(() => done()));
}

function address(server: Server | null): string {
  if (server === null) throw new Error('the server is not running');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
