import { Registry } from '@prometheus-io/client';
import { TerminationLog } from '../src/audit/index.ts';
import { TerminationReview } from '../src/audit/termination-review.ts';
import { fleetOf } from '../src/core/decision/index.ts';
import type { PodMetadata } from '../src/core/lag/index.ts';
import { NONE_YET, STREAMS, type Stream } from '../src/core/lag/index.ts';
import { Measurement } from '../src/measurement/index.ts';
import { createLogger } from '../src/telemetry/index.ts';
import { samplePlan } from '../test/core/decision/sample-plan.ts';
import { namespace, sampleNode, service, snapshotOf } from '../test/core/decision/sample-snapshot.ts';

/** Pods of a Service in each namespace that are listed, deleted and withdrawn, one a second; measured and reviewed. */
export class Churn {
  readonly #measurement: Measurement;
  readonly #review: TerminationReview;
  readonly #namespaces: readonly string[];
  /** Milliseconds of a clock that runs a second for each pod. */
  #now = 1_000_000;
  #made = 0;
  #measured = 0;

  constructor(namespaces: number) {
    this.#namespaces = Array.from({ length: namespaces }, (_, each) => `tenant-${each}`);
    const clock = () => this.#now;
    const epochSeconds = () => 1_700_000_000 + this.#now / 1000;
    this.#measurement = new Measurement(
      { clock, epochSeconds },
      { heartbeats: false, onListenerError: rethrow },
    );
    const objects = this.#namespaces.flatMap((each) => [
      namespace({}, {}, each),
      service({ selector: { app: 'web' } }, 'web', each),
    ]);
    const snapshot = {
      ...snapshotOf(objects, { lags: NONE_YET, servicesComplete: true }),
      fleet: fleetOf('v1.36.0', [sampleNode({ name: 'worker-1', addresses: ['192.0.2.7'] })]),
    };
    this.#review = new TerminationReview({
      log: new TerminationLog(),
      connection: { server: new URL('https://127.0.0.1:1'), credentials: async () => ({}) },
      registry: new Registry(),
      logger: createLogger('silent', process.stdout),
      events: { tell: () => undefined } as never,
      leadsSince: () => 0,
      snapshot: () => snapshot,
      drainOf: () => undefined,
      listed: (pod) => this.#measurement.listing(pod).length > 0,
      held: () => undefined,
      clock,
      epochSeconds,
      signal: new AbortController().signal,
    });
    this.#measurement.onRemoval((sample) => {
      this.#measured += 1;
      void this.#review.removed(sample);
    });
    for (const stream of STREAMS) this.#read(stream);
  }

  #read(stream: Stream): void {
    const at = this.#now;
    this.#measurement.apply({ type: 'ListBegins', at, stream });
    if (stream === 'services')
      for (const each of this.#namespaces) {
        const plain = { namespace: each, name: 'web', publishNotReadyAddresses: false };
        this.#measurement.apply({ type: 'Service', at, service: { ...plain, selector: { app: 'web' } } });
      }
    this.#measurement.apply({ type: 'ListEnds', at, stream });
    this.#measurement.apply({ type: 'StreamCurrent', at, stream });
  }

  /** How many removals have been measured. */
  get measured(): number {
    return this.#measured;
  }

  /** Lets so many pods live and end. */
  async run(pods: number): Promise<void> {
    for (let each = 0; each < pods; each += 1) {
      this.#one();
      // Reviews of removals end in turns of their own.
      if (each % 100 === 0) await new Promise(setImmediate);
    }
  }

  #one(): void {
    const number = this.#made++;
    const where = this.#namespaces[number % this.#namespaces.length] ?? '';
    const uid = `5f3c9e1a-0000-4000-8000-${String(number).padStart(12, '0')}`;
    const identity = { namespace: where, name: `web-${number}`, uid };
    const pod: PodMetadata = {
      ...identity,
      labels: { app: 'web' },
      heartbeat: undefined,
      plan: samplePlan(),
      deletionTimestamp: '2026-11-22T10:00:00Z',
      deletionGracePeriodSeconds: 60,
      controller: 'ReplicaSet/web-5',
      owner: 'Deployment/web',
    };
    this.#list(where, [uid]);
    this.#now += 500;
    this.#review.pod({ type: 'modified', listed: false, at: this.#now, identity, object: pod });
    this.#measurement.apply({ type: 'PodTerminating', at: this.#now, pod });
    this.#now += 100 + (number % 300);
    this.#list(where, []);
    this.#now += 500 - (number % 300);
    this.#measurement.apply({ type: 'PodDeleted', at: this.#now, pod });
    this.#review.pod({ type: 'deleted', relist: false, at: this.#now, identity, object: pod });
  }

  #list(where: string, uids: readonly string[]): void {
    const slice = {
      namespace: where,
      name: 'web-x',
      serviceName: 'web',
      addressType: 'IPv4',
      ports: [8080],
      managedBy: 'endpointslice-controller.k8s.io',
      version: String(this.#made),
      endpoints: uids.map((targetUid) => ({
        targetUid,
        addresses: [`10.0.0.${1 + (this.#made % 250)}`],
        ready: true,
      })),
    };
    this.#measurement.apply({ type: 'Slice', at: this.#now, slice });
  }
}

function rethrow(thrown: unknown): never {
  throw thrown;
}
