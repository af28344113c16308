import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { CONTROLLER_METRICS, type Facts } from '../../src/diagnose/facts.ts';
import { type GatherOptions, gatherFacts } from '../../src/diagnose/gather.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { AnsweringServer, type Answers, refused, well } from '../cluster/answers.ts';
import { bearer } from '../cluster/bearer.ts';
import type { AtEnd } from '../webhook/connection.ts';

const atEnd = onTestFinished as AtEnd;
const DATA = join(import.meta.dirname, '..', 'testdata', 'controller-manager');
const text = (name: string) => readFileSync(join(DATA, `${name}.prom`), 'utf8');

const PODS = '/api/v1/namespaces/kube-system/pods';
const BY_COMPONENT = `${PODS}?labelSelector=component%3Dkube-controller-manager&limit=250`;
const BY_APP = `${PODS}?labelSelector=k8s-app%3Dkube-controller-manager&limit=250`;
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager';
const EKS = '/apis/metrics.eks.amazonaws.com/v1/kcm/container/metrics';
const metricsOf = (pod: string) => `${PODS}/https:${pod}:10257/proxy/metrics`;
const NOT_LOOKED: GatherOptions['connection'] = { none: 'not asked' };

/** What is looked at, once and without a cluster unless the test says so. */
function options(over: Partial<GatherOptions> = {}): GatherOptions {
  return {
    connection: NOT_LOOKED,
    metrics: undefined,
    flags: undefined,
    linger: undefined,
    watch: false,
    intervalSeconds: 0.05,
    onWait: () => undefined,
    stdin: Readable.from([]),
    now: () => Date.parse('2026-01-01T01:00:00Z') / 1000,
    ...over,
  };
}

async function gatherFrom(answers: Answers, over: Partial<GatherOptions> = {}) {
  const server = await AnsweringServer.start(answers, atEnd);
  const connection = { server: server.url, credentials: () => Promise.resolve({}) };
  return { facts: await gatherFacts(options({ connection, ...over })), server };
}

const looksAt = ({ looks }: Facts, what: string) => looks.filter((look) => look.what === what);

const list = (...items: readonly object[]) => well({ metadata: { resourceVersion: '1' }, items });

function pod(name: string, node: string, command: readonly string[]) {
  return { metadata: { name }, spec: { nodeName: node, containers: [{ name: 'main', command }] } };
}

const lease = {
  spec: { holderIdentity: 'node-b_6f2d', acquireTime: '2026-01-01T00:30:00.000000Z', leaseTransitions: 4 },
};

