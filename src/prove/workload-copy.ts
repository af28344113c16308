import { setTimeout as sleep } from 'node:timers/promises';
import { type Kind, POD, pathOf, pluralOf } from '../audit/index.ts';
import { asFailure, type KubeConnection } from '../cluster/index.ts';
import { ANNOTATION, API_VERSION, LingerError, memberAt, recordsAt } from '../core/api/index.ts';
import { type Plan, parsePlan } from '../core/decision/index.ts';
import { NEVER } from '../timing/index.ts';
import {
  MOST_COPIES,
  namespaceCopy,
  type Original,
  plainCopy,
  type References,
  type Side,
  serviceCopy,
  templateCopy,
  workloadCopy,
} from './copy-objects.ts';
import { LeasedJob, until, waitingOf } from './leased-job.ts';
import {
  core,
  fullName,
  objectPath,
  type ProvableWorkload,
  type Request,
  type Right,
  requestTo,
  selecting,
  WorkloadAccess,
  withOwnTemplate,
} from './provable-workload.ts';

/** Time for the webhook to learn of a new namespace and, with Hold, for the helper to be delivered there. */
const PLAN_SECONDS = 30;
const READY_SECONDS = 180;
const REMOVE_MS = 60_000;
const PODS_END_SECONDS = 20;
const KEEPER = 'linger-prove';
const RBAC = 'rbac.authorization.k8s.io';
const rbac = (kind: string): Kind => ({ apiVersion: `${RBAC}/v1`, kind });
const POLICY: Kind = { apiVersion: API_VERSION, kind: 'TerminationPolicy' };

/** The rights needed in the namespace of the original. */
export const ORIGINAL_RIGHTS: readonly Right[] = [
  ...['get namespaces', 'list services', 'list pods', 'list terminationpolicies.linger.dev'],
];

const groupOf = ({ apiVersion }: Kind): string => apiVersion.split('/')[0] ?? '';

/** The rights needed in namespaces that do not exist yet. */
export function copyRights({ named, policies }: Original, references: References): readonly Right[] {
  const { configMaps, secrets } = references;
  const created = [
    ...['serviceaccounts', `roles.${RBAC}`, `rolebindings.${RBAC}`, 'services', 'pods'],
    ...[
      `${pluralOf(named.kind)}.${groupOf(named.kind)}`,
      ...policies.slice(0, 1).map(() => 'terminationpolicies.linger.dev'),
    ],
    ...[...configMaps.slice(0, 1).map(() => 'configmaps'), ...secrets.slice(0, 1).map(() => 'secrets')],
  ].map((each): Right => `create ${each}`);
  const ended: readonly Right[] = [
    `delete ${pluralOf(named.kind)}.${groupOf(named.kind)}`,
    'deletecollection pods',
    'list pods',
  ];
  return ['create namespaces (cluster)', 'delete namespaces (cluster)', ...created, ...ended];
}

/** @throws KubeFailure */
export async function readOriginal(
  connection: KubeConnection,
  { replicas, ...named }: ProvableWorkload,
  signal: AbortSignal,
): Promise<Original> {
  const request = requestTo(connection);
  const { kind, name, namespace, podLabels, selector } = named;
  const get = (path: string) => request('GET', path, signal);
  const [workload, services, policies, pods, own] = await Promise.all([
    get(objectPath(kind, namespace, name)).then((object) => withOwnTemplate(request, named, object, signal)),
    get(pathOf(core('Service'), namespace)),
    get(pathOf(POLICY, namespace)),
    get(`${pathOf(POD, namespace)}?labelSelector=${encodeURIComponent(selector)}`),
    get(objectPath(core('Namespace'), undefined, namespace)),
  ]);
  const newest = recordsAt(pods, 'items')
    .toSorted((a, b) => (createdAt(a) < createdAt(b) ? -1 : 1))
    .at(-1);
  return {
    named,
    workload,
    namespace: own,
    policies: recordsAt(policies, 'items'),
    services: selecting(services, podLabels),
    replicas: Math.min(replicas, MOST_COPIES),
    plan: planIn(newest),
  };
}

const createdAt = (object: unknown): string => String(memberAt(object, ['metadata', 'creationTimestamp']));

