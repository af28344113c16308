import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Registry } from '@prometheus-io/client';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ClusterAudit, type ClusterAuditSettings, EVENT_EVERY_MS } from '../../src/audit/cluster-audit.ts';
import { reportsOf } from '../../src/audit/policy-reports.ts';
import type { ClusterSnapshot } from '../../src/core/decision/index.ts';
import { PodCounts, projectPod } from '../../src/informers/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { samplePlan } from '../core/decision/sample-plan.ts';
import { EMPTY_SNAPSHOT } from '../core/decision/sample-snapshot.ts';

/** On a busy machine. */
const WITHIN = { timeout: 30_000 };
vi.setConfig({ testTimeout: 60_000 });

type Body = Readonly<Record<string, unknown>> & { readonly metadata: Readonly<Record<string, unknown>> };

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';
const NAME_LABEL = 'kubernetes.io/metadata.name';
const AS_INSTALLED = {
  matchExpressions: [{ key: NAME_LABEL, operator: 'NotIn', values: ['kube-system'] }],
};
const REPORTS = '/apis/wgpolicyk8s.io/v1alpha2/policyreports';
const reportOf = (namespace: string) =>
  `/apis/wgpolicyk8s.io/v1alpha2/namespaces/${namespace}/policyreports/linger`;

/** As much of an API server as an audit asks for: lists by path, reports as they are applied and deleted. */
class Lists {
  readonly lists = new Map<string, readonly object[]>();
  readonly reports = new Map<string, Body>();
  readonly writes: string[] = [];
  /** Paths that are refused, and how. */
  readonly refused = new Map<string, number>();
  readonly #server = http.createServer((request, response) => void this.#answer(request, response));

  async start() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    onTestFinished(() => {
      this.#server.closeAllConnections();
      this.#server.close();
    });
    const url = new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
    return { server: url, credentials: () => Promise.resolve({}) };
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url = '' } = request;
    const [path = ''] = url.split('?', 1);
    const send = (code: number, body: object) =>
      response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (method !== 'GET') this.writes.push(`${method} ${path}`);
    const code = this.refused.get(path);
    if (code !== undefined) return void send(code, { message: 'refused' });
    if (method === 'PATCH') {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Body;
      this.reports.set(path, body);
      return void send(200, body);
    }
    if (method === 'DELETE') return void send(this.reports.delete(path) ? 200 : 404, {});
    const items = path === REPORTS ? [...this.reports.values()] : this.lists.get(path);
    if (items === undefined) return void send(404, { message: 'not served' });
    return void send(200, { metadata: { resourceVersion: '1' }, items });
  }
}

let uids = 0;
const named = (name: string, namespace: string, more: object = {}) => {
  uids += 1;
  return { metadata: { name, namespace, uid: String(uids), ...more } };
};

const deployment = (name: string, namespace = 'shop', spec: object = {}, pod: object = {}) => ({
  ...named(name, namespace),
  spec: {
    replicas: 2,
    ...spec,
    template: {
      metadata: { labels: { app: name } },
      spec: { containers: [{ name: 'app', image: 'x', ports: [{ containerPort: 80 }] }], ...pod },
    },
  },
});

/** `plan` undefined: created without the webhook. */
const podsOf = (name: string, namespace: string, plans: readonly (string | undefined)[]) =>
  plans.map((plan, index) =>
    projectPod({
      apiVersion: 'v1',
      kind: 'Pod',
      ...named(`${name}-1-${index}`, namespace, {
        labels: { 'pod-template-hash': '1' },
        ownerReferences: [{ kind: 'ReplicaSet', name: `${name}-1`, controller: true }],
        ...(plan !== undefined && { annotations: { 'linger.dev/plan': plan } }),
      }),
    } as never),
  );

