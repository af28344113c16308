import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, images } from '../testbed/cluster.ts';
import {
  appContainer,
  type Json,
  noSleepZero,
  type PodMetadata,
  type PodObject,
  pod,
  preStop,
  sidecar,
} from './support/manifests.ts';
import { runAll } from './support/runs.ts';
import { openStage, type Stage } from './support/stage.ts';
import { startPod, type Termination } from './support/termination.ts';

/** The kubelet notices, runs the hook and signals; whatever it needs beyond the wait must fit into this. */
const SLACK_SECONDS = 2;
const WAIT = 4;
const NAMESPACE_WAIT = 6;
const EXEC = { 'linger.dev/hook': 'Exec' };

interface Case {
  readonly name: string;
  readonly spec?: Json;
  readonly metadata?: PodMetadata;
  /** Namespace annotations say the wait instead of the policy. */
  readonly inWaitingNamespace?: true;
  /** Seconds after deletion at which each container sees SIGTERM, at the earliest. */
  readonly sigterm: Readonly<Record<string, number>>;
  readonly grace: number;
}

const two = { containers: [appContainer('one'), appContainer('two', {}, 8081)] };
const ownHook = (handler: Json) => ({ containers: [appContainer('app', preStop(handler))] });
const annotated = (annotations: Record<string, string>) => ({ metadata: { annotations } });

const cases: readonly Case[] = [
  { name: 'native sleep', sigterm: { app: WAIT }, grace: 30 + WAIT },
  { name: 'exec hook', ...annotated(EXEC), sigterm: { app: WAIT }, grace: 30 + WAIT },
  {
    name: 'two containers wait in parallel, and the grace rises once',
    spec: two,
    sigterm: { one: WAIT, two: WAIT },
    grace: 30 + WAIT,
  },
  {
    name: 'two containers with exec hooks wait in parallel',
    spec: two,
    ...annotated(EXEC),
    sigterm: { one: WAIT, two: WAIT },
    grace: 30 + WAIT,
  },
  {
    name: 'native sleep in an image without a shell',
    spec: { containers: [appContainer('app', { image: images.appDistroless })] },
    sigterm: { app: WAIT },
    grace: 30 + WAIT,
  },
  { name: 'wait by annotation', ...annotated({ 'linger.dev/wait': '8s' }), sigterm: { app: 8 }, grace: 38 },
  {
    name: 'a fraction of a second rounds up',
    ...annotated({ 'linger.dev/wait': '2500ms' }),
    sigterm: { app: 3 },
    grace: 33,
  },
  {
    name: 'wait by annotation of the namespace',
    inWaitingNamespace: true,
    sigterm: { app: NAMESPACE_WAIT },
    grace: 30 + NAMESPACE_WAIT,
  },
  {
    name: 'no wait beside an own hook, which is kept',
    spec: ownHook({ exec: { command: ['sh', '-c', 'sleep 1; exit 0'] } }),
    sigterm: { app: 1 },
    grace: 30,
  },
  { name: 'no wait with sleep: 0', spec: ownHook({ sleep: { seconds: 0 } }), sigterm: { app: 0 }, grace: 30 },
  {
    name: 'no wait when opted out',
    ...annotated({ 'linger.dev/inject': 'false' }),
    sigterm: { app: 0 },
    grace: 30,
  },
];

const SIDECAR = 'a native sidecar';
const SLOW = 'a slow application';
const NO_SLEEP = 'exec hook in an image without sleep';

const special: readonly Case[] = [
  {
    name: SIDECAR,
    spec: { initContainers: [sidecar('proxy', 8081)] },
    sigterm: { app: WAIT, proxy: WAIT },
    grace: 30 + WAIT,
  },
  {
    name: SLOW,
    spec: {
      terminationGracePeriodSeconds: 5,
      containers: [appContainer('app', { args: ['--on-sigterm=drain', '--drain-timeout=60s'] })],
    },
    sigterm: { app: WAIT },
    grace: 5 + WAIT,
  },
  {
    name: NO_SLEEP,
    spec: { containers: [appContainer('app', { image: images.appDistroless })] },
    ...annotated(EXEC),
    sigterm: { app: 0 },
    grace: 30 + WAIT,
  },
];

