import { join } from 'node:path';
import { HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME, holdKey, printable } from '../../src/core/api/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { type Cluster, images, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { must, run } from '../testbed/command.ts';

/*
 * npm run conformance
 * What of Linger works in the cluster that KUBECONFIG names (without it, in our own). It works in one namespace of its own,
 * which it deletes, also when it is interrupted, installs nothing, and touches no other workload.
 */
type State = 'yes' | 'no' | 'unknown';
interface Row {
  readonly what: string;
  readonly state: State;
  readonly text: string;
}

const yes = (text: string) => ({ state: 'yes', text }) as const;
const no = (text: string) => ({ state: 'no', text }) as const;

/** Needs sh and sleep. */
const IMAGE =
  process.env.LINGER_CONFORMANCE_IMAGE ||
  // CRI-O may refuse a name without a registry.
  (process.env.KUBECONFIG ? 'docker.io/library/busybox:1.37' : images.busybox);
const MAIN = join(import.meta.dirname, '..', '..', 'src', 'main.ts');

/** What is left then is not tried. */
const LONGEST_MS = 10 * 60_000;
/** How long an image may take to be pulled, and a pod to start. */
const STARTS_WITHIN_MS = 120_000;
/** A hook of this many seconds cannot be mistaken for a slow end. */
const HOOK_SECONDS = 8;
const GRACE_SECONDS = 40;

const NAMESPACE_LABELS = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  // A Linger that is installed must not change what is tried.
  'linger.dev/inject': 'false',
  // By which what a killed run has left can be found.
  'app.kubernetes.io/name': 'linger-conformance',
};

/** Conforms to Pod Security's level restricted, and ends at once on SIGTERM. */
function podOf(namespace: string, name: string, container: object = {}, spec: object = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name, labels: { app: name } },
    spec: {
      automountServiceAccountToken: false,
      terminationGracePeriodSeconds: GRACE_SECONDS,
      // What a killed run leaves does not go on for ever.
      activeDeadlineSeconds: (2 * LONGEST_MS) / 1000,
      nodeSelector: { 'kubernetes.io/os': 'linux' },
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: 'app',
          image: IMAGE,
          imagePullPolicy: 'IfNotPresent',
          command: ['sh', '-c', 'trap "exit 0" TERM; while :; do sleep 1 & wait $!; done'],
          resources: { requests: { cpu: '10m', memory: '16Mi' }, limits: { cpu: '100m', memory: '64Mi' } },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
          ...container,
        },
      ],
      ...spec,
    },
  };
}

type PodObject = KubernetesObject & {
  readonly spec: { readonly containers: readonly Record<string, unknown>[] } & Record<string, unknown>;
  readonly status?: {
    readonly phase?: string;
    readonly conditions?: readonly { type: string; status: string; message?: string }[];
    readonly containerStatuses?: readonly {
      state?: { waiting?: { reason?: string; message?: string } };
    }[];
  };
};

/** Creates the pod and waits until it is ready. @throws an Error that says why it is not */
async function start({ cluster, pods }: Trial, pod: ReturnType<typeof podOf>): Promise<void> {
  if (pods.unstarted !== undefined) throw new Error(`not tried: ${pods.unstarted}`);
  await cluster.create(pod);
  const isReady = ({ status }: PodObject) =>
    status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true;
  try {
    await cluster.waitFor<PodObject>(pod, isReady, { timeoutMs: STARTS_WITHIN_MS });
    pods.started = true;
  } catch (error) {
    const seen = await cluster.get<PodObject>(pod);
    await cluster.delete(pod, { graceSeconds: 1 });
    if (seen === undefined) throw error;
    const why = `no pod with ${IMAGE} was ready after ${STARTS_WITHIN_MS / 1000} s: ${whyNotReady(seen)}`;
    // The others would not be, either, and each would take as long.
    if (!pods.started) pods.unstarted = why;
    throw new Error(why);
  }
}

function whyNotReady({ status = {} }: PodObject): string {
  const { reason, message } = status.containerStatuses?.[0]?.state?.waiting ?? {};
  const unscheduled = status.conditions?.find(
    ({ type, status: is }) => type === 'PodScheduled' && is === 'False',
  );
  return message ?? reason ?? unscheduled?.message ?? `phase ${status.phase}`;
}