function planIn(pod: unknown): Plan | undefined {
  const text = memberAt(pod, ['metadata', 'annotations', ANNOTATION.plan]);
  return typeof text === 'string' ? parsePlan(text) : undefined;
}

export interface CopyOptions {
  readonly original: Original;
  readonly references: References;
  readonly side: Side;
  /** Names all copies of a run. */
  readonly run: string;
  readonly image: string;
  readonly note: (line: string) => void;
  /** Called if the copy can no longer be kept. */
  readonly lost: (why: string) => void;
}

/** A copy of a workload in a namespace of its own, which is removed soon after this process ends, whatever ends it. */
export class WorkloadCopy {
  readonly namespace: string;
  readonly #connection: KubeConnection;
  readonly #request: Request;
  readonly #options: CopyOptions;
  #keeper: LeasedJob | undefined;

  constructor(connection: KubeConnection, options: CopyOptions) {
    this.#connection = connection;
    this.#request = requestTo(connection);
    this.#options = options;
    this.namespace = namespaceOf(options.run, options.side);
  }

  /** @returns notes on the copy, once all of its pods are ready @throws LingerError `prove-refused`; KubeFailure */
  async start(signal: AbortSignal): Promise<readonly string[]> {
    const { original, references, side, run, image, note, lost } = this.#options;
    const { named, services, policies, replicas } = original;
    note(`copying ${fullName(named)} (${replicas} pods) into namespace ${this.namespace}`);
    const post = (path: string, object: object) => this.#request('POST', path, signal, object);
    const create = (of: Kind, object: object) => post(pathOf(of, this.namespace), { ...of, ...object });
    await post('/api/v1/namespaces', namespaceCopy(original, this.namespace, run));
    // The keeper is created first: if this process dies, it removes the namespace with everything that is created later.
    const metadata = { name: KEEPER };
    const rule = { apiGroups: [''], resources: ['namespaces'], resourceNames: [this.namespace] };
    const subjects = [{ kind: 'ServiceAccount', name: KEEPER, namespace: this.namespace }];
    const roleRef = { apiGroup: RBAC, kind: 'Role', name: KEEPER };
    await create(core('ServiceAccount'), { metadata });
    await create(rbac('Role'), { metadata, rules: [{ ...rule, verbs: ['delete'] }] });
    await create(rbac('RoleBinding'), { metadata, roleRef, subjects });
    const args = ['prove-keep', '--namespace', this.namespace];
    const job = { namespace: this.namespace, image, pods: 1, args, account: KEEPER };
    this.#keeper = new LeasedJob(this.#connection, job, signal);
    await this.#keeper.start(lost);
    const { configMaps, secrets } = references;
    for (const [kind, names] of Object.entries({ ConfigMap: configMaps, Secret: secrets }))
      for (const name of names) {
        const object = await this.#request('GET', objectPath(core(kind), named.namespace, name), signal);
        if (object !== undefined) await create(core(kind), plainCopy(object));
      }
    for (const each of policies) await create(POLICY, plainCopy(each));
    for (const each of services) await create(core('Service'), serviceCopy(each));
    const plan = await this.#planned(signal);
    await create(named.kind, workloadCopy(original, side));
    await this.#ready(signal);
    return plan === undefined ? [] : differences(plan, original.plan);
  }

