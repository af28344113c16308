import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureQueueProxy } from '../testbed/binaries.ts';
import { imageArchive } from '../testbed/image.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { appContainer, type PodMetadata, pod } from './support/manifests.ts';
import { openStage, type Stage } from './support/stage.ts';
import { startPod, type Termination } from './support/termination.ts';

const QUEUE_PROXY = 'linger.test/queue-proxy:1';

/** queue-proxy lets its user-container stop when no request has come for this long (pkg/queue/sharedmain of Knative Serving). */
const QUIET_SECONDS = 30;

/** A pod of a Knative Revision, as its controller writes it (pkg/reconciler/revision/resources/deploy.go). */
function revisionPod(namespace: string, name: string, metadata: PodMetadata = {}) {
  const fromField = (variable: string, fieldPath: string) => ({
    name: variable,
    valueFrom: { fieldRef: { fieldPath } },
  });
  const values = {
    CONTAINER_CONCURRENCY: '0',
    QUEUE_SERVING_PORT: '8012',
    QUEUE_SERVING_TLS_PORT: '8112',
    USER_PORT: '8080',
    REVISION_TIMEOUT_SECONDS: '300',
    SERVING_CONFIGURATION: name,
    SERVING_REVISION: `${name}-00001`,
    SERVING_LOGGING_CONFIG: '',
    SERVING_LOGGING_LEVEL: '',
    SERVING_READINESS_PROBE: JSON.stringify({
      tcpSocket: { port: 8080, host: '127.0.0.1' },
      successThreshold: 1,
    }),
    TRACING_CONFIG_BACKEND: 'none',
  };
  const queueProxy = {
    name: 'queue-proxy',
    image: QUEUE_PROXY,
    imagePullPolicy: 'Never',
    ports: [{ containerPort: 8022 }, { containerPort: 8012 }],
    readinessProbe: {
      httpGet: { path: '/', port: 8012, httpHeaders: [{ name: 'K-Network-Probe', value: 'queue' }] },
      periodSeconds: 1,
    },
    env: [
      ...Object.entries(values).map(([variable, value]) => ({ name: variable, value })),
      fromField('SERVING_NAMESPACE', 'metadata.namespace'),
      fromField('SERVING_POD', 'metadata.name'),
      fromField('SERVING_POD_IP', 'status.podIP'),
    ],
  };
  const waitForDrain = { httpGet: { path: '/wait-for-drain', port: 8022, scheme: 'HTTP' } };
  const user = appContainer('user-container', { lifecycle: { preStop: waitForDrain } });
  const labels = { 'serving.knative.dev/revision': `${name}-00001`, app: `${name}-00001` };
  const spec = { terminationGracePeriodSeconds: 300, containers: [user, queueProxy] };
  return pod(namespace, name, spec, { ...metadata, labels });
}

/** Seconds from the deletion until the application got SIGTERM. */
function stoppedAfter({ containers, deletedAt }: Termination): number {
  return ((containers['user-container']?.sigtermAt ?? Number.NaN) - deletedAt) / 1000;
}

describe('a pod that drains by itself: Knative with its real queue-proxy', () => {
  let stage: Stage;
  let namespace: string;

  beforeAll(async () => {
    const program = await ensureQueueProxy(clusterSettings().cacheDir, console.log);
    stage = await openStage();
    namespace = await stage.cluster.namespace('knative');
    const file = { path: '/bin/queue', mode: 0o755, content: readFileSync(program) };
    const image = { reference: QUEUE_PROXY, files: [file], entrypoint: ['/bin/queue'], user: '65532:65532' };
    await stage.cluster.importImages(imageArchive([image]));
  }, 600_000);

  afterAll(() => stage?.close());

  it('is left as it is, and its own drain goes on while requests come; a wait would have cancelled it', async () => {
    const forced = { annotations: { 'linger.dev/inject': 'true' } };
    const [untouched, injected] = await Promise.all([
      startPod(stage.cluster, revisionPod(namespace, 'untouched'), ['queue-proxy']),
      startPod(stage.cluster, revisionPod(namespace, 'injected', forced), ['queue-proxy']),
    ]);
    const { spec, metadata, status } = untouched.pod;
    expect(spec.terminationGracePeriodSeconds).toBe(300);
    expect(spec.containers.map(({ lifecycle }) => Object.keys(lifecycle?.preStop ?? {}))).toEqual([
      ['httpGet'],
      [],
    ]);
    expect(metadata.annotations?.['linger.dev/plan']).toBeUndefined();
    expect(injected.pod.spec.containers[1]?.lifecycle?.preStop).toEqual({ sleep: { seconds: 30 } });

    const url = `http://${(status as { podIP?: string }).podIP}:8012/`;
    const ended = Promise.all([untouched.terminate(), injected.terminate()]);
    const answers: number[] = [];
    for (let second = 0; second < 5; second += 1) {
      await sleep(1_000);
      answers.push((await fetch(url, { headers: { connection: 'close' } })).status);
    }
    const [own, cancelled] = await ended;
    expect(answers).toEqual([200, 200, 200, 200, 200]);
    // The last of those requests came in the sixth second at the latest.
    expect(stoppedAfter(own)).toBeGreaterThan(QUIET_SECONDS + 4);
    expect(stoppedAfter(own)).toBeLessThan(QUIET_SECONDS + 12);
    // What the skip prevents: without its SIGTERM, queue-proxy gives up its drain after a second.
    expect(stoppedAfter(cancelled)).toBeLessThan(5);
  }, 180_000);
});
