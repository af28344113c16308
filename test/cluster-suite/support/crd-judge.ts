import { join } from 'node:path';
import fc from 'fast-check';
import { parseDocument } from '../../../src/core/api/index.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../../testbed/cluster.ts';

const CRDS = join(import.meta.dirname, '..', '..', '..', 'deploy', 'crds');

export interface Answer {
  readonly status: number;
  readonly message: string;
}

/** One of our kinds, as its CRD has it. */
export interface Kind {
  readonly kind: string;
  readonly plural: string;
  /** Where its objects are made; undefined: it is cluster-scoped. */
  readonly namespace?: string;
}

/** Requests that are under way at once. */
const PARALLEL = 10;
const SEED = 20_261_121;

/** A real API server that serves a kind from its CRD, beside what files are held to. */
export class CrdJudge {
  readonly cluster: Cluster;
  readonly path: string;
  readonly #kind: Kind;

  private constructor(cluster: Cluster, kind: Kind) {
    const scope = kind.namespace === undefined ? '' : `namespaces/${kind.namespace}/`;
    this.cluster = cluster;
    this.#kind = kind;
    this.path = `/apis/linger.dev/v1alpha1/${scope}${kind.plural}`;
  }

  static async open(kind: Kind): Promise<CrdJudge> {
    const cluster = await openCluster();
    const judge = new CrdJudge(cluster, kind);
    const apply = ['apply', '--filename', join(CRDS, `${kind.plural}.yaml`)];
    const { code, stderr } = await cluster.kubectl(apply, { timeoutMs: 60_000 });
    if (code !== 0) throw new Error(stderr);
    await waitUntil(
      'the kind to be served',
      async () => (await cluster.api.request('GET', judge.path)).status === 200,
      { timeoutMs: 60_000, intervalMs: 100 },
    );
    return judge;
  }

  async close(): Promise<void> {
    if (this.cluster.own) await this.cluster.delete(this.#reference(), { wait: true });
    await this.cluster.close();
  }

  objectOf(spec: unknown, name = 'sample') {
    const { kind, namespace } = this.#kind;
    const metadata = { name, ...(namespace === undefined ? {} : { namespace }) };
    return { apiVersion: 'linger.dev/v1alpha1', kind, metadata, spec };
  }

  /** What the API server says to a spec, asked as kubectl asks. */
  async ask(spec: unknown, name?: string): Promise<Answer> {
    const { status, body } = await this.cluster.api.request<{ message?: string }>(
      'POST',
      `${this.path}?dryRun=All&fieldValidation=Strict`,
      { body: this.objectOf(spec, name) },
    );
    return { status, message: body.message ?? '' };
  }

  /** Why a file with this spec is refused; empty: it is not. */
  refusalOf(spec: unknown, name?: string): string {
    try {
      parseDocument(this.objectOf(spec, name), 'here');
      return '';
    } catch (error) {
      return String(error);
    }
  }

  /** The specs, of 200 that chance makes, of which the API server and files think differently. */
  async differences(arbitrary: fc.Arbitrary<unknown>): Promise<{
    readonly different: readonly string[];
    readonly taken: number;
    readonly asked: number;
  }> {
    const specs = fc.sample(arbitrary, { seed: SEED, numRuns: 200 });
    const different: string[] = [];
    let taken = 0;
    for (let from = 0; from < specs.length; from += PARALLEL) {
      const some = specs.slice(from, from + PARALLEL);
      const answers = await Promise.all(some.map((spec) => this.ask(spec)));
      for (const [index, { status, message }] of answers.entries()) {
        const refusal = this.refusalOf(some[index]);
        taken += Number(status === 201);
        if ((status === 201) !== (refusal === ''))
          different.push(`${JSON.stringify(some[index])}: ${refusal} / ${status} ${message}`);
      }
    }
    return { different, taken, asked: specs.length };
  }

  /** The conditions of the CRD itself, by type. */
  async conditions(): Promise<Readonly<Record<string, string>>> {
    type Crd = KubernetesObject & { status: { conditions: { type: string; status: string }[] } };
    const stored = await this.cluster.get<Crd>(this.#reference());
    return Object.fromEntries((stored?.status.conditions ?? []).map(({ type, status }) => [type, status]));
  }

  #reference() {
    return {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: `${this.#kind.plural}.linger.dev` },
    };
  }
}

/** Texts that are durations, and texts that are nearly one. */
export function nearlyDurations(): fc.Arbitrary<string> {
  const digits = fc.integer({ min: 0, max: 2_000 }).map(String);
  const amount = fc.oneof(
    digits,
    fc.tuple(digits, digits).map(([whole, part]) => `${whole}.${part}`),
  );
  const unit = fc.constantFrom('ns', 'us', 'µs', 'ms', 's', 'm', 'h', '', ' s', 'd');
  return fc
    .array(fc.tuple(amount, unit), { minLength: 1, maxLength: 3 })
    .map((terms) => terms.flat().join(''));
}
