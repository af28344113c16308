import { spawn } from 'node:child_process';
import type { Cluster, KubernetesObject } from '../../testbed/cluster.ts';
import { eachLine } from '../../testbed/command.ts';

/** From the change of a slice until the node's rules followed. Milliseconds. */
export interface ProgrammedChange {
  readonly address: string;
  readonly direction: 'removal' | 'addition';
  /** When a watch of the test's own brought the slice, by performance.now. */
  readonly at: number;
  readonly lag: number;
}

/** As far as it is read. */
export type Slice = KubernetesObject & {
  readonly endpoints:
    | readonly { readonly addresses: readonly string[]; readonly conditions: { readonly ready: boolean } }[]
    | null;
};

/**
 * kube-proxy's lag for one Service, observed from outside: the EndpointSlice by a watch, the rules by reading them
 * continuously. Runs in the node's network.
 */
export class ProgrammedRules {
  readonly changes: ProgrammedChange[] = [];
  readonly #ending = new AbortController();
  readonly #listed = new Map<string, ReadonlySet<string>>();
  #ready: ReadonlySet<string> = new Set();
  #programmed: ReadonlySet<string> = new Set();
  /** By address and direction: since when the rules are behind. */
  readonly #awaited = new Map<string, number>();
  readonly #ended: Promise<unknown>;

  constructor(cluster: Cluster, namespace: string, service: string) {
    this.#ended = Promise.all([this.#watch(cluster, namespace, service), this.#read(namespace, service)]);
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#ended;
  }

  async #watch({ api }: Cluster, namespace: string, service: string): Promise<void> {
    const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`);
    const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?watch=1&labelSelector=${selector}`;
    const { signal } = this.#ending;
    const onSlice = ({ metadata, endpoints }: Slice, at: number) => {
      const ready = (endpoints ?? []).filter(({ conditions }) => conditions.ready);
      this.#listed.set(metadata.name, new Set(ready.flatMap(({ addresses }) => addresses)));
      this.#listedNow(new Set([...this.#listed.values()].flatMap((each) => [...each])), at);
    };
    // Servers end watches occasionally.
    while (!signal.aborted) {
      await api
        .watch<Slice>(path, ({ object }) => onSlice(object, performance.now()), signal)
        .catch((error: unknown) => {
          if (!signal.aborted) throw error;
        });
    }
  }

  #listedNow(ready: ReadonlySet<string>, at: number): void {
    for (const address of difference(ready, this.#ready)) {
      const direction = ready.has(address) ? 'addition' : 'removal';
      this.#awaited.delete(`${address} ${direction === 'addition' ? 'removal' : 'addition'}`);
      // kube-proxy may have been quicker than this watch.
      if (this.#programmed.has(address) === ready.has(address))
        this.changes.push({ address, direction, at, lag: 0 });
      else this.#awaited.set(`${address} ${direction}`, at);
    }
    this.#ready = ready;
  }

  /**
   * @param by when the reading before this one had ended. The rules changed between what these two have read, and each
   *   reading is made some time between the end of the one before and its own end: so that instant is the middle
   */
  #programmedNow(programmed: ReadonlySet<string>, by: number): void {
    for (const address of difference(programmed, this.#programmed)) {
      const direction = programmed.has(address) ? 'addition' : 'removal';
      const at = this.#awaited.get(`${address} ${direction}`);
      if (at === undefined) continue;
      this.#awaited.delete(`${address} ${direction}`);
      this.changes.push({ address, direction, at, lag: Math.max(0, by - at) });
    }
    this.#programmed = programmed;
  }

  /** One line for each reading: the addresses to which the Service's rules lead. */
  async #read(namespace: string, service: string): Promise<void> {
    const rule = `--comment "${namespace}/${service}:[^ ]* -> `;
    const script = `while :; do iptables-save -t nat | grep -o -- '${rule}[0-9.]*' | tr '\\n' ' '; echo; sleep 0.005; done`;
    const reader = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = new Promise((resolve) => reader.once('close', resolve));
    this.#ending.signal.addEventListener('abort', () => reader.kill('SIGKILL'), { once: true });
    let before = performance.now();
    eachLine(reader.stdout, (line) => {
      const addresses = [...line.matchAll(/-> ([0-9.]+)/g)].map(([, address = '']) => address);
      this.#programmedNow(new Set(addresses), before);
      before = performance.now();
    });
    await ended;
  }
}

function difference<T>(a: ReadonlySet<T>, b: ReadonlySet<T>): readonly T[] {
  return [...[...a].filter((each) => !b.has(each)), ...[...b].filter((each) => !a.has(each))];
}