/** Starts the pod and deletes it. @returns seconds from the deletion until it was gone */
async function endOf(trial: Trial, pod: ReturnType<typeof podOf>): Promise<number> {
  const { cluster } = trial;
  await start(trial, pod);
  const begun = Date.now();
  await cluster.delete(pod, { wait: true });
  return (Date.now() - begun) / 1000;
}

/** Whether a pod's end is as long as the hook, and not as long as the grace. */
function judge(seconds: number, what: string) {
  const took = `${seconds.toFixed(1)} s from deletion until gone, hook ${HOOK_SECONDS} s, grace ${GRACE_SECONDS} s`;
  if (seconds < HOOK_SECONDS) return no(`${what} was not run: ${took}`);
  return seconds < GRACE_SECONDS - 5 ? yes(took) : no(`the pod used its whole grace: ${took}`);
}

/** What `linger check --pre` says: rights, versions, kubelets, admission, other webhooks. */
async function preflight({ cluster, namespace }: Trial): Promise<readonly Row[]> {
  // KUBECONFIG may name several files, which the command takes from there; --kubeconfig takes one.
  const own = cluster.own ? ['--kubeconfig', cluster.kubeconfig] : [];
  const words = ['check', '--pre', '--output', 'json', '--namespace', namespace, ...own];
  const { stdout, stderr, code } = await run([process.execPath, MAIN, ...words], { timeoutMs: 120_000 });
  if (code === null) throw new Error('it took longer than two minutes');
  if (stdout === '') throw new Error(stderr);
  const { checks } = JSON.parse(stdout) as {
    checks: { code: string; state: string; text: string; cure?: string }[];
  };
  const states: Readonly<Record<string, State>> = { ok: 'yes', warning: 'no', failure: 'no' };
  return checks.map(({ code, state, text, cure }) => ({
    what: `check ${code}`,
    state: states[state] ?? 'unknown',
    text: cure === undefined ? text : `${text} → ${cure}`,
  }));
}

interface Trial {
  readonly cluster: Cluster;
  readonly namespace: string;
  /** Whether any pod has started, and why the first has not. */
  readonly pods: { started: boolean; unstarted?: string };
}

async function sleepAction(trial: Trial) {
  const lifecycle = { preStop: { sleep: { seconds: HOOK_SECONDS } } };
  return judge(await endOf(trial, podOf(trial.namespace, 'sleep', { lifecycle })), 'the native sleep');
}

async function sleepProgram(trial: Trial) {
  const lifecycle = { preStop: { exec: { command: ['sleep', String(HOOK_SECONDS)] } } };
  return judge(await endOf(trial, podOf(trial.namespace, 'exec', { lifecycle })), 'exec sleep');
}

/** The helper waits for its static wait where nothing answers; 192.0.2.0/24 is for documentation (RFC 5737). */
async function holdByConfigMap(trial: Trial) {
  const { cluster, namespace } = trial;
  const helper = readHelperObject();
  const manifest = await must([process.execPath, MAIN, 'hold', 'manifest', '--namespace', namespace]);
  await cluster.mustKubectl(['apply', '--filename', '-'], { stdin: manifest });
  type Node = { status: { nodeInfo: { architecture: string; operatingSystem: string } } };
  const nodes = await cluster.list<Node>({ apiVersion: 'v1', kind: 'Node' });
  const linux = nodes.map(({ status }) => status.nodeInfo).filter((info) => info.operatingSystem === 'linux');
  const [architecture = '', ...others] = new Set(linux.map((info) => info.architecture));
  if (others.length > 0)
    return no(
      `nodes of several architectures: ${[architecture, ...others].join(', ')}; only pods that select one of them can have it`,
    );
  if (!manifest.includes(holdKey(architecture))) return no(`there is no helper for ${architecture}`);
  const token = 'A'.repeat(22);
  const command = [HOLD_HELPER, '192.0.2.1:8445', token, String(HOOK_SECONDS), '30'];
  const container = {
    lifecycle: { preStop: { exec: { command } } },
    volumeMounts: [{ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true }],
  };
  const items = [{ key: holdKey(architecture), path: 'hold' }];
  const configMap = { name: helper.name, defaultMode: 0o555, optional: true, items };
  const pod = podOf(namespace, 'hold', container, { volumes: [{ name: HOLD_VOLUME, configMap }] });
  return judge(await endOf(trial, pod), 'the mounted helper');
}

