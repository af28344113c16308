import { randomBytes } from 'node:crypto';
import { type Kind, POD, pathOf } from '../audit/index.ts';
import { asFailure, type KubeConnection } from '../cluster/index.ts';
import { isString, LingerError, memberAt, recordsAt } from '../core/api/index.ts';
import { pause } from '../timing/index.ts';
import { objectPath, type Request, requestTo } from './provable-workload.ts';

const JOB: Kind = { apiVersion: 'batch/v1', kind: 'Job' };
/** The label of all objects that a run creates. */
export const RUN_LABEL = 'linger.dev/prove';
export const newRunName = (): string => `linger-prove-${randomBytes(3).toString('hex')}`;
/**
 * The deadline of the Job is extended repeatedly while the command is alive. Once that stops, the Job's controller ends the
 * pods, and the TTL controller removes the Job: at most 65 s after the last extension.
 */
const LEASE_SECONDS = 50;
const RENEW_MS = 10_000;
const TTL_SECONDS = 5;
/** How long pods may take to start, and to pull their image: if an image cannot be pulled, waiting does not help. */
const WITHIN_SECONDS = { start: 60, pull: 10 };
const NOT_PULLED = /^(ErrImagePull|ImagePullBackOff|ErrImageNeverPull|InvalidImageName|RegistryUnavailable)$/;
/**
 * Extra time for a pod with an account, which cleans up as it ends: half a minute without an API server, and as much again.
 */
const CLEARING_SECONDS = 60;
const REMOVE_MS = 120_000;
const POLL_MS = 500;

export interface LeasedJobOptions {
  readonly namespace: string;
  readonly image: string;
  /** The number of pods: one on each node with a ready pod, up to the number of such nodes. */
  readonly pods: number;
  /** A node that will be drained: a pod there would be lost together with its log. */
  readonly notOn?: string | undefined;
  /** A command of Linger, with its flags. */
  readonly args: readonly string[];
  /** A ServiceAccount whose token the pod gets. */
  readonly account?: string;
}

export interface StartedPod {
  readonly name: string;
  readonly node: string;
}

/** A Job whose pods end soon after this process does, whatever ends the process. */
export class LeasedJob {
  readonly #request: Request;
  readonly #options: LeasedJobOptions;
  /** Aborts when the command does. */
  readonly #signal: AbortSignal;
  readonly #name = newRunName();
  readonly #path: string;
  readonly #stopping = new AbortController();
  readonly #within: typeof WITHIN_SECONDS;
  #startedAt = 0;

  constructor(
    connection: KubeConnection,
    options: LeasedJobOptions,
    signal: AbortSignal,
    within = WITHIN_SECONDS,
  ) {
    this.#within = within;
    this.#request = requestTo(connection);
    this.#options = options;
    this.#signal = signal;
    this.#path = objectPath(JOB, options.namespace, this.#name);
  }

  /** Aborts when the Job is removed. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /**
   * @param lost called if the Job can no longer be kept
   * @returns its pods, once all of them are running
   * @throws LingerError, KubeFailure
   */
  async start(lost: (why: string) => void): Promise<readonly StartedPod[]> {
    const { namespace, pods } = this.#options;
    await this.#request('POST', pathOf(JOB, namespace), this.#signal, jobOf(this.#name, this.#options));
    this.#startedAt = performance.now();
    void this.#renew(lost);
    return this.#untilRunning(pods);
  }

  /** Stops extending the deadline. */
  release(): void {
    this.#stopping.abort();
  }

