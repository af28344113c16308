import type { V1Lease } from '@kubernetes/client-node';
import { KubeFailure } from '../../src/cluster/index.ts';
import {
  type LeaseRecord,
  type LeaseStore,
  leaseObject,
  leaseRecordOf,
  type StoredLease,
} from '../../src/leader/lease.ts';
import type { SimulatedProcess, SimulatedTime } from './simulated-time.ts';

/** What networks and servers do to a request. Milliseconds of true time; undefined: it gets lost. */
export interface Fate {
  readonly thereAfter: number | undefined;
  readonly backAfter: number | undefined;
  /** Refused when it arrives, and nothing comes into effect. */
  readonly refusal?: KubeFailure;
}

/** The one Lease of a model API server: each request comes into effect at one instant, whole. */
export class SimulatedLease {
  readonly #time: SimulatedTime;
  /** Asked about each request. */
  fate: () => Fate = () => ({ thereAfter: 1, backAfter: 1 });
  #object: V1Lease | undefined;
  #revision = 0;

  constructor(time: SimulatedTime) {
    this.#time = time;
  }

  get record(): LeaseRecord | undefined {
    return this.#object && leaseRecordOf(this.#object);
  }

  delete(): void {
    this.#object = undefined;
  }

  /** Another client puts a label on it. */
  touch(): void {
    if (this.#object !== undefined) this.#store(this.#object);
  }

  /** The lease as a process reaches it. @param requestMs by the process's own clock */
  storeOf(process: SimulatedProcess, requestMs: number): LeaseStore {
    const request = <T>(effect: () => T) => this.#request(process, requestMs, effect);
    return {
      read: () => request(() => this.#object && stored(this.#object)),
      write: (record, over) =>
        request(() => {
          const wanted = leaseObject('linger', record, over?.object);
          if (over === undefined && this.#object !== undefined) throw failure('AlreadyExists');
          if (over !== undefined && this.#object === undefined) throw failure('NotFound');
          const { resourceVersion } = wanted.metadata ?? {};
          if (over !== undefined && resourceVersion !== this.#object?.metadata?.resourceVersion) {
            throw failure('Conflict');
          }
          return stored(this.#store(wanted));
        }),
    };
  }

  #store(object: V1Lease): V1Lease {
    this.#revision += 1;
    // As JSON, so that no object is shared with the server.
    const copy = JSON.parse(JSON.stringify(object)) as V1Lease;
    const kept = { ...copy, metadata: { ...copy.metadata, resourceVersion: String(this.#revision) } };
    this.#object = kept;
    return kept;
  }

  #request<T>(process: SimulatedProcess, requestMs: number, effect: () => T): Promise<T> {
    const { thereAfter, backAfter, refusal } = this.fate();
    return new Promise((resolve, reject) => {
      // It may come into effect all the same.
      const never = new AbortController().signal;
      void process.pause(requestMs, never).then(() => reject(failure('Unreachable')));
      if (thereAfter === undefined) return;
      this.#time.after(thereAfter, () => {
        const answer = outcomeOf(() => {
          if (refusal !== undefined) throw refusal;
          return effect();
        });
        if (backAfter === undefined) return;
        process.after(backAfter, () => ('thrown' in answer ? reject(answer.thrown) : resolve(answer.value)));
      });
    });
  }
}

function outcomeOf<T>(effect: () => T): { readonly value: T } | { readonly thrown: unknown } {
  try {
    return { value: effect() };
  } catch (thrown) {
    return { thrown };
  }
}

function stored(object: V1Lease): StoredLease {
  return { record: leaseRecordOf(object), object };
}

function failure(reason: 'AlreadyExists' | 'NotFound' | 'Conflict' | 'Unreachable'): KubeFailure {
  return new KubeFailure(reason, reason);
}
