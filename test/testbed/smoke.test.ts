import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, images, type KubernetesObject, openCluster, waitUntil } from './cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from './workloads.ts';

interface NodeStatus {
  readonly status: { readonly conditions: readonly { type: string; status: string }[] };
}

interface ServiceSpec {
  readonly spec: { readonly clusterIP: string };
}

describe('the cluster', () => {
  let cluster: Cluster;
  let namespace: string;

  beforeAll(async () => {
    cluster = await openCluster();
    namespace = await cluster.namespace('smoke');
    await cluster.create(applicationService({ namespace, name: 'web' }));
    await cluster.create(applicationDeployment({ namespace, name: 'web' }));
  });

  afterAll(async () => {
    await cluster?.close();
  });

  it('has only Ready nodes', async () => {
    const nodes = await cluster.list<NodeStatus>({ apiVersion: 'v1', kind: 'Node' });
    const ready = nodes.map((node) => node.status.conditions.find(({ type }) => type === 'Ready')?.status);
    expect(ready.length).toBeGreaterThan(0);
    expect(ready.filter((state) => state !== 'True')).toEqual([]);
  });

  it('runs a Deployment of the test application', async () => {
    await cluster.waitFor<DeploymentObject>(applicationDeployment({ namespace, name: 'web' }), (deployment) =>
      isRolledOut(deployment, 2),
    );
  });

  it('answers through the ClusterIP, by every pod', async () => {
    const found = await cluster.get<ServiceSpec>(applicationService({ namespace, name: 'web' }));
    const pods = await cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');
    const answered = new Set<string>();
    await waitUntil('an answer from every pod', async () => {
      const url = `http://${found?.spec.clusterIP}/`;
      const answer = await fetch(url, {
        headers: { connection: 'close' },
        signal: AbortSignal.timeout(2_000),
      });
      expect(answer.headers.get('x-pod')).toBe((await answer.text()).trim());
      answered.add(answer.headers.get('x-pod') ?? '');
      return answered.size === 2;
    });
    expect([...answered].sort()).toEqual(pods.map(({ metadata }) => metadata.name).sort());
  });

  it('runs commands in a container', async () => {
    const [pod] = await cluster.list<KubernetesObject>(
      { apiVersion: 'v1', kind: 'Pod', namespace },
      'app=web',
    );
    const args = ['exec', '--namespace', namespace, pod?.metadata.name ?? '', '--', 'sleep', '0'];
    expect(await cluster.kubectl(args)).toMatchObject({ code: 0, stderr: '' });
  });

  it('connects pods through the Service, a pod to itself too', async () => {
    const found = await cluster.get<ServiceSpec>(applicationService({ namespace, name: 'web' }));
    const [pod] = await cluster.list<KubernetesObject>(
      { apiVersion: 'v1', kind: 'Pod', namespace },
      'app=web',
    );
    const command = `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do wget -q -O - http://${found?.spec.clusterIP}/; done`;
    const name = pod?.metadata.name ?? '';
    const { stdout, code } = await cluster.kubectl([
      'exec',
      '-n',
      namespace,
      name,
      '--',
      'sh',
      '-c',
      command,
    ]);
    expect(code).toBe(0);
    const answers = stdout.trim().split('\n');
    expect(answers).toHaveLength(16);
    // With two pods, sixteen random choices miss one in 1 of 32,768 runs.
    expect(new Set(answers).size).toBe(2);
    expect(answers).toContain(name);
  });

  it('sends SIGTERM to a deleted pod, and the log says so', async () => {
    const [pod] = await cluster.list<KubernetesObject>(
      { apiVersion: 'v1', kind: 'Pod', namespace },
      'app=web',
    );
    if (pod === undefined) throw new Error('no pod to delete');
    const lines: { event: string; time: string }[] = [];
    const followed = cluster.followLogs(namespace, pod.metadata.name, 'app', (line) =>
      lines.push(JSON.parse(line) as { event: string; time: string }),
    );
    await waitUntil('the first line of the log', () => lines.length > 0);
    const deletedAt = Date.now();
    await cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata: { name: pod.metadata.name, namespace } });
    await followed;
    expect(lines.map(({ event }) => event)).toEqual(['started', 'sigterm', 'exit']);
    const sigtermAfter = Date.parse(lines[1]?.time ?? '') - deletedAt;
    expect(sigtermAfter).toBeGreaterThanOrEqual(0);
    expect(sigtermAfter).toBeLessThan(5_000);
  });

  it('runs the application under Pod Security "restricted", without a shell, on a read-only root', async () => {
    const restricted = await cluster.namespace('smoke', {
      'pod-security.kubernetes.io/enforce': 'restricted',
    });
    const deployment = applicationDeployment({
      namespace: restricted,
      name: 'web',
      replicas: 1,
      podSpec: { securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } } },
      container: {
        image: images.appDistroless,
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        },
      },
    });
    await cluster.create(deployment);
    await cluster.waitFor<DeploymentObject>(deployment, (object) => isRolledOut(object, 1));
    const [pod] = await cluster.list<KubernetesObject>({
      apiVersion: 'v1',
      kind: 'Pod',
      namespace: restricted,
    });
    const args = ['exec', '-n', restricted, pod?.metadata.name ?? '', '--', 'sleep', '0'];
    expect(await cluster.kubectl(args)).not.toMatchObject({ code: 0 });
  });

  it('shows a static pod as a mirror pod', async ({ skip }) => {
    const directory = cluster.staticPodDirectory;
    if (directory === undefined) return skip('kubelet of a foreign cluster is out of reach');
    const container = { name: 'app', image: images.app, imagePullPolicy: 'Never' };
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'static', namespace },
      spec: { containers: [container] },
    };
    const file = join(directory, 'static.json');
    writeFileSync(file, JSON.stringify(pod));
    try {
      const { metadata } = await waitUntil('the mirror pod', async () => {
        const pods = await cluster.list<KubernetesObject>({ apiVersion: 'v1', kind: 'Pod', namespace });
        return pods.find(({ metadata }) => metadata.name.startsWith('static-'));
      });
      expect(metadata.annotations).toHaveProperty(['kubernetes.io/config.mirror']);
    } finally {
      rmSync(file);
    }
  });

  it('audits who creates and deletes pods', async ({ skip }) => {
    const { auditLog } = cluster;
    if (auditLog === undefined) return skip('the API server of a foreign cluster writes no log for us');
    interface AuditEvent {
      readonly verb: string;
      /** Absent where a path was asked for that is no object's. */
      readonly objectRef?: { readonly resource: string; readonly namespace: string };
    }
    const events = readFileSync(auditLog, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as AuditEvent)
      .filter(({ objectRef }) => objectRef?.namespace === namespace && objectRef.resource === 'pods');
    expect(new Set(events.map(({ verb }) => verb))).toEqual(new Set(['create', 'delete']));
  });
});