/** What the API server keeps of a pod, by a dry run. */
async function kept({ cluster }: Trial, pod: object, has: (pod: PodObject) => boolean, what: string) {
  const { status, body } = await cluster.tryCreate<PodObject>(pod as never, { dryRun: true });
  // Validation says 422, and Pod Security that it forbids the kind of volume; anything else says nothing of the field.
  const text = `${what} is rejected: ${JSON.stringify(body).slice(0, 200)}`;
  if (status >= 300)
    return status === 422 || /PodSecurity/.test(text) ? no(text) : ({ state: 'unknown', text } as const);
  return has(body) ? yes(`${what} is kept`) : no(`the API server drops ${what}`);
}

const holdByImage = (trial: Trial) =>
  kept(
    trial,
    podOf(trial.namespace, 'image', {}, { volumes: [{ name: 'v', image: { reference: 'x.test/y:1' } }] }),
    ({ spec }) => JSON.stringify(spec.volumes ?? []).includes('x.test/y:1'),
    'an image volume',
  );

const stopSignal = (trial: Trial) =>
  kept(
    trial,
    podOf(trial.namespace, 'signal', { lifecycle: { stopSignal: 'SIGUSR1' } }, { os: { name: 'linux' } }),
    ({ spec }) => JSON.stringify(spec.containers).includes('SIGUSR1'),
    'stopSignal',
  );

const sleepZero = (trial: Trial) =>
  kept(
    trial,
    podOf(trial.namespace, 'zero', { lifecycle: { preStop: { sleep: { seconds: 0 } } } }),
    ({ spec }) => JSON.stringify(spec.containers).includes('"sleep"'),
    '`sleep: 0`',
  );

/** From the deletion of a pod that waits until its slices, and its Endpoints, no longer list it as ready. */
async function withdrawal(trial: Trial): Promise<readonly Row[]> {
  const { cluster, namespace } = trial;
  const name = 'lag';
  // As long as the grace allows: an ended pod is withdrawn, too.
  const hookSeconds = GRACE_SECONDS - 5;
  const lifecycle = { preStop: { exec: { command: ['sleep', String(hookSeconds)] } } };
  const pod = podOf(namespace, name, { lifecycle });
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name } };
  await cluster.create({ ...service, spec: { selector: { app: name }, ports: [{ port: 80 }] } } as never);
  await start(trial, pod);
  const lists = {
    EndpointSlices: async () => {
      type Slice = { endpoints: { conditions: { ready?: boolean } }[] | null };
      const of = { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', namespace };
      const slices = await cluster.list<Slice>(of, `kubernetes.io/service-name=${name}`);
      return slices.some(({ endpoints }) => endpoints?.some(({ conditions }) => conditions.ready !== false));
    },
    Endpoints: async () => {
      type Endpoints = { subsets?: { addresses?: object[] }[] };
      const object = await cluster.get<Endpoints>({ ...service, kind: 'Endpoints' });
      return object?.subsets?.some(({ addresses = [] }) => addresses.length > 0) === true;
    },
  };
  await waitUntil('the slices to list a pod', lists.EndpointSlices);
  const maintained = await waitUntil('Endpoints to list it', lists.Endpoints, { timeoutMs: 15_000 }).catch(
    () => false,
  );
  const begun = Date.now();
  await cluster.delete(pod);
  const rows: Row[] = [];
  for (const [what, listed] of Object.entries(lists)) {
    if (what === 'Endpoints' && !maintained) {
      rows.push({ what, ...no('no controller maintains them; Linger goes by EndpointSlices alone') });
      continue;
    }
    await waitUntil(`${what} to withdraw it`, async () => !(await listed()), { timeoutMs: 60_000 });
    const seconds = (Date.now() - begun) / 1000;
    const text = `withdrew a terminating pod within ${seconds.toFixed(1)} s`;
    rows.push({ what, ...(seconds < hookSeconds ? yes(text) : no(`${text}, when it had ended`)) });
  }
  return rows;
}