async function leading(
  api: Lists,
  {
    settings,
    pods = [],
    mostObjects,
    mostKept,
    snapshot = EMPTY_SNAPSHOT,
  }: {
    readonly snapshot?: ClusterSnapshot;
    readonly mostObjects?: number;
    readonly mostKept?: number;
    readonly settings?: Partial<ClusterAuditSettings>;
    readonly pods?: readonly ReturnType<typeof projectPod>[];
  } = {},
) {
  for (const path of ['/api/v1/services', '/apis/apps/v1/deployments'])
    api.lists.set(path, api.lists.get(path) ?? []);
  const webhook = { name: 'pods.linger.dev', namespaceSelector: AS_INSTALLED };
  const installed = [{ ...named('linger', ''), webhooks: [webhook] }];
  api.lists.set(CONFIGURATIONS, api.lists.get(CONFIGURATIONS) ?? installed);
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const registry = new Registry();
  const events: { readonly object: object; readonly type: string; readonly reason: string }[] = [];
  const lines: { readonly msg: string }[] = [];
  const counts = new PodCounts();
  for (const object of pods) counts.apply({ type: 'added', listed: true, at: 0, identity: object, object });
  const audit = new ClusterAudit({
    connection: (await api.start()) as never,
    settings: {
      every: 0.05,
      policyReports: 'off',
      configuration: 'linger',
      configured: () => undefined,
      trusted: () => undefined,
      ...settings,
    },
    registry,
    logger: createLogger('info', { write: (line: string) => void lines.push(JSON.parse(line) as never) }),
    events: { tell: (event: never) => void events.push(event) } as never,
    snapshot: () => snapshot,
    synced: () => true,
    consumers: () => [],
    pods: () => counts.groups(),
    barePods: () => counts.bare(),
    clock: () => performance.now(),
    epochSeconds: () => 1_790_000_000,
    random: Math.random,
    ...(mostObjects !== undefined && { mostObjects }),
    ...(mostKept !== undefined && { mostKept }),
  });
  let holds = true;
  void audit.lead({ signal: ending.signal, holds: () => holds });
  const samples = async (name: string) => {
    const text = await registry.getSingleMetricAsString(name);
    return text.split('\n').filter((line) => !line.startsWith('#') && line !== '');
  };
  await expect.poll(() => samples('linger_audited_workloads'), WITHIN).not.toEqual([]);
  return { samples, events, lines, resign: () => (holds = false) };
}

