import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ApiClient } from './api.ts';
import { unlessMissing } from './objects.ts';
import { inParallel } from './parallel.ts';

export interface FakePod {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Hooks of its container, which nothing runs. */
  readonly lifecycle?: unknown;
}

interface NodeObject {
  readonly status: { readonly nodeInfo: unknown };
}

const MERGE = 'application/merge-patch+json';

/** A quarter of the node-lifecycle controller's --node-monitor-grace-period (40 s in its default of 1.31). */
const HEARTBEAT_MS = 10_000;

/** 198.18.0.0/15 is for benchmarks (RFC 2544): no packet to a fake pod reaches a machine. */
const FIRST_ADDRESS = 198 * 2 ** 24 + 18 * 2 ** 16 + 1;
let addressesGiven = 0;

function nextAddress(): string {
  const address = FIRST_ADDRESS + addressesGiven;
  addressesGiven += 1;
  return [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');
}

/**
 * A Node without a machine: nothing runs on it, so it carries pods by the thousand. Its methods play the kubelet. To
 * controllers and to watchers its pods are as good as others.
 */
export class FakeNode {
  readonly name: string;
  readonly #api: ApiClient;
  readonly #stopping = new AbortController();
  #heart: Promise<void> = Promise.resolve();

  private constructor(api: ApiClient, name: string) {
    this.#api = api;
    this.name = name;
  }

  /**
   * Resolves when it is Ready; it stays so until {@link remove}.
   * @param like the name of a Node of whose kind it is; default: it says nothing of what it runs
   */
  static async start(api: ApiClient, like?: string): Promise<FakeNode> {
    const node = new FakeNode(api, `fake-${randomBytes(3).toString('hex')}`);
    const model = like === undefined ? undefined : await api.call<NodeObject>('GET', `/api/v1/nodes/${like}`);
    await node.#register(model?.status.nodeInfo);
    node.#heart = node.#beat();
    return node;
  }

  /** Starts pods that are ready at once. */
  async run(pods: readonly FakePod[]): Promise<void> {
    await inParallel(pods, async (pod) => {
      const { namespace, name, labels, annotations, lifecycle } = pod;
      await this.#api.call('POST', `/api/v1/namespaces/${namespace}/pods`, {
        body: {
          metadata: { name, labels, annotations },
          spec: {
            nodeName: this.name,
            automountServiceAccountToken: false,
            enableServiceLinks: false,
            terminationGracePeriodSeconds: 300,
            containers: [{ name: 'app', image: 'none', lifecycle }],
          },
        },
      });
      const ip = nextAddress();
      const running = { phase: 'Running', podIP: ip, podIPs: [{ ip }], conditions: readiness(true) };
      await this.#patchStatus(pod, running);
    });
  }

  /** What a readiness probe would find. */
  async setReady(pods: readonly FakePod[], ready: boolean): Promise<void> {
    await inParallel(pods, (pod) => this.#patchStatus(pod, { conditions: readiness(ready) }));
  }

  /** Asks for the pod's end: it is terminating until {@link finish}, as one whose grace is not over. */
  async terminate({ namespace, name }: FakePod, graceSeconds = 30): Promise<void> {
    await this.#api.call('DELETE', `/api/v1/namespaces/${namespace}/pods/${name}`, {
      body: { gracePeriodSeconds: graceSeconds },
    });
  }

  /** The pods are gone, as when their containers have ended; those that already are count, too. */
  async finish(pods: readonly FakePod[]): Promise<void> {
    await inParallel(pods, (pod) => unlessMissing(this.terminate(pod, 0)));
  }

  /** All pods of a namespace are gone. Without that the namespace itself could not be deleted. */
  async finishAll(namespace: string): Promise<void> {
    const path = `/api/v1/namespaces/${namespace}/pods?fieldSelector=spec.nodeName%3D${this.name}`;
    await this.#api.call('DELETE', path, { body: { gracePeriodSeconds: 0 }, timeoutMs: 180_000 });
  }

  async remove(): Promise<void> {
    this.#stopping.abort();
    await this.#heart;
    await unlessMissing(this.#api.call('DELETE', `/api/v1/nodes/${this.name}`));
    await unlessMissing(this.#api.call('DELETE', this.#leasePath));
  }

  get #leasePath(): string {
    return `/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/${this.name}`;
  }

  async #register(nodeInfo?: unknown): Promise<void> {
    await this.#api.call('POST', '/api/v1/nodes', {
      // Nothing that is scheduled shall land here.
      body: { metadata: { name: this.name }, spec: { unschedulable: true } },
    });
    const conditions = [
      { type: 'Ready', status: 'True', reason: 'Fake', message: '', ...stamps('lastHeartbeatTime') },
    ];
    await this.#api.call('PATCH', `/api/v1/nodes/${this.name}/status`, {
      body: { status: { conditions, nodeInfo } },
      contentType: MERGE,
    });
    const spec = { holderIdentity: this.name, leaseDurationSeconds: 40, renewTime: microTime() };
    const path = this.#leasePath.slice(0, this.#leasePath.lastIndexOf('/'));
    await this.#api.call('POST', path, { body: { metadata: { name: this.name }, spec } });
  }

  /** Without it the node-lifecycle controller would call the node lost, and its pods not ready. */
  async #beat(): Promise<void> {
    const { signal } = this.#stopping;
    for (;;) {
      await sleep(HEARTBEAT_MS, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      const body = { spec: { renewTime: microTime() } };
      // An API server that is being restarted is asked again at the next beat.
      await this.#api.call('PATCH', this.#leasePath, { body, contentType: MERGE }).catch(() => undefined);
    }
  }

  async #patchStatus({ namespace, name }: FakePod, status: unknown): Promise<void> {
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/status`;
    await this.#api.call('PATCH', path, { body: { status }, contentType: MERGE });
  }
}

function readiness(ready: boolean): readonly object[] {
  const status = ready ? 'True' : 'False';
  return ['Ready', 'ContainersReady'].map((type) => ({ type, status, ...stamps() }));
}

function stamps(...more: readonly string[]): object {
  const now = `${new Date().toISOString().slice(0, 19)}Z`;
  return Object.fromEntries([...more, 'lastTransitionTime'].map((field) => [field, now]));
}

/** metav1.MicroTime: exactly six digits. */
function microTime(): string {
  return new Date().toISOString().replace('Z', '000Z');
}
