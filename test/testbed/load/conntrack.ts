import { type ChildProcess, spawn } from 'node:child_process';
import { eachLine, run } from '../command.ts';
import { findProgram } from '../requirements.ts';
import { sourceKey } from './ports.ts';

export interface Endpoint {
  readonly address: string;
  readonly port: number;
}

/** One tracked connection: who opened it to what, and who really answers (after DNAT). */
export interface TrackedConnection {
  readonly source: Endpoint;
  readonly destination: Endpoint;
  readonly backend: Endpoint;
}

/**
 * Reads a line of `conntrack -L` or `-E`. It holds two tuples: the connection as it was
 * opened, then as the answer comes back; the answer's source is the backend.
 */
export function parseConntrack(line: string): TrackedConnection | undefined {
  const values = (name: string) =>
    [...line.matchAll(new RegExp(`\\b${name}=(\\S+)`, 'g'))].map((match) => match[1]);
  const [source, backend] = values('src');
  const [destination] = values('dst');
  const [sourcePort, backendPort] = values('sport');
  const [destinationPort] = values('dport');
  if (
    source === undefined ||
    backend === undefined ||
    destination === undefined ||
    backendPort === undefined
  ) {
    return undefined;
  }
  return {
    source: { address: source, port: Number(sourcePort) },
    destination: { address: destination, port: Number(destinationPort) },
    backend: { address: backend, port: Number(backendPort) },
  };
}

/** Sources of the connections that the kernel remembers now. Empty where conntrack cannot be asked. */
export async function trackedSources(): Promise<Set<string>> {
  const conntrack = findProgram('conntrack');
  if (conntrack === undefined) return new Set();
  const { stdout } = await run([conntrack, '-L', '-p', 'tcp']);
  const connections = stdout.split('\n').map(parseConntrack);
  return new Set(
    connections.flatMap((connection) => (connection === undefined ? [] : [sourceKey(connection.source)])),
  );
}

/**
 * Learns which backend each connection to a ClusterIP was sent to, from conntrack's
 * events. Not from its table: the kernel forgets a refused connection at once
 * (nf_conntrack_tcp.c: a first answer that is a RST deletes the entry).
 */
export class BackendWatch {
  readonly #process: ChildProcess;
  readonly #backends = new Map<string, Endpoint>();
  #complaint: string | undefined;

  private constructor(child: ChildProcess) {
    this.#process = child;
  }

  /** Watches new connections to one address; undefined where conntrack cannot be run (no program, not root). */
  static async start(destination: string): Promise<BackendWatch | undefined> {
    const conntrack = findProgram('conntrack');
    if (conntrack === undefined || process.getuid?.() !== 0) return undefined;
    // 8 MiB of events, some 20,000: a burst must not overrun the socket's buffer.
    const args = ['-E', '-e', 'NEW', '-p', 'tcp', '--orig-dst', destination, '--buffer-size', '8388608'];
    const child = spawn(conntrack, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const watch = new BackendWatch(child);
    eachLine(child.stdout, (line) => watch.#read(line));
    eachLine(child.stderr, (line) => {
      // "WARNING: We have hit ENOBUFS! We are losing events." and the like; the rest is chatter.
      if (/warning|error|operation failed/i.test(line)) watch.#complaint = line.trim();
    });
    child.once('exit', (code) => {
      if (!child.killed) watch.#complaint ??= `exit ${code}`;
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
    return watch;
  }

  /** What conntrack complained about, for instance lost events; undefined when all is well. */
  get complaint(): string | undefined {
    return this.#complaint;
  }

  backendOf(source: string): Endpoint | undefined {
    return this.#backends.get(source);
  }

  /** A connection that went well needs no explanation. */
  forget(source: string): void {
    this.#backends.delete(source);
  }

  stop(): void {
    this.#process.kill();
  }

  #read(line: string): void {
    const connection = parseConntrack(line);
    if (connection !== undefined) this.#backends.set(sourceKey(connection.source), connection.backend);
  }
}
