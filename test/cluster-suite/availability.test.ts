import { createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type KubernetesObject, waitUntil } from '../testbed/cluster.ts';
import type { Linger } from './support/linger.ts';
import { appContainer, type PodObject, pod, workload } from './support/manifests.ts';
import { planOf } from './support/outcome.ts';
import type { ReplicaEndpoint } from './support/registration.ts';
import { openStage, type Stage } from './support/stage.ts';

/** timeoutSeconds of deploy/webhook.yaml. */
const TIMEOUT_MS = 2_000;
/** What the API server and a busy machine may need beside it. */
const SLACK_MS = 1_500;
/** Neither an answer nor a refusal takes that long. */
const SILENCE_MS = 500;
/** 192.0.2.0/24 belongs to no host (RFC 5737): packets to it are swallowed. */
const NOBODY = { address: '192.0.2.1', port: 8443 };

describe('with the webhook', () => {
  let stage: Stage;
  let namespace = '';
  let running: Linger;

  beforeAll(async () => {
    stage = await openStage();
    running = stage.linger;
    namespace = await stage.cluster.namespace('availability');
  });

  afterAll(() => stage?.close());

  let count = 0;
  async function create(dryRun = false): Promise<{ pod: PodObject; tookMs: number }> {
    const object = pod(namespace, `pod-${count++}`, {});
    const started = performance.now();
    const created = await stage.cluster.create<PodObject>(object, { dryRun });
    const tookMs = performance.now() - started;
    if (!dryRun) await stage.cluster.delete(object, { graceSeconds: 0 });
    return { pod: created, tookMs };
  }

  const mutated = ({ pod: created }: { pod: PodObject }) => planOf(created) !== undefined;

  /** New endpoints alone would not do: the API server goes on using the connections that it has open. */
  async function breakDown(endpoints: readonly ReplicaEndpoint[]): Promise<void> {
    expect(mutated(await create())).toBe(true);
    await stage.registration.setEndpoints(endpoints);
    await running.stop('SIGKILL');
  }

  async function expectUnmutated(how: string, timeoutMs: number): Promise<void> {
    const created = await create();
    expect(mutated(created)).toBe(false);
    expect(created.pod.spec.terminationGracePeriodSeconds).toBe(30);
    expect(created.tookMs).toBeLessThan(timeoutMs);
    console.log(`${how}: created in ${Math.round(created.tookMs)} ms`);
  }

  async function expectRecovery(): Promise<void> {
    running = await stage.startLinger({ port: stage.linger.port });
    await stage.registration.setEndpoints([{ address: running.host, port: running.port }]);
    await stage.registration.untilMutated();
    expect(mutated(await create())).toBe(true);
  }

  it('gone: pods are created unmutated, at once, and mutated again when it is back', async () => {
    await breakDown([{ address: running.host, port: running.port }]);
    await expectUnmutated('connection refused', SLACK_MS);
    await expectRecovery();
  });

  it('without endpoints: the same', async () => {
    await breakDown([]);
    await expectUnmutated('no endpoints', SLACK_MS);
    await expectRecovery();
  });

  it('at an address that swallows packets: pods are created unmutated, at the latest after the timeout', async () => {
    await breakDown([NOBODY]);
    await waitUntil('a pod to wait for an answer', async () => (await create(true)).tookMs >= SILENCE_MS);
    await expectUnmutated('packets swallowed', TIMEOUT_MS + SLACK_MS);
    await expectRecovery();
  });

  it('hanging: pods are created unmutated after the timeout', async () => {
    const hanging = await HangingServer.start(stage.linger.host);
    await breakDown([{ address: stage.linger.host, port: hanging.port }]);
    await waitUntil('the API server to connect', async () => {
      await create(true);
      return hanging.connections > 0;
    });
    await expectUnmutated('hanging', TIMEOUT_MS + SLACK_MS);
    hanging.stop();
    await expectRecovery();
  });

  it('failing closed: what it would be asked about is refused, and what a cluster needs to start is not', async () => {
    await breakDown([]);
    await stage.registration.failClosed();
    const dryRun = (name: string, spec: object, more: object = {}, where = namespace) =>
      stage.cluster.tryCreate<{ message?: string }>(pod(where, name, { ...spec }, more), { dryRun: true });
    const refused = await waitUntil('an ordinary pod to be refused', async () => {
      const { status, body } = await dryRun('ordinary', {});
      return status === 201 ? undefined : { status, message: body.message };
    });
    // The API server's words: they name the webhook, and the Service to look at.
    expect(refused.status).toBe(500);
    expect(refused.message).toMatch(
      /failed calling webhook "pods\.linger\.dev".*https:\/\/linger\.linger\.svc:443\/mutate/,
    );
    console.log(refused.message);
    const critical = await dryRun('critical', { priorityClassName: 'system-node-critical' });
    expect(critical.status).toBe(201);
    const own = { labels: { 'app.kubernetes.io/name': 'linger', 'linger.dev/inject': 'false' } };
    expect((await dryRun('replica', RESTRICTED, own, 'linger')).status).toBe(201);
    expect((await dryRun('not-labelled', RESTRICTED, {}, 'linger')).status).toBe(201);
    const daemons = workload('DaemonSet', namespace, 'network');
    await stage.cluster.create(daemons);
    type Daemons = KubernetesObject & { status: { currentNumberScheduled?: number } };
    await stage.cluster.waitFor<Daemons>(daemons, ({ status }) => (status.currentNumberScheduled ?? 0) > 0);
    await stage.cluster.delete(daemons);
    await expectRecovery();
  });
});

/** As Pod Security wants it in Linger's namespace. */
const RESTRICTED = {
  securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: 'RuntimeDefault' } },
  containers: [
    appContainer('app', {
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
    }),
  ],
};

/** Accepts connections and never says a word. */
class HangingServer {
  readonly #server: Server;
  readonly #sockets: Socket[] = [];

  private constructor() {
    this.#server = createServer((socket) => this.#sockets.push(socket.on('error', () => {})));
  }

  static async start(host: string): Promise<HangingServer> {
    const hanging = new HangingServer();
    await new Promise<void>((resolve) => hanging.#server.listen(0, host, resolve));
    return hanging;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  get connections(): number {
    return this.#sockets.length;
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