async function resourceVersions({ cluster, namespace }: Trial) {
  const of = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } };
  const { metadata } = (await cluster.get(of)) as KubernetesObject & {
    metadata: { resourceVersion: string };
  };
  return /^[1-9]\d*$/.test(metadata.resourceVersion)
    ? yes('decimal integers, so acknowledgements of reports can be compared')
    : no(
        `not decimal (${metadata.resourceVersion}): reports cannot acknowledge, and Hold waits for \`initial\``,
      );
}

async function mutatingPolicies({ cluster }: Trial) {
  const answer = await cluster.mustKubectl(['get', '--raw', '/apis/admissionregistration.k8s.io']);
  const { versions } = JSON.parse(answer) as { versions: { version: string }[] };
  for (const { version } of versions) {
    const raw = await cluster.mustKubectl(['get', '--raw', `/apis/admissionregistration.k8s.io/${version}`]);
    if (raw.includes('"MutatingAdmissionPolicy"'))
      return yes(`served as ${version}; \`linger check\` names those that undo it`);
  }
  return no('not served');
}

type Step = (trial: Trial) => Promise<readonly Row[] | Omit<Row, 'what'>>;

const STEPS: Readonly<Record<string, Step>> = {
  'check --pre': preflight,
  'hook Sleep': sleepAction,
  'hook Exec': sleepProgram,
  'hook Hold, delivery ConfigMap': holdByConfigMap,
  'hook Hold, delivery Image': holdByImage,
  'sleep: 0': sleepZero,
  stopSignal,
  withdrawal,
  'resourceVersion comparison': resourceVersions,
  MutatingAdmissionPolicy: mutatingPolicies,
};

const interruption = new AbortController();
const end = AbortSignal.any([interruption.signal, AbortSignal.timeout(LONGEST_MS)]);
const ended = new Promise<never>((_, reject) => {
  end.addEventListener('abort', () => {
    const { aborted, reason } = interruption.signal;
    reject(aborted ? (reason as Error) : new Error('not finished: ten minutes have passed'));
  });
});
ended.catch(() => {});

async function untilEnd<T>(work: () => Promise<T>): Promise<T> {
  return end.aborted ? await ended : await Promise.race([work(), ended]);
}

async function main(): Promise<number> {
  const cluster = await untilEnd(openCluster);
  const rows: Row[] = [];
  try {
    const context = await cluster.kubectl(['config', 'current-context']);
    const namespace = await untilEnd(() => cluster.namespace('linger-conformance', NAMESPACE_LABELS));
    console.log(`in context ${context.stdout.trim()}, namespace ${namespace}, which is deleted afterwards`);
    const trial: Trial = { cluster, namespace, pods: { started: false } };
    for (const [what, step] of Object.entries(STEPS)) {
      const seen = await untilEnd(() => step(trial)).catch(
        (error: unknown): Omit<Row, 'what'> => ({
          state: 'unknown',
          text: (error as Error).message.replace(/\s+/g, ' ').trim().slice(0, 500),
        }),
      );
      interruption.signal.throwIfAborted();
      const added: readonly Row[] = Array.isArray(seen)
        ? (seen as readonly Row[])
        : [{ what, ...(seen as Omit<Row, 'what'>) }];
      // Webhooks and policies write some of it.
      for (const row of added)
        console.log(printable(`${row.state.padEnd(7)}  ${row.what.padEnd(29)}  ${row.text}`));
      rows.push(...added);
    }
  } finally {
    if (interruption.signal.aborted) console.error('interrupted: deleting the namespace');
    await cluster.close().catch((error: unknown) => {
      console.error(
        `deleting the namespace: ${(error as Error).message}; if it is left: kubectl delete namespace --selector app.kubernetes.io/name=linger-conformance`,
      );
    });
  }
  const unusable = rows.filter(
    ({ what, state }) => /^(hook Sleep|check ApiServer)$/.test(what) && state !== 'yes',
  );
  return unusable.length === 0 ? 0 : 1;
}

// Any number of them: npm passes on what a terminal has sent to both.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => interruption.abort(new Error(`ended by ${signal}`)));

// What an error has left open, such as kubectl's proxy, must not keep the process.
process.exit(
  await main().catch((error: unknown) => {
    console.error(`conformance: ${(error as Error).message}`);
    return interruption.signal.aborted ? 130 : 2;
  }),
);
