import type { Json, PodObject } from '../../cluster-suite/support/manifests.ts';
import { hookOf } from '../../cluster-suite/support/outcome.ts';
import { type Cluster, type KubernetesObject, waitUntil } from '../../testbed/cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../../testbed/workloads.ts';

export interface StandOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly name: string;
  readonly replicas: number;
  readonly onSigterm: 'exit' | 'drain';
  /** The author's own hook; undefined: none, so that Linger may put in one. */
  readonly sleepSeconds?: number;
  /** Containers beside the application's. */
  readonly containers?: readonly Readonly<Record<string, unknown>>[];
  /** No Service selects its pods. */
  readonly serviceless?: true;
  /** Another application than the usual one: the container, and what the pod has for it. */
  readonly application?: { readonly container: Json; readonly podSpec: Json };
  /** Annotations of its pods. */
  readonly annotations?: Readonly<Record<string, string>>;
  /** Merged over the Deployment's spec: its strategy, minReadySeconds and the like. */
  readonly rollout?: Json;
  /** How long one update may take. Default: two minutes. */
  readonly timeoutMs?: number;
}

/** An application behind a Service, to be rolled over while requests come in. */
export class Stand {
  readonly namespace: string;
  /** `namespace/name`. */
  readonly service: string;
  /** Label selector of its pods. */
  readonly selector: string;
  readonly #options: StandOptions;
  readonly #deployment: ReturnType<typeof applicationDeployment>;
  #rollouts = 0;

  constructor(options: StandOptions) {
    this.#options = options;
    const {
      namespace,
      name,
      replicas,
      onSigterm,
      sleepSeconds,
      containers = [],
      application,
      annotations = {},
      rollout,
    } = options;
    this.namespace = namespace;
    this.service = `${namespace}/${name}`;
    this.selector = `app=${name}`;
    const hook =
      sleepSeconds === undefined ? {} : { lifecycle: { preStop: { sleep: { seconds: sleepSeconds } } } };
    const env = [{ name: 'ON_SIGTERM', value: onSigterm }];
    const container = { env, ...hook, ...application?.container };
    const { podSpec = {} } = application ?? {};
    const pods = { container, containers, podSpec, annotations };
    const usual = applicationDeployment({ namespace, name, replicas, ...pods });
    this.#deployment = { ...usual, spec: { ...usual.spec, ...rollout } };
  }

  /** `address:port` of each pod. */
  async endpoints(port: number): Promise<readonly string[]> {
    const of = { apiVersion: 'v1', kind: 'Pod', namespace: this.namespace };
    type Addressed = PodObject & { readonly status?: { readonly podIP?: string } };
    const pods = await this.#options.cluster.list<Addressed>(of, this.selector);
    return pods.map(({ status }) => `${status?.podIP}:${port}`);
  }

  /** Resolves when all pods are ready. */
  async start(): Promise<void> {
    const { cluster, namespace, name, serviceless } = this.#options;
    if (!serviceless) await cluster.create(applicationService({ namespace, name }));
    await cluster.create(this.#deployment);
    await this.#rolledOut();
  }

  get replicas(): number {
    return this.#options.replicas;
  }

  /** Seconds that the pods wait before SIGTERM, as the API server has stored it: each value once. */
  async waits(): Promise<readonly number[]> {
    const hooks = (await this.#pods<PodObject>()).flatMap(({ spec }) => spec.containers.map(hookOf));
    return [...new Set(hooks.map((hook) => Number(/^sleep (\d+)$/.exec(hook)?.[1] ?? 0)))];
  }

  /** Updates in a row, each as soon as the one before has replaced all pods. Resolves when the last old pod is gone. */
  async rollOver(times: number): Promise<void> {
    for (let time = 0; time < times; time += 1) await this.#rollOnce();
    const { replicas } = this.#options;
    await waitUntil('the old pods to be gone', async () => (await this.#pods()).length === replicas, {
      timeoutMs: 120_000,
    });
  }

  async #rollOnce(): Promise<void> {
    this.#rollouts += 1;
    const annotations = { 'test.linger.dev/rollout': String(this.#rollouts) };
    const template = { metadata: { annotations } };
    const changed = await this.#options.cluster.patch<DeploymentObject>(this.#deployment, {
      spec: { template },
    });
    await this.#rolledOut(changed.metadata.generation);
  }

  async #rolledOut(generation = 0): Promise<void> {
    const { cluster, replicas, timeoutMs = 120_000 } = this.#options;
    await cluster.waitFor<DeploymentObject>(
      this.#deployment,
      (each) => each.metadata.generation >= generation && isRolledOut(each, replicas),
      { timeoutMs },
    );
  }

  #pods<T = KubernetesObject>(): Promise<T[]> {
    const { cluster, namespace } = this.#options;
    return cluster.list<T>({ apiVersion: 'v1', kind: 'Pod', namespace }, this.selector);
  }
}
