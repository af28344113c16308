import { join } from 'node:path';
import { HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME } from '../../src/api/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { type Cluster, images, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';

/*
 * npm run conformance
 * What of Linger works in the cluster that KUBECONFIG names (without it, in our own). It works in one namespace of its own,
 * which it deletes, installs nothing, and touches no other workload.
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
const IMAGE = process.env.LINGER_CONFORMANCE_IMAGE;
const MAIN = join(import.meta.dirname, '..', '..', 'src', 'main.ts');

/** How long an image may take to be pulled, and a pod to start. */
const STARTS_WITHIN_MS = 120_000;
/** A hook of this many seconds cannot be mistaken for a slow end. */
const HOOK_SECONDS = 8;
const GRACE_SECONDS = 40;

/** Conforms to Pod Security's level restricted, and ends at once on SIGTERM. */
function podOf(namespace: string, name: string, container: object = {}, spec: object = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name, labels: { app: name } },
    spec: {
      automountServiceAccountToken: false,
      terminationGracePeriodSeconds: GRACE_SECONDS,
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: 'app',
          image: IMAGE ?? (process.env.KUBECONFIG ? 'busybox:1.37' : images.busybox),
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
  readonly status?: { readonly conditions?: readonly { type: string; status: string }[] };
};

/** Starts the pod and deletes it. @returns seconds from the deletion until it was gone */
async function endOf(cluster: Cluster, pod: ReturnType<typeof podOf>): Promise<number> {
  await cluster.create(pod);
  const isReady = ({ status }: PodObject) =>
    status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true;
  await cluster.waitFor<PodObject>(pod, isReady, { timeoutMs: STARTS_WITHIN_MS });
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
  const { stdout, stderr } = await run([process.execPath, MAIN, ...words], { timeoutMs: 120_000 });
  if (stdout === '') return [{ what: 'check --pre', state: 'unknown', text: stderr.trim() }];
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
}

async function sleepAction({ cluster, namespace }: Trial) {
  const lifecycle = { preStop: { sleep: { seconds: HOOK_SECONDS } } };
  return judge(await endOf(cluster, podOf(namespace, 'sleep', { lifecycle })), 'the native sleep');
}

async function sleepProgram({ cluster, namespace }: Trial) {
  const lifecycle = { preStop: { exec: { command: ['sleep', String(HOOK_SECONDS)] } } };
  return judge(await endOf(cluster, podOf(namespace, 'exec', { lifecycle })), 'exec sleep');
}

/** The helper waits for its static wait where nothing answers; 192.0.2.0/24 is nobody's (RFC 5737). */
async function holdByConfigMap({ cluster, namespace }: Trial) {
  const helper = readHelperObject();
  const manifest = await run([process.execPath, MAIN, 'hold', 'manifest', '--namespace', namespace]);
  await cluster.mustKubectl(['apply', '--filename', '-'], { stdin: manifest.stdout });
  const nodes = await cluster.list<{ status: { nodeInfo: { architecture: string } } }>({
    apiVersion: 'v1',
    kind: 'Node',
  });
  const [architecture = '', ...others] = new Set(nodes.map(({ status }) => status.nodeInfo.architecture));
  if (others.length > 0) return no(`nodes of several architectures: ${[architecture, ...others].join(', ')}`);
  const token = 'A'.repeat(22);
  const command = [HOLD_HELPER, '192.0.2.1:8445', token, String(HOOK_SECONDS), '30'];
  const container = {
    lifecycle: { preStop: { exec: { command } } },
    volumeMounts: [{ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true }],
  };
  const items = [{ key: `hold-${architecture}`, path: 'hold' }];
  const configMap = { name: helper.name, defaultMode: 0o555, optional: true, items };
  const pod = podOf(namespace, 'hold', container, { volumes: [{ name: HOLD_VOLUME, configMap }] });
  return judge(await endOf(cluster, pod), 'the mounted helper');
}

/** What the API server keeps of a pod, by a dry run. */
async function kept({ cluster }: Trial, pod: object, has: (pod: PodObject) => boolean, what: string) {
  const { status, body } = await cluster.tryCreate<PodObject>(pod as never, { dryRun: true });
  if (status >= 300) return no(`${what} is rejected: ${JSON.stringify(body).slice(0, 200)}`);
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
async function withdrawal({ cluster, namespace }: Trial): Promise<readonly Row[]> {
  const name = 'lag';
  const lifecycle = { preStop: { exec: { command: ['sleep', '10'] } } };
  const pod = podOf(namespace, name, { lifecycle });
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name } };
  await cluster.create({ ...service, spec: { selector: { app: name }, ports: [{ port: 80 }] } } as never);
  await cluster.create(pod);
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
  await waitUntil('the slices to list a pod', lists.EndpointSlices, { timeoutMs: STARTS_WITHIN_MS });
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
    rows.push({
      what,
      ...yes(`withdrew a terminating pod within ${((Date.now() - begun) / 1000).toFixed(1)} s`),
    });
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

async function main(): Promise<number> {
  const cluster = await openCluster();
  const namespace = await cluster.namespace('linger-conformance', {
    'pod-security.kubernetes.io/enforce': 'restricted',
  });
  console.log(`in namespace ${namespace}, which is deleted afterwards`);
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      console.error(`interrupted: deleting namespace ${namespace}`);
      void cluster.close().finally(() => process.exit(130));
    });
  const rows: Row[] = [];
  try {
    for (const [what, step] of Object.entries(STEPS)) {
      const seen = await step({ cluster, namespace }).catch(
        (error: unknown): Omit<Row, 'what'> => ({
          state: 'unknown',
          text: (error as Error).message.slice(0, 500),
        }),
      );
      const added: readonly Row[] = Array.isArray(seen)
        ? (seen as readonly Row[])
        : [{ what, ...(seen as Omit<Row, 'what'>) }];
      for (const row of added) console.log(`${row.state.padEnd(7)}  ${row.what.padEnd(29)}  ${row.text}`);
      rows.push(...added);
    }
  } finally {
    await cluster.close();
  }
  const unusable = rows.filter(
    ({ what, state }) => /^(hook Sleep|check ApiServer)$/.test(what) && state !== 'yes',
  );
  return unusable.length === 0 ? 0 : 1;
}

// What an error has left open, such as kubectl's proxy, must not keep the process.
process.exit(
  await main().catch((error: unknown) => {
    console.error(`conformance: ${(error as Error).message}`);
    return 2;
  }),
);
