import { afterAll, beforeAll, expect, it } from 'vitest';
import { waitUntil } from '../testbed/cluster.ts';
import type { Linger } from './support/linger.ts';
import { type PodObject, pod } from './support/manifests.ts';
import { planOf } from './support/outcome.ts';
import { openStage, type Stage } from './support/stage.ts';

const DRAIN_SECONDS = 4;
/**
 * A machine that stands still for two seconds, the timeout of deploy/webhook.yaml, would look like a pod that goes unmutated.
 * What is asked is whether the replica that ends refuses or cuts a connection, and that shows at once.
 */
const TIMEOUT_SECONDS = 10;
/** Creations under way at once: several connections from the API server are open when the drain begins. */
const PARALLEL = 4;

let stage: Stage;
let replica: Linger;
let staying: Linger;
let namespace = '';

beforeAll(async () => {
  stage = await openStage();
  await stage.registration.edit((webhook) => ({ ...webhook, timeoutSeconds: TIMEOUT_SECONDS }));
  namespace = await stage.cluster.namespace('drain');
  replica = await stage.startLinger({ drain: `${DRAIN_SECONDS}s` });
  await stage.registration.setEndpoints([endpointOf(replica, true)]);
  // All open connections of the API server then lead to the replica that is about to go.
  await stage.linger.stop('SIGKILL');
  await stage.registration.untilMutated();
  staying = await stage.startLinger({});
});

afterAll(() => stage?.close());

const endpointOf = ({ host, port }: Linger, ready: boolean) => ({ address: host, port, ready });

/** Creates pods until told to stop; counts them. */
function createPods() {
  const counts = { created: 0, unmutated: 0, slowestMs: 0 };
  let going = true;
  const create = async (worker: number) => {
    for (let index = 0; going; index++) {
      const started = performance.now();
      const object = pod(namespace, `pod-${worker}-${index}`, {});
      const created = await stage.cluster.create<PodObject>(object, { dryRun: true });
      counts.slowestMs = Math.max(counts.slowestMs, Math.round(performance.now() - started));
      counts.created += 1;
      if (planOf(created) === undefined) counts.unmutated += 1;
    }
  };
  const workers = Array.from({ length: PARALLEL }, (_, worker) => create(worker));
  const stop = async () => {
    going = false;
    await Promise.all(workers);
    return counts;
  };
  return { counts, stop };
}

it('no pod goes unmutated while one of two replicas drains and ends', async () => {
  const creating = createPods();
  const decided = (await replica.decisions(namespace)).length;
  await waitUntil(
    'the replica to be asked',
    async () => (await replica.decisions(namespace)).length > decided,
  );
  await stage.registration.setEndpoints([endpointOf(staying, true), endpointOf(replica, true)]);

  const before = creating.counts.created;
  const ended = replica.stop('SIGTERM');
  // What the endpoints controller does when a pod is deleted.
  await stage.registration.setEndpoints([endpointOf(staying, true), endpointOf(replica, false)]);
  await waitUntil('the replica to be unready', async () => !(await replica.ready()), { intervalMs: 20 });
  expect(await ended).toBe(0);
  await waitUntil('pods to be created without it', () => creating.counts.created - before >= 100);

  const counts = await creating.stop();
  const other = (await staying.decisions(namespace)).length;
  console.log(
    `created ${counts.created}, ${counts.created - before} of them since SIGTERM; unmutated ${counts.unmutated}`,
  );
  console.log(`${other} decided by the replica that stayed; slowest creation ${counts.slowestMs} ms`);
  expect(other).toBeGreaterThan(0);
  expect(counts.unmutated).toBe(0);
});