  /**
   * Removes the copy; also works after the command was interrupted. Pods are deleted first, with a grace of a second,
   * because the namespace controller retries only after half of the largest grace in their specs. Source: k8s.io/kubernetes
   * pkg/controller/namespace/deletion (estimateGracefulTerminationForPods).
   */
  async remove(): Promise<void> {
    const signal = AbortSignal.timeout(REMOVE_MS);
    this.#keeper?.release();
    await this.#endPods(signal).catch((thrown: unknown) =>
      this.#options.note(`the copy ends with its graces: ${asFailure(thrown).message}`),
    );
    await this.#request('DELETE', `/api/v1/namespaces/${this.namespace}`, signal);
  }

  async #endPods(signal: AbortSignal): Promise<void> {
    const { kind, name } = this.#options.original.named;
    await this.#request('DELETE', objectPath(kind, this.namespace, name), signal);
    const pods = pathOf(POD, this.namespace);
    const left = async () => recordsAt(await this.#request('GET', pods, signal), 'items').length;
    await until(PODS_END_SECONDS, signal, async () => {
      // Repeated, because a controller may have created another pod in the meantime.
      await this.#request('DELETE', `${pods}?gracePeriodSeconds=1`, signal);
      return (await left()) === 0;
    });
  }

  /**
   * The plan that Linger gives to pods of the copy, by a dry run. @throws LingerError `prove-refused` if it is not what this
   * side of the comparison needs
   */
  async #planned(signal: AbortSignal): Promise<Plan | undefined> {
    const { original, side } = this.#options;
    const { metadata, spec } = templateCopy(original, side);
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { ...metadata, generateName: 'copy-' }, spec };
    const path = `${pathOf(POD, this.namespace)}?dryRun=All`;
    let plan: Plan | undefined;
    let refusal: string | undefined;
    const planned = await until(PLAN_SECONDS, signal, async () => {
      refusal = undefined;
      const admitted = await this.#request('POST', path, signal, pod).catch((thrown: unknown) => {
        refusal = asFailure(thrown).message;
      });
      plan = planIn(admitted);
      if (refusal !== undefined || side === 'without') return refusal === undefined;
      return plan !== undefined && plan.hook === (original.plan?.hook ?? plan.hook);
    });
    if (refusal !== undefined) throw refused(`pods of the copy are not admitted: ${refusal}`);
    if (side === 'without' && plan !== undefined)
      throw refused('Linger gives a wait even to pods that opt out (overrides.pods: false)');
    if (planned || plan !== undefined) return plan;
    const { kind, name, namespace } = original.named;
    throw refused(
      `Linger gives pods of the copy no wait: it does not run here, or its policy says so; linger explain ${kind.kind}/${name} -n ${namespace} says why`,
    );
  }

  async #ready(signal: AbortSignal): Promise<void> {
    const { named } = this.#options.original;
    const access = new WorkloadAccess(this.#connection, { ...named, namespace: this.namespace });
    if (await until(READY_SECONDS, signal, async () => (await access.read(signal)).settled)) return;
    const pods = recordsAt(await this.#request('GET', pathOf(POD, this.namespace), signal), 'items');
    const why = pods.map(waitingOf).find((each) => each !== undefined) ?? 'their probes fail';
    throw refused(
      `the pods of the copy did not become ready within ${READY_SECONDS}s: ${why}; a copy has no ServiceAccount rights and cannot reach the original's namespace by short names`,
    );
  }
}

/**
 * If all else fails, only the keeper is left to remove the namespace, so it tries for as long as its pod's grace allows.
 * Milliseconds.
 */
const KEEPER_TRIES = { forMs: 55_000, everyMs: 1_000 };
/**
 * A starting API server denies everything for some seconds; one that has already removed the keeper's Role does so forever.
 */
const MOST_DENIALS = 8;

/**
 * The last task of the keeper: tries until the namespace is being removed, or is gone. @throws KubeFailure of the last
 * attempt
 */
export async function removeNamespace(
  connection: KubeConnection,
  name: string,
  { forMs, everyMs } = KEEPER_TRIES,
): Promise<void> {
  const deadline = performance.now() + forMs;
  for (let denials = 0; ; await sleep(everyMs)) {
    try {
      await requestTo(connection)('DELETE', `/api/v1/namespaces/${name}`, NEVER);
      return;
    } catch (thrown) {
      const { reason } = asFailure(thrown);
      if (reason === 'Conflict') return; // It is being removed.
      denials += Number(reason === 'Forbidden' || reason === 'Unauthorized');
      if (denials > MOST_DENIALS || performance.now() > deadline) throw thrown;
    }
  }
}

export const namespaceOf = (run: string, side: Side): string => `${run}-${side}`;

function differences(copy: Plan, original: Plan | undefined): readonly string[] {
  const words = ({ hook, wait }: Plan) => (hook === 'Hold' ? hook : `${hook} of ${wait} s`);
  if (original !== undefined && words(copy) === words(original)) return [];
  const other = original === undefined ? 'nothing yet' : words(original);
  return [`pods of the copy wait by ${words(copy)}, those of the original by ${other}`];
}

const refused = (why: string) => new LingerError('prove-refused', why);