describe('the leader', () => {
  test('says of which kinds it has not read everything', async () => {
    const api = new Lists();
    api.lists.set('/apis/apps/v1/deployments', [deployment('web'), deployment('api'), deployment('db')]);
    const { samples, lines } = await leading(api, { mostObjects: 2 });
    expect(await samples('linger_audit_truncated')).toEqual(['linger_audit_truncated{kind="Deployment"} 1']);
    expect(lines).toContainEqual(expect.objectContaining({ kinds: 'Deployment (2)' }));
  });

  test('reads no more of a namespace than it leaves to the others', async () => {
    const api = new Lists();
    const greedy = Array.from({ length: 12 }, (_, index) => deployment(`web-${index}`, 'a-greedy'));
    api.lists.set('/apis/apps/v1/deployments', [...greedy, deployment('web'), deployment('api')]);
    const { samples } = await leading(api, { mostObjects: 10 });
    const judged = (await samples('linger_audited_workloads')).map((line) => Number(line.split(' ').at(-1)));
    // Half of the room, and both of the other namespace.
    expect(judged.reduce((sum, each) => sum + each, 0)).toBe(5 + 2);
  });

  test('takes what it has no room for as unknown, in the namespace that has it, and nowhere else', async () => {
    const api = new Lists();
    api.lists.set('/apis/apps/v1/deployments', [deployment('web', 'a-greedy'), deployment('web')]);
    const ingresses = (namespace: string, count: number) =>
      Array.from({ length: count }, (_, index) => ({
        ...named(`i${index}`, namespace),
        spec: {
          defaultBackend: { service: { name: `web-${index}` } },
          rules: [{ host: 'x'.repeat(100_000) }],
        },
      }));
    api.lists.set('/apis/networking.k8s.io/v1/ingresses', [
      ...ingresses('a-greedy', 40),
      ...ingresses('shop', 1),
    ]);
    const { samples, events } = await leading(api, { mostKept: 10_000 });
    expect(await samples('linger_findings')).toContain(
      'linger_findings{namespace="a-greedy",reason="ObjectsUnread"} 1',
    );
    await expect
      .poll(() => events, WITHIN)
      .toContainEqual(
        expect.objectContaining({
          reason: 'ObjectsUnread',
          note: expect.stringContaining(
            'namespace a-greedy are too large to be kept, or too many (Ingress)',
          ) as string,
        }),
      );
    expect(await samples('linger_audited_workloads')).toEqual(
      expect.arrayContaining(['linger_audited_workloads{verdict="unknown"} 1']),
    );
    expect(JSON.stringify(await samples('linger_findings'))).not.toContain(
      'namespace=\\"shop\\",reason=\\"ObjectsUnread',
    );
  });

  test('catches each workload apart: one whose judgement fails is unknown, and the others are judged', async () => {
    const api = new Lists();
    api.lists.set('/apis/apps/v1/deployments', [deployment('web'), deployment('web', 'attacker')]);
    const namespaces = new Map(EMPTY_SNAPSHOT.namespaces);
    namespaces.get = (name) => {
      if (name === 'attacker') throw new RangeError('Maximum call stack size exceeded');
      return undefined;
    };
    const { samples, events } = await leading(api, { snapshot: { ...EMPTY_SNAPSHOT, namespaces } });
    expect(await samples('linger_audited_workloads')).toEqual(
      expect.arrayContaining(['linger_audited_workloads{verdict="unknown"} 1']),
    );
    expect(await samples('linger_findings')).toContain(
      'linger_findings{namespace="attacker",reason="InternalError"} 1',
    );
    await expect
      .poll(() => events, WITHIN)
      .toContainEqual(
        expect.objectContaining({
          object: { kind: 'Deployment', namespace: 'attacker', name: 'web' },
          note: expect.stringContaining('RangeError: Maximum call stack size exceeded') as string,
        }),
      );
    const judged = (await samples('linger_audited_workloads')).map((line) => Number(line.split(' ').at(-1)));
    expect(judged.reduce((sum, each) => sum + each, 0)).toBe(2);
  });

  test('judges pods without a controller, and Rollouts by the template that they refer to', async () => {
    const api = new Lists();
    const bare = { ...named('bare', 'shop'), spec: deployment('bare').spec.template.spec };
    api.lists.set('/api/v1/namespaces/shop/pods', [bare]);
    const workloadRef = { kind: 'Deployment', name: 'web' };
    api.lists.set('/apis/argoproj.io/v1alpha1/rollouts', [
      { ...named('web', 'shop'), spec: { replicas: 1, workloadRef } },
    ]);
    api.lists.set('/apis/apps/v1/deployments', [deployment('web', 'shop', { replicas: 0 })]);
    const { samples, events } = await leading(api, { pods: [projectPod(bare as never)] });
    expect((await samples('linger_audited_workloads')).toSorted()).toEqual([
      'linger_audited_workloads{verdict="protected"} 1',
      'linger_audited_workloads{verdict="skipped"} 1',
      'linger_audited_workloads{verdict="unknown"} 0',
      'linger_audited_workloads{verdict="unprotected"} 1',
    ]);
    await expect
      .poll(() => events.map(({ object }) => object), WITHIN)
      .toEqual([
        { kind: 'Pod', namespace: 'shop', name: 'bare' },
        { kind: 'Rollout', namespace: 'shop', name: 'web' },
      ]);
  });

  test('counts findings by namespace and reason, and tells the workloads', async () => {
    const api = new Lists();
    api.lists.set('/apis/apps/v1/deployments', [
      deployment('web'),
      deployment('api'),
      deployment('slow', 'shop', { strategy: { type: 'Recreate' } }),
      deployment('none', 'other', {}, { terminationGracePeriodSeconds: 0 }),
      // About its pods the webhook is not asked.
      deployment('coredns', 'kube-system'),
    ]);
    const plan = samplePlan({ wait: 30, grace: 60 });
    const { samples, events, resign } = await leading(api, {
      pods: [
        ...podsOf('web', 'shop', [plan, plan]),
        ...podsOf('api', 'shop', [plan, undefined]),
        ...podsOf('coredns', 'kube-system', [undefined]),
      ],
    });
    expect((await samples('linger_findings')).toSorted()).toEqual([
      'linger_findings{namespace="other",reason="ZeroGrace"} 1',
      'linger_findings{namespace="shop",reason="NoOtherEndpoint"} 1',
      'linger_findings{namespace="shop",reason="NotInjected"} 1',
    ]);
    expect((await samples('linger_audited_workloads')).toSorted()).toEqual([
      'linger_audited_workloads{verdict="protected"} 1',
      'linger_audited_workloads{verdict="skipped"} 1',
      'linger_audited_workloads{verdict="unknown"} 0',
      'linger_audited_workloads{verdict="unprotected"} 3',
    ]);
    await expect.poll(() => events.length, WITHIN).toBe(3);
    expect(events).toContainEqual(
      expect.objectContaining({
        object: { kind: 'Deployment', namespace: 'shop', name: 'api' },
        type: 'Warning',
        reason: 'NotInjected',
        note: expect.stringMatching(/^1 of 2 pods has no wait/) as string,
      }),
    );
    resign();
    expect(await samples('linger_findings')).toEqual([]);
  });

  test('skips what the webhook is not asked about, as its configuration says', async () => {
    const api = new Lists();
    const selector = { matchExpressions: [{ key: NAME_LABEL, operator: 'In', values: ['shop'] }] };
    api.lists.set(CONFIGURATIONS, [
      { ...named('other', ''), webhooks: [{ name: 'pods.example.dev' }] },
      { ...named('linger', ''), webhooks: [{ name: 'pods.linger.dev', namespaceSelector: selector }] },
    ]);
    const pods = [...podsOf('web', 'shop', [undefined]), ...podsOf('web', 'other', [undefined])];
    api.lists.set('/apis/apps/v1/deployments', [deployment('web'), deployment('web', 'other')]);
    const { samples } = await leading(api, { pods });
    expect(await samples('linger_findings')).toEqual([
      'linger_findings{namespace="shop",reason="NotInjected"} 1',
    ]);
    expect(await samples('linger_audited_workloads')).toContain(
      'linger_audited_workloads{verdict="skipped"} 1',
    );
    // Without the right to read it: as it is installed.
    api.refused.set(CONFIGURATIONS, 403);
    await expect.poll(() => samples('linger_findings'), WITHIN).toHaveLength(2);
  });

  test('says that there is no webhook configuration, and that there is one again', async () => {
    const api = new Lists();
    api.lists.set(CONFIGURATIONS, []);
    api.lists.set('/apis/apps/v1/deployments', [deployment('web'), deployment('coredns', 'kube-system')]);
    const plan = samplePlan({ wait: 30, grace: 60 });
    const { samples, lines, resign } = await leading(api, { pods: podsOf('web', 'shop', [plan]) });
    expect(await samples('linger_webhook_configured')).toEqual(['linger_webhook_configured 0']);
    expect(await samples('linger_findings')).toEqual([
      'linger_findings{namespace="shop",reason="NotInjected"} 1',
    ]);
    api.lists.set(CONFIGURATIONS, [{ ...named('linger', ''), webhooks: [{ name: 'pods.linger.dev' }] }]);
    await expect
      .poll(() => samples('linger_webhook_configured'), WITHIN)
      .toEqual(['linger_webhook_configured 1']);
    expect(lines.map(({ msg }) => msg)).toEqual([
      'webhook configuration missing; no pod creation reaches Linger',
      'webhook configuration found again',
    ]);
    // Without the right to read it, nothing is known of it.
    api.refused.set(CONFIGURATIONS, 403);
    await expect.poll(() => samples('linger_webhook_configured'), WITHIN).toEqual([]);
    api.refused.clear();
    await expect.poll(() => samples('linger_webhook_configured'), WITHIN).toHaveLength(1);
    // Nor do those know that do not lead.
    resign();
    expect(await samples('linger_webhook_configured')).toEqual([]);
  });

  test('leaves that to a source of certificates that follows it', async () => {
    const api = new Lists();
    api.lists.set(CONFIGURATIONS, []);
    const { samples, lines, resign } = await leading(api, { settings: { configured: () => false } });
    resign();
    expect(await samples('linger_webhook_configured')).toEqual(['linger_webhook_configured 0']);
    expect(lines).toEqual([]);
  });

  test.for([
    { configured: false, trusted: undefined, gauge: ['linger_webhook_gives_hooks 0'] },
    { configured: true, trusted: false, gauge: ['linger_webhook_gives_hooks 0'] },
    { configured: true, trusted: true, gauge: ['linger_webhook_gives_hooks 1'] },
    { configured: undefined, trusted: undefined, gauge: [] },
  ])('shows whether pods get hooks: configured $configured, trusted $trusted', async (of) => {
    const { configured, trusted, gauge } = of;
    const api = new Lists();
    const settings = { configured: () => configured, trusted: () => trusted };
    const { samples, resign } = await leading(api, { settings });
    resign();
    expect(await samples('linger_webhook_gives_hooks')).toEqual(gauge);
  });

  test('of many more findings than it tells counts all, in metrics and in the reports of each namespace', async () => {
    const api = new Lists();
    const many = Array.from({ length: 1_500 }, (_, index) =>
      deployment(`web-${index}`, index < 1_200 ? 'large' : 'small', {}, { terminationGracePeriodSeconds: 0 }),
    );
    api.lists.set('/apis/apps/v1/deployments', many);
    const settings = { every: 1, policyReports: 'wgpolicyk8s.io' } as const;
    const { samples } = await leading(api, { settings });
    expect((await samples('linger_findings')).toSorted()).toEqual([
      'linger_findings{namespace="large",reason="ZeroGrace"} 1200',
      'linger_findings{namespace="small",reason="ZeroGrace"} 300',
    ]);
    await expect.poll(() => api.reports.size, WITHIN).toBe(2);
    expect(api.reports.get(reportOf('large'))).toMatchObject({
      metadata: { annotations: { 'linger.dev/left-out': '1000' } },
      summary: { fail: 1_200 },
    });
    // The large namespace leaves room to it.
    expect(api.reports.get(reportOf('small'))).toMatchObject({
      metadata: { annotations: { 'linger.dev/left-out': '100' } },
      summary: { fail: 300 },
    });
    expect(api.reports.get(reportOf('small'))?.results).toHaveLength(200);
  });

  test('of namespaces with hundreds of findings leaves the others theirs, and says how many are left out', async () => {
    const api = new Lists();
    const many = Array.from({ length: 14 }, (_, tenant) =>
      Array.from({ length: 200 }, (__, index) =>
        deployment(`web-${index}`, `greedy-${tenant}`, {}, { terminationGracePeriodSeconds: 0 }),
      ),
    );
    const last = deployment('web', 'quiet', {}, { terminationGracePeriodSeconds: 0 });
    api.lists.set('/apis/apps/v1/deployments', [...many.flat(), last]);
    const { samples, lines } = await leading(api, {
      settings: { every: 1, policyReports: 'wgpolicyk8s.io' },
    });
    await expect.poll(() => api.reports.size, WITHIN).toBe(15);
    expect(api.reports.get(reportOf('quiet'))?.results).not.toHaveLength(0);
    const left = await samples('linger_findings_left_out');
    expect(left).toHaveLength(14);
    const counts = left.map((line) => Number(line.split(' ').at(-1)));
    expect([Math.min(...counts), Math.max(...counts)]).toEqual([128, 129]);
    expect(lines[0]).toMatchObject({
      namespaces: expect.stringMatching(/^greedy-\d+ \(129\), .* and 11 more$/) as string,
    });
  });

  test.each([403, 404])(
    'a namespace whose report is answered %i keeps no other from its own',
    async (code) => {
      const api = new Lists();
      const recreate = { strategy: { type: 'Recreate' } };
      api.lists.set('/apis/apps/v1/deployments', [
        deployment('slow', 'ending', recreate),
        deployment('slow', 'shop', recreate),
      ]);
      api.refused.set(reportOf('ending'), code);
      const { lines } = await leading(api, { settings: { policyReports: 'wgpolicyk8s.io' } });
      await expect.poll(() => [...api.reports.keys()], WITHIN).toEqual([reportOf('shop')]);
      await expect.poll(() => lines.length, WITHIN).toBeGreaterThan(0);
      expect(lines).toEqual([
        expect.objectContaining({
          namespace: 'ending',
          msg: expect.stringMatching(/of a namespace failed/) as string,
        }),
      ]);
      api.refused.clear();
      await expect.poll(() => lines.length, WITHIN).toBe(2);
      expect(lines[1]).toMatchObject({
        namespace: 'ending',
        msg: expect.stringMatching(/recovered$/) as string,
      });
    },
  );

  test('tells each finding once, however many audits find it', async () => {
    const api = new Lists();
    api.lists.set('/apis/apps/v1/deployments', [
      deployment('slow', 'shop', { strategy: { type: 'Recreate' } }),
    ]);
    let lists = 0;
    const get = api.lists.get.bind(api.lists);
    api.lists.get = (path) => {
      lists += Number(path === '/apis/apps/v1/deployments');
      return get(path);
    };
    const { events } = await leading(api);
    await expect.poll(() => events.length, WITHIN).toBe(1);
    const before = lists;
    await expect.poll(() => lists, WITHIN).toBeGreaterThan(before + 4);
    await sleep(2 * EVENT_EVERY_MS);
    expect(events).toHaveLength(1);
  });

  test('audits go on while hundreds of findings get their Events', async () => {
    const api = new Lists();
    const many = Array.from({ length: 900 }, (_, index) =>
      deployment(`web-${index}`, 'greedy', {}, { terminationGracePeriodSeconds: 0 }),
    );
    api.lists.set('/apis/apps/v1/deployments', many);
    const { events, samples } = await leading(api);
    const added = deployment('late', 'shop', {}, { terminationGracePeriodSeconds: 0 });
    api.lists.set('/apis/apps/v1/deployments', [...many, added]);
    await expect
      .poll(() => samples('linger_findings'), WITHIN)
      .toContain('linger_findings{namespace="shop",reason="ZeroGrace"} 1');
    expect(events.length).toBeLessThan(500);
    const told = () => new Set(events.map(({ object }) => JSON.stringify(object)));
    await expect.poll(() => told().size, WITHIN).toBeGreaterThan(2);
    expect(told().size).toBe(events.length);
  });

  test('without the right to list says so once, and keeps no number', async () => {
    const api = new Lists();
    api.lists.set('/apis/apps/v1/deployments', [deployment('web')]);
    const { lines } = await leading(api);
    api.refused.set('/apis/apps/v1/deployments', 403);
    const said = () => lines.filter(({ msg }) => msg.startsWith('audit '));
    await expect.poll(said, WITHIN).toHaveLength(1);
    expect(said()[0]).toMatchObject({ reason: 'Forbidden' });
    api.refused.clear();
    await expect.poll(said, WITHIN).toHaveLength(2);
  });

  test('writes one report for each namespace with findings, when it says something new, and deletes the others', async () => {
    const api = new Lists();
    const stale = named('linger', 'gone');
    api.reports.set(reportOf('gone'), stale as never);
    const slow = deployment('slow', 'shop', { strategy: { type: 'Recreate' } });
    api.lists.set('/apis/apps/v1/deployments', [
      slow,
      deployment('none', 'other', {}, { terminationGracePeriodSeconds: 0 }),
    ]);
    const { lines } = await leading(api, { settings: { policyReports: 'wgpolicyk8s.io' } });
    await expect
      .poll(() => [...api.reports.keys()].toSorted(), WITHIN)
      .toEqual([reportOf('other'), reportOf('shop')]);
    expect(api.reports.get(reportOf('shop'))).toMatchObject({
      apiVersion: 'wgpolicyk8s.io/v1alpha2',
      kind: 'PolicyReport',
      summary: { pass: 0, fail: 1, warn: 0, error: 0, skip: 0 },
      results: [
        {
          rule: 'NoOtherEndpoint',
          result: 'fail',
          resources: [{ apiVersion: 'apps/v1', kind: 'Deployment', namespace: 'shop', name: 'slow' }],
          properties: { waitSeconds: '30', graceSeconds: '60', exposureSeconds: '0', basis: 'assumed' },
        },
      ],
    });
    api.lists.set('/apis/apps/v1/deployments', [slow]);
    await expect.poll(() => [...api.reports.keys()], WITHIN).toEqual([reportOf('shop')]);
    expect(api.writes.toSorted()).toEqual([
      `DELETE ${reportOf('gone')}`,
      `DELETE ${reportOf('other')}`,
      `PATCH ${reportOf('other')}`,
      `PATCH ${reportOf('shop')}`,
    ]);
    expect(lines).toEqual([]);
  });
});

test('a report holds 200 results at most, and says how many it leaves out', () => {
  const kept = Array.from({ length: 1_000 }, (_, index) => ({
    kind: 'Deployment',
    namespace: 'shop',
    name: `web-${index}`,
    verdict: 'unprotected' as const,
    reason: 'GraceEaten' as const,
    level: 'warning' as const,
    waitSeconds: 30,
    graceSeconds: 30,
    exposureSeconds: null,
    evidence: null,
    text: 'x'.repeat(4_000),
  }));
  const report = reportsOf({
    kept,
    namespaces: new Map([['shop', { pass: 0, fail: 1_000, warn: 0, skip: 0 }]]),
  }).get('shop');
  expect(report?.results).toHaveLength(200);
  expect(report?.leftOut).toBe(800);
  expect(report?.summary.fail).toBe(1_000);
  expect(JSON.stringify(report).length).toBeLessThan(256 * 1024);
});