describe('by way of the API server', () => {
  const pods = list(
    pod('kcm-a', 'node-a', ['kube-controller-manager', '--kube-api-qps=7']),
    pod('kcm-b', 'node-b', ['kube-controller-manager', '--kube-api-qps=300', '--kube-api-burst=325']),
  );

  it('reads the leader’s metrics twice, and its flags', async () => {
    const { facts } = await gatherFrom({
      [BY_COMPONENT]: pods,
      [LEASE]: well(lease),
      [metricsOf('kcm-b')]: [well(text('storm-1')), well(text('storm-2'))],
    });
    expect(facts.controller?.queues[0]).toMatchObject({ depthBefore: 506, depth: 417 });
    expect(facts.controller?.seconds).toBeGreaterThan(0.04);
    expect(facts.flags).toMatchObject({ qps: 300, burst: 325, known: true });
    expect(facts.leader).toEqual({ holder: 'node-b_6f2d', ageSeconds: 1800, transitions: 4 });
    expect(looksAt(facts, CONTROLLER_METRICS)).toEqual([
      {
        what: CONTROLLER_METRICS,
        seen: true,
        text: expect.stringMatching(/kcm-b:10257\/proxy\/metrics, twice in/),
      },
    ]);
    expect(looksAt(facts, 'controller-manager flags')[0]?.text).toBe('command line of pod kube-system/kcm-b');
  });

  it.each([
    ['a word', ['kube-controller-manager', '--secure-port=10299']],
    ['two words', ['kube-controller-manager', '--secure-port', '10299']],
    ['a shell’s command line', ['sh', '-c', 'kube-controller-manager --secure-port=10299 --v=2']],
  ])('finds pods by another label, and the port in their flags: %s', async (_what, command) => {
    const { facts } = await gatherFrom({
      [BY_COMPONENT]: list(),
      [BY_APP]: list(pod('kcm', 'n', command)),
      [`${PODS}/https:kcm:10299/proxy/metrics`]: well(text('calm-1')),
    });
    expect(facts.controller?.queues.length).toBe(3);
  });

  // The words are those of Kubernetes 1.36.
  it.each([
    [
      'nobody’s credentials arrive',
      refused(403, 'forbidden: User "system:anonymous" cannot get path "/metrics"'),
      /passes no credentials on,.*port-forward pod\/kcm-b 10257 and linger diagnose --controller-metrics https:\/\/127\.0\.0\.1:10257\/metrics$/,
    ],
    [
      'it listens on its own node only',
      refused(503, 'error trying to reach service: dial tcp 10.0.0.2:10257: connect: connection refused'),
      /listens only on 127\.0\.0\.1 of its node .*port-forward/,
    ],
    [
      'we may not use proxies',
      refused(403, 'pods "https:kcm-b:10257" is forbidden: User "me" cannot get resource "pods/proxy"'),
      /right to get pods\/proxy.*port-forward/,
    ],
    ['something else', refused(500, 'etcdserver: leader changed'), /^Forward its port/],
  ])('%s: says so, and what would help', async (_what, answer, remedy) => {
    const { facts } = await gatherFrom({
      [BY_COMPONENT]: pods,
      [LEASE]: well(lease),
      [metricsOf('kcm-a')]: refused(403, 'forbidden'),
      [metricsOf('kcm-b')]: answer,
    });
    expect(facts.controller).toBeUndefined();
    const looks = looksAt(facts, CONTROLLER_METRICS);
    expect(looks.map(({ text: said }) => said.split(':10257')[0]?.split('https:')[1])).toEqual([
      'kcm-b',
      'kcm-a',
    ]);
    expect(looks[0]?.text).toContain(JSON.parse(answer.body).message);
    expect(looks[0]?.remedy).toMatch(remedy);
  });

  it('a provider’s control plane: no such pod', async () => {
    const { facts } = await gatherFrom({
      [BY_COMPONENT]: list(),
      [BY_APP]: list(),
    });
    expect(looksAt(facts, CONTROLLER_METRICS)).toEqual([
      {
        what: CONTROLLER_METRICS,
        seen: false,
        text: `${EKS}: 404: 404 page not found`,
        remedy: expect.stringMatching(/^No pod in kube-system is labelled .* the provider runs it/),
      },
    ]);
    expect(facts.flags).toMatchObject({ qps: 20, known: false });
    expect(looksAt(facts, 'controller-manager flags')[0]?.remedy).toMatch(/--controller-flags/);
  });

  it('a provider that serves them in an API of its own', async () => {
    const { facts } = await gatherFrom({ [EKS]: well(text('calm-1')) });
    expect(facts.controller?.queues.length).toBe(3);
  });

  it('something else in their place: a look says so', async () => {
    const { facts } = await gatherFrom({ [EKS]: well('<html>') });
    expect(looksAt(facts, CONTROLLER_METRICS)).toEqual([
      {
        what: CONTROLLER_METRICS,
        seen: false,
        text: `${EKS}: line 1: expected the name of a metric: <html>`,
        remedy: expect.stringMatching(/needs the right to list pods in kube-system/),
      },
    ]);
  });

  it('one that answers no second time: what the first said counts', async () => {
    const { facts } = await gatherFrom({ [EKS]: [well(text('storm-1')), refused(503, 'gone')] });
    expect([facts.controller?.seconds, facts.controller?.queues[0]?.depth]).toEqual([undefined, 506]);
    expect(looksAt(facts, CONTROLLER_METRICS)[0]?.text).toMatch(
      /one scrape, no rates, since the second failed: 503: gone/,
    );
  });

  it('one look only', async () => {
    const { facts, server } = await gatherFrom({ [EKS]: well(text('storm-1')) }, { intervalSeconds: 0 });
    expect(facts.controller?.seconds).toBeUndefined();
    expect(server.asked.filter(({ path }) => path === EKS).length).toBe(1);
  });

  it('rights are missing everywhere: each place says so', async () => {
    const { facts } = await gatherFrom({
      ...Object.fromEntries(
        [BY_COMPONENT, LEASE, EKS, '/api/v1/services?limit=250'].map((path) => [
          path,
          refused(403, 'forbidden'),
        ]),
      ),
    });
    expect(facts.cluster).toEqual({
      services: undefined,
      neverWithdrawn: undefined,
      endpointsReaders: undefined,
    });
    const failed = facts.looks.filter(({ seen }) => !seen).map(({ what }) => what);
    expect(failed).toEqual(expect.arrayContaining(['pods of kube-system', 'services']));
    expect(looksAt(facts, CONTROLLER_METRICS)[0]?.remedy).toMatch(/right to list pods in kube-system/);
    expect(looksAt(facts, 'services')[0]).toMatchObject({
      text: '403: forbidden',
      remedy: 'This needs the right to list services',
    });
  });

  it('counts Services, over as many pages as there are', async () => {
    const service = (name: string, publishNotReadyAddresses: boolean) => ({
      metadata: { namespace: 'db', name, uid: name, resourceVersion: '1' },
      spec: { publishNotReadyAddresses },
    });
    const { facts } = await gatherFrom({
      '/api/v1/services?limit=250': well({
        metadata: { resourceVersion: '7', continue: 'next' },
        items: [service('web', false), service('peers', true)],
      }),
      '/api/v1/services?limit=250&continue=next': well({
        metadata: { resourceVersion: '7' },
        items: [service('more', true)],
      }),
    });
    expect(facts.cluster?.services).toBe(3);
    expect(facts.cluster?.neverWithdrawn).toEqual({ services: 2, examples: ['db/peers', 'db/more'] });
  });
});