/** A request that outlasts everything, from inside the container: it keeps the application from ending. */
async function holdRequest(cluster: Cluster, { metadata }: PodObject): Promise<void> {
  const target = ['--namespace', metadata.namespace ?? '', metadata.name];
  const wget = ['wget', '-q', '-O', '/dev/null', 'http://127.0.0.1:8080/?delay=120s'];
  void cluster.kubectl(['exec', ...target, '--', ...wget]);
  // The container's own process list: the request is under way when wget runs.
  const look = [
    'sh',
    '-c',
    'for d in /proc/[0-9]*; do read -r c < $d/comm; [ "$c" = wget ] && exit 0; done; exit 1',
  ];
  await expect
    .poll(async () => (await cluster.kubectl(['exec', ...target, '--', ...look])).code, { timeout: 20_000 })
    .toBe(0);
}

describe('SIGTERM waits', () => {
  let stage: Stage;
  let runOf: (name: string) => Promise<Termination>;
  const delays: string[] = [];

  beforeAll(async () => {
    let plain = '';
    let waiting = '';
    stage = await openStage(async (cluster) => {
      plain = await cluster.namespace('termination');
      waiting = await cluster.namespace('termination-waiting');
      return `
apiVersion: linger.dev/v1alpha1
kind: ClusterTerminationPolicy
metadata: {name: base}
spec: {wait: {from: Fixed, fixed: ${WAIT}s}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ${waiting}, annotations: {linger.dev/wait: ${NAMESPACE_WAIT}s}}
`;
    });
    const { cluster } = stage;
    const start = async ({ name, spec = {}, metadata, inWaitingNamespace }: Case) => {
      const namespace = inWaitingNamespace === undefined ? plain : waiting;
      const object = pod(namespace, name.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-'), spec, metadata);
      const running = await startPod(cluster, object);
      if (name === SLOW) await holdRequest(cluster, running.pod);
      return { measure: running.terminate };
    };
    const possible = cases.filter((each) => noSleepZero(each, cluster) === undefined);
    runOf = runAll([...possible, ...special], start);
  });

  afterAll(async () => {
    console.log(`seconds from deletion to SIGTERM\n${delays.join('\n')}`);
    await stage?.close();
  });

  /** Seconds from the deletion to a container's SIGTERM. */
  function delayOf({ deletedAt, containers }: Termination, name: string): number {
    const sigtermAt = containers[name]?.sigtermAt;
    if (sigtermAt === undefined) throw new Error(`container ${name} saw no SIGTERM`);
    return (sigtermAt - deletedAt) / 1000;
  }

  async function checked({ name, sigterm, grace }: Case): Promise<Termination> {
    const run = await runOf(name);
    expect(run.pod.spec.terminationGracePeriodSeconds).toBe(grace);
    for (const [container, wait] of Object.entries(sigterm)) {
      const delay = delayOf(run, container);
      delays.push(`${delay.toFixed(3).padStart(8)}  wait ${wait}  ${name}: ${container}`);
      expect(delay).toBeGreaterThanOrEqual(wait);
      expect(delay).toBeLessThanOrEqual(wait + SLACK_SECONDS);
    }
    return run;
  }

  it.for(cases)('$name: $sigterm s after deletion', async (each, { skip }) => {
    const why = noSleepZero(each, stage.cluster);
    skip(why !== undefined, why);
    await checked(each);
  });

  it('for a native sidecar until the ordinary containers have ended', async () => {
    const { containers, deletedAt } = await checked(special[0] as Case);
    const { app, proxy } = containers;
    expect(proxy?.sigtermAt).toBeGreaterThanOrEqual(app?.exitAt ?? Number.POSITIVE_INFINITY);
    expect((proxy?.sigtermAt ?? 0) - deletedAt).toBeGreaterThanOrEqual(WAIT * 1000);
  });

  it('and the application keeps its whole own grace afterwards', async () => {
    const { containers } = await checked(special[1] as Case);
    const { sigtermAt = 0, finishedAt = 0, exitCode } = containers.app ?? {};
    expect(exitCode).toBe(137);
    // The kubelet's time of the end is cut to whole seconds: up to one may be missing.
    expect(finishedAt + 1000 - sigtermAt).toBeGreaterThanOrEqual(5_000);
    expect(finishedAt - sigtermAt).toBeLessThanOrEqual(7_000);
  });

  it('not at all where the hook cannot run, and the kubelet says so', async () => {
    const { pod: ended } = await checked(special[2] as Case);
    const path = `/api/v1/namespaces/${ended.metadata.namespace}/events?fieldSelector=involvedObject.name%3D${ended.metadata.name}`;
    await expect
      .poll(async () => {
        const { items } = await stage.cluster.api.call<{ items: { reason: string }[] }>('GET', path);
        return items.map(({ reason }) => reason);
      })
      .toContain('FailedPreStopHook');
  });
});