  /** Removes the Job and its pods, and waits until they are gone. Also works after the command was interrupted. */
  async remove(): Promise<boolean> {
    this.release();
    const signal = AbortSignal.timeout(REMOVE_MS);
    await this.#request('DELETE', `${this.#path}?propagationPolicy=Background`, signal);
    while (await pause(POLL_MS, signal)) if ((await this.#pods(signal)).length === 0) return true;
    return false;
  }

  async #renew(lost: (why: string) => void): Promise<void> {
    let failed = 0;
    while (await pause(RENEW_MS, this.#stopping.signal)) {
      const elapsed = (performance.now() - this.#startedAt) / 1_000;
      const spec = { activeDeadlineSeconds: Math.ceil(elapsed) + LEASE_SECONDS };
      try {
        await this.#request('PATCH', this.#path, this.#stopping.signal, { spec });
        failed = 0;
      } catch (thrown) {
        if (this.#stopping.signal.aborted) return;
        failed += 1;
        const { reason, message } = asFailure(thrown);
        if (reason === 'NotFound' || failed > 3)
          return lost(`Job ${this.#options.namespace}/${this.#name} cannot be kept: ${message}`);
      }
    }
  }

  async #untilRunning(count: number): Promise<readonly StartedPod[]> {
    let pods: readonly unknown[] = [];
    const running = () => pods.filter((each) => memberAt(each, ['status', 'phase']) === 'Running');
    const { start, pull } = this.#within;
    const begun = performance.now();
    let gaveUp = false;
    const looked = async () => {
      pods = await this.#pods(this.#signal);
      gaveUp = performance.now() - begun >= pull * 1_000 && pods.some(lacksImage);
      return gaveUp || running().length >= count;
    };
    const nodeOf = (pod: unknown) => String(memberAt(pod, ['spec', 'nodeName']));
    if ((await until(start, this.#signal, looked, POLL_MS)) && !gaveUp)
      return running().map((each) => ({ name: nameOf(each), node: nodeOf(each) }));
    const { namespace, image } = this.#options;
    const why =
      pods.map(waitingOf).find(isString) ??
      'no pod was created: a ResourceQuota or an admission webhook may forbid it';
    throw new LingerError(
      'prove-refused',
      `the pods of Job ${namespace}/${this.#name} (image ${image}) did not start within ${gaveUp ? pull : start}s: ${why}; --image names another image of Linger`,
    );
  }

  async #pods(signal: AbortSignal): Promise<readonly unknown[]> {
    const selector = encodeURIComponent(`${RUN_LABEL}=${this.#name}`);
    const path = `${pathOf(POD, this.#options.namespace)}?labelSelector=${selector}`;
    return recordsAt(await this.#request('GET', path, signal), 'items');
  }
}

/** @returns whether the condition was met within this many seconds @throws the signal's reason */
export async function until(
  seconds: number,
  signal: AbortSignal,
  reached: () => boolean | Promise<boolean>,
  everyMs = 1_000,
): Promise<boolean> {
  const deadline = performance.now() + seconds * 1_000;
  while (!(await reached())) {
    if (performance.now() > deadline) return false;
    await pause(everyMs, signal);
    signal.throwIfAborted();
  }
  return true;
}

const nameOf = (pod: unknown): string => String(memberAt(pod, ['metadata', 'name']));

function lacksImage(pod: unknown): boolean {
  const reasons = recordsAt(pod, 'status', 'containerStatuses').map((each) =>
    memberAt(each, ['state', 'waiting', 'reason']),
  );
  return reasons.some((reason) => isString(reason) && NOT_PULLED.test(reason));
}

/** `pod web-1: ErrImageNeverPull: …` */
export function waitingOf(pod: unknown): string | undefined {
  const states = recordsAt(pod, 'status', 'containerStatuses').map((each) =>
    memberAt(each, ['state', 'waiting']),
  );
  const unscheduled = recordsAt(pod, 'status', 'conditions').filter(
    ({ type, status }) => type === 'PodScheduled' && status === 'False',
  );
  const [why] = [...states, ...unscheduled].filter((each) => each !== undefined);
  return why === undefined
    ? undefined
    : `pod ${nameOf(pod)}: ${String(memberAt(why, ['reason']))}: ${String(memberAt(why, ['message']))}`;
}

function jobOf(name: string, { namespace, image, pods, notOn, args, account }: LeasedJobOptions): object {
  const labels = {
    'app.kubernetes.io/name': 'linger-prove',
    [RUN_LABEL]: name,
    'linger.dev/inject': 'false',
  };
  const away = { key: 'kubernetes.io/hostname', operator: 'NotIn', values: [notOn] };
  const nodeAffinity = {
    requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions: [away] }] },
  };
  return {
    ...JOB,
    metadata: { name, namespace, labels },
    spec: {
      completions: pods,
      parallelism: pods,
      backoffLimit: 0,
      activeDeadlineSeconds: LEASE_SECONDS,
      ttlSecondsAfterFinished: TTL_SECONDS,
      template: {
        metadata: { labels },
        spec: {
          restartPolicy: 'Never',
          automountServiceAccountToken: account !== undefined,
          ...(account !== undefined && { serviceAccountName: account }),
          terminationGracePeriodSeconds: account === undefined ? 1 : CLEARING_SECONDS,
          ...(notOn !== undefined && { affinity: { nodeAffinity } }),
          topologySpreadConstraints: [
            {
              maxSkew: 1,
              topologyKey: 'kubernetes.io/hostname',
              whenUnsatisfiable: 'ScheduleAnyway',
              labelSelector: { matchLabels: { [RUN_LABEL]: name } },
            },
          ],
          securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              name: 'prove',
              image,
              imagePullPolicy: 'IfNotPresent',
              command: ['node', '/app/dist/main.js', ...args],
              resources: { requests: { cpu: '50m', memory: '64Mi' }, limits: { memory: '256Mi' } },
              securityContext: {
                allowPrivilegeEscalation: false,
                readOnlyRootFilesystem: true,
                capabilities: { drop: ['ALL'] },
              },
            },
          ],
        },
      },
    },
  };
}