describe('who is granted Endpoints', () => {
  const role = (name: string, resources: readonly string[], more: object = {}) => ({
    metadata: { name, uid: name, resourceVersion: '1', ...more },
    rules: [{ apiGroups: [''], resources, verbs: ['list', 'watch'] }],
  });
  const binding = (kind: string, name: string, subject: object, namespace?: string) => ({
    metadata: { name: `${name}-binding`, namespace, uid: name, resourceVersion: '1' },
    roleRef: { kind, name },
    subjects: [subject],
  });
  const account = (namespace: string, name: string) => ({ kind: 'ServiceAccount', namespace, name });
  const items = (...all: readonly object[]) => well({ metadata: { resourceVersion: '7' }, items: all });
  const rbac = (plural: string) => `/apis/rbac.authorization.k8s.io/v1/${plural}?limit=250`;
  const OWN = { labels: { 'app.kubernetes.io/name': 'linger' } };

  it('by name: not the control plane, Linger, or those that may do everything', async () => {
    const { facts } = await gatherFrom({
      [rbac('clusterroles')]: items(
        role('gateway', ['services', 'endpoints']),
        role('other', ['services']),
        role('view', ['endpoints']),
        role('system:coredns', ['endpoints']),
        role('linger', ['endpoints'], OWN),
      ),
      [rbac('roles')]: items(role('gateway', ['endpoints'], { namespace: 'team' })),
      [rbac('clusterrolebindings')]: items(
        ...['gateway', 'other', 'view', 'system:coredns', 'linger'].map((name) =>
          binding('ClusterRole', name, account(`ns-${name}`, name)),
        ),
      ),
      [rbac('rolebindings')]: items(
        binding('Role', 'gateway', { kind: 'User', name: 'mia' }, 'team'),
        binding('Role', 'gateway', { kind: 'User', name: 'tom' }, 'elsewhere'),
      ),
    });
    expect(facts.cluster?.endpointsReaders).toEqual(['ServiceAccount ns-gateway/gateway', 'User mia']);
  });

  it('nobody', async () => {
    const all = ['clusterroles', 'roles', 'clusterrolebindings', 'rolebindings'];
    const { facts } = await gatherFrom(Object.fromEntries(all.map((plural) => [rbac(plural), items()])));
    expect(facts.cluster?.endpointsReaders).toEqual([]);
  });

  it('rights are missing: unknown', async () => {
    const { facts } = await gatherFrom({ [rbac('clusterroles')]: refused(403, 'forbidden') });
    expect(facts.cluster?.endpointsReaders).toBeUndefined();
  });
});

describe('removals that happen meanwhile', () => {
  it('rights are missing: it is said at once, and not waited for', async () => {
    const slices = '/apis/discovery.k8s.io/v1/endpointslices';
    const paths = ['/api/v1/pods', '/api/v1/services', '/api/v1/endpoints', slices];
    const answers = paths.map((path) => [`${path}?limit=250`, refused(403, 'forbidden')] as const);
    const { facts } = await gatherFrom(Object.fromEntries(answers), { watch: true });
    expect(facts.lag).toBeUndefined();
    expect(looksAt(facts, 'measured lag')).toEqual([
      {
        what: 'measured lag',
        seen: false,
        text: expect.stringMatching(/^watching removals failed, .* \(403: forbidden\)/),
        remedy: expect.stringMatching(/right to list and watch .*--linger/),
      },
    ]);
  });
});

