import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, openCluster, type SecondNode, waitUntil } from './cluster.ts';
import { leftoversOf } from './leftovers.ts';
import { clusterSettings, secondNodeOf } from './settings.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from './workloads.ts';

interface Pod {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly nodeName: string };
}

const SPREAD = [
  {
    maxSkew: 1,
    topologyKey: 'kubernetes.io/hostname',
    whenUnsatisfiable: 'DoNotSchedule',
    labelSelector: { matchLabels: { app: 'web' } },
  },
];

describe('the second node', () => {
  let cluster: Cluster;
  let node: SecondNode;
  let namespace = '';
  let clusterIP = '';

  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    node = await cluster.startNode();
    namespace = await cluster.namespace('second-node');
    const web = { namespace, name: 'web', podSpec: { topologySpreadConstraints: SPREAD } };
    const service = await cluster.create<{ spec: { clusterIP: string } }>(applicationService(web));
    clusterIP = service.spec.clusterIP;
    await cluster.create(applicationDeployment(web));
    await cluster.waitFor<DeploymentObject>(applicationDeployment(web), (each) => isRolledOut(each, 2));
  });

  afterAll(() => cluster?.close());

  const pods = () => cluster.list<Pod>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');

  it('is given pods by the scheduler', async ({ skip }) => {
    if (!cluster.own) return skip('a foreign cluster has the nodes that it has');
    const where = (await pods()).map(({ spec }) => spec.nodeName);
    expect(where.toSorted()).toEqual(['node-1', 'node-2']);
  });

  it('leads ClusterIPs to the pods of both, and so does the first', async ({ skip }) => {
    if (!cluster.own) return skip('a foreign cluster has the nodes that it has');
    const names = (await pods()).map(({ metadata }) => metadata.name).toSorted();
    for (const name of names) {
      const answered = new Set<string>();
      await waitUntil(`${name} to reach both`, async () => {
        const wget = ['sh', '-c', `wget -q -O - http://${clusterIP}/`];
        const { stdout } = await cluster.kubectl(['exec', '-n', namespace, name, '--', ...wget]);
        answered.add(stdout.trim());
        return answered.size === 2;
      });
      expect([...answered].toSorted()).toEqual(names);
    }
  });

  it('can be removed when it hangs, and leaves nothing', async ({ skip }) => {
    if (!cluster.own) return skip('a foreign cluster has the nodes that it has');
    node.hang();
    await node.remove();
    expect(leftoversOf(secondNodeOf(clusterSettings()))).toEqual([]);
    const nodes = await cluster.list<{ metadata: { name: string } }>({ apiVersion: 'v1', kind: 'Node' });
    expect(nodes.map(({ metadata }) => metadata.name)).toEqual(['node-1']);
    await waitUntil('the pods to run elsewhere', async () =>
      (await pods()).every(({ spec }) => spec.nodeName !== node.name),
    );
  });
});
