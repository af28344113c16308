import { readdirSync, readFileSync } from 'node:fs';
import { auditPosition, readRefusals } from '../../testbed/audit.ts';
import type { Cluster, KubernetesObject } from '../../testbed/cluster.ts';

export interface InstalledReplica {
  readonly name: string;
  readonly uid: string;
  readonly address: string;
}

/** The replicas that deploy/ has started and that do not terminate, with their metrics and logs. */
export class InstalledReplicas {
  readonly #cluster: Cluster;
  readonly #namespace: string;
  readonly #since: number;

  constructor(cluster: Cluster, namespace = 'linger') {
    this.#cluster = cluster;
    this.#namespace = namespace;
    this.#since = cluster.auditLog === undefined ? 0 : auditPosition(cluster.auditLog);
  }

  /** Their forbidden requests, by the API server's audit log. */
  refusals(): readonly string[] {
    const { auditLog } = this.#cluster;
    if (auditLog === undefined) return [];
    return readRefusals(auditLog, `system:serviceaccount:${this.#namespace}:linger`, this.#since);
  }

  async list(): Promise<readonly InstalledReplica[]> {
    type ReplicaPod = KubernetesObject & { status: { podIP: string } };
    const pods = await this.#cluster.list<ReplicaPod>(
      { apiVersion: 'v1', kind: 'Pod', namespace: this.#namespace },
      'app.kubernetes.io/name=linger',
    );
    return pods
      .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
      .map(({ metadata: { name, uid = '' }, status }) => ({ name, uid, address: status.podIP }));
  }

  /** The samples of each replica's metrics that begin with this text: by its name, the lines. */
  async samples(beginning: string): Promise<ReadonlyMap<string, readonly string[]>> {
    const read = (await this.list()).map(async ({ name, address }) => {
      const text = await (await fetch(`http://${address}:8080/metrics`)).text();
      return [name, text.split('\n').filter((line) => line.startsWith(beginning))] as const;
    });
    return new Map(await Promise.all(read));
  }

  /** The sum of each replica's samples that begin with this text. */
  async sums(beginning: string): Promise<ReadonlyMap<string, number>> {
    const samples = [...(await this.samples(beginning))];
    return new Map(samples.map(([name, lines]) => [name, total(lines)]));
  }

  /** One sample's value in each replica; NaN if absent. */
  async each(sample: string): Promise<readonly number[]> {
    const samples = [...(await this.samples(`${sample} `)).values()];
    return samples.map((lines) => (lines.length === 0 ? Number.NaN : total(lines)));
  }

  /** The sum of a metric's samples in all replicas, of those with this among their labels. */
  async sum(metric: string, label = ''): Promise<number> {
    const lines = [...(await this.samples(metric)).values()].flat();
    return total(lines.filter((line) => line.includes(label)));
  }

  /** The whole log of each, by its name. */
  async logs(): Promise<ReadonlyMap<string, string>> {
    const texts = (await this.list()).map(
      async ({ name }) => [name, await this.#cluster.containerLogs(this.#namespace, name, 'linger')] as const,
    );
    return new Map(await Promise.all(texts));
  }
}

function total(lines: readonly string[]): number {
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

/** @returns the processes that run Linger in this pod */
export function processesOf(uid: string): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const program = readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('/app/dist/main.js');
        return program && readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(uid);
      } catch {
        // It has already ended.
        return false;
      }
    })
    .map(Number);
}