describe('a given address', () => {
  const serving = async (answers: Answers) => (await AnsweringServer.start(answers, atEnd)).url;

  it('is read twice, with its query', async () => {
    const url = await serving({ '/federate?match[]=x': [well(text('storm-1')), well(text('storm-2'))] });
    const { controller } = await gatherFacts(options({ metrics: { from: `${url}federate?match[]=x` } }));
    expect(controller?.queues[0]).toMatchObject({ depthBefore: 506, depth: 417 });
  });

  it('may be one that stands by: it has no queues', async () => {
    const standby = 'leader_election_master_status{name="kube-controller-manager"} 0\n';
    const from = `${await serving({ '/metrics': well(standby) })}metrics`;
    const { controller } = await gatherFacts(options({ metrics: { from } }));
    expect([controller?.leading, controller?.queues]).toEqual([false, []]);
  });

  it('is sent the token of the file, and never that of the kubeconfig', async () => {
    const tokenFile = join(await emptyDirectory(atEnd), 'token');
    await writeFile(tokenFile, 'for-metrics\n');
    const server = await AnsweringServer.start({ '/metrics': well(text('calm-1')) }, atEnd);
    const from = `${server.url}metrics`;
    const identity = () => Promise.resolve(bearer('of-the-kubeconfig'));
    await gatherFacts(options({ metrics: { from, identity } }));
    await gatherFacts(options({ metrics: { from, identity, tokenFile } }));
    expect(new Set(server.asked.map(({ authorization }) => authorization))).toEqual(
      new Set([undefined, 'Bearer for-metrics']),
    );
  });

  it.each([
    ['http, elsewhere', 'http://kcm.example/metrics', {}],
    ['https, elsewhere, unverified', 'https://kcm.example/metrics', { insecure: true }],
  ])('%s: no token is sent', async (_what, from, more) => {
    const metrics = { from, tokenFile: '/dev/null', ...more };
    await expect(gatherFacts(options({ metrics }))).rejects.toMatchObject({
      code: 'settings-invalid',
      message: expect.stringMatching(/expected an https:\/\/ address and the CA of its certificate/),
    });
  });

  it.each([
    [
      '401',
      refused(401, 'Unauthorized'),
      /401: Unauthorized; asked with no credentials\. The user must be allowed/,
    ],
    ['500', refused(500, 'broken'), /500: broken$/],
  ])('that answers %s: an error', async (_what, answer, message) => {
    const from = `${await serving({ '/metrics': answer })}metrics`;
    await expect(gatherFacts(options({ metrics: { from } }))).rejects.toMatchObject({
      code: 'metrics-unreadable',
      message: expect.stringMatching(message),
    });
  });

  it.each([
    ['a page', '<html></html>', /line 1: expected the name of a metric/],
    ['another program’s metrics', 'up 1\n', /expected the metrics of a kube-controller-manager/],
  ])('that gives %s: an error', async (_what, body, message) => {
    const from = `${await serving({ '/metrics': well(body) })}metrics`;
    await expect(gatherFacts(options({ metrics: { from } }))).rejects.toMatchObject({
      code: 'metrics-invalid',
      message: expect.stringMatching(message),
    });
  });

  it('where nothing listens, or a file is missing: an error', async () => {
    const from = 'https://127.0.0.1:1/metrics';
    const code = 'metrics-unreadable';
    await expect(gatherFacts(options({ metrics: { from } }))).rejects.toMatchObject({ code });
    const caFile = '/does/not/exist';
    await expect(gatherFacts(options({ metrics: { from, caFile } }))).rejects.toMatchObject({
      code,
      message: '/does/not/exist: cannot be read (ENOENT)',
    });
  });
});

describe('a running Linger', () => {
  const lags = (count: number) =>
    `linger_removal_lag_seconds_bucket{le="1",stage="EndpointSlice"} ${count}\nlinger_removal_lag_seconds_bucket{le="+Inf",stage="EndpointSlice"} ${count}\n`;

  it('is asked twice', async () => {
    const server = await AnsweringServer.start({ '/metrics': [well(lags(7)), well(lags(9))] }, atEnd);
    const { lag } = await gatherFacts(options({ linger: `${server.url}metrics` }));
    expect([lag?.stages[0]?.samples, lag?.life[0]?.samples]).toEqual([2, 9]);
  });

  it('or its saved metrics, on standard input', async () => {
    const { lag } = await gatherFacts(options({ linger: '-', stdin: Readable.from([lags(7)]) }));
    expect([lag?.stages[0]?.samples, lag?.life[0]?.samples]).toEqual([0, 7]);
  });

  it.each([
    ['that measures nothing', 'linger_build_info 1\n', /expected the metrics of a Linger that measures/],
    ['that is none', '<html>', /line 1/],
  ])('%s: an error', async (_what, body, message) => {
    const stdin = Readable.from([body]);
    await expect(gatherFacts(options({ linger: '-', stdin }))).rejects.toMatchObject({
      code: 'metrics-invalid',
      message: expect.stringMatching(message),
    });
  });
});

it('given flags win over those of a pod', async () => {
  const { facts } = await gatherFrom(
    { [BY_COMPONENT]: list(pod('kcm', 'n', ['--kube-api-qps=7'])) },
    { flags: '--kube-api-qps=9' },
  );
  expect(facts.flags.qps).toBe(9);
});
