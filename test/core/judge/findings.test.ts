import { globSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { parse } from 'yaml';
import { isRecord } from '../../../src/core/api/index.ts';
import { type ClusterSnapshot, NOTES, workloadOf } from '../../../src/core/decision/index.ts';
import { type AuditReport, byWorkload } from '../../../src/core/judge/audit-formats.ts';
import {
  AUDIT_FINDINGS,
  type AuditFinding,
  type FindingCode,
  type GraceCut,
  summaryOfAudit,
} from '../../../src/core/judge/findings.ts';
import { additionsIn, relatedObjectsIn } from '../../../src/core/judge/related-objects.ts';
import { plannedLags } from '../../../src/core/lag/index.ts';
import { linger } from '../../cli/linger.ts';
import { samplePlan } from '../decision/sample-plan.ts';
import { clusterPolicy, consumer, service, snapshotOf } from '../decision/sample-snapshot.ts';
import { historyOf, measuredTable, tableOf } from '../lag/sample-table.ts';
import { auditOfData, DATA, expectations, saidOf } from './expectations.ts';
import { judged, judgedText, reported } from './judged-text.ts';

describe('workloads in the style of public manifests', () => {
  const report = auditOfData();
  const { findings, summary } = report;
  const cases = expectations();

  test('there are at least 60 of them, and each has been judged', () => {
    expect(cases.length).toBeGreaterThanOrEqual(60);
    expect(summary.workloads).toBe(cases.length);
  });

  // npm run expect writes these lines; each has been read.
  test.each(cases)('$file: $kind $name: $said', (each) => {
    expect(saidOf(report, each)).toBe(each.said);
  });

  test('all lines of a workload have its verdict', () => {
    for (const own of byWorkload(findings).values())
      expect(new Set(own.map(({ verdict }) => verdict)).size).toBe(1);
  });

  test('a line names the place of its workload', () => {
    for (const { file = '', line = 0, name } of findings) {
      const [, ...rest] = readFileSync(file, 'utf8')
        .split('\n')
        .slice(line - 1);
      expect(rest.slice(0, 3).join('\n')).toContain(`name: ${name}`);
    }
  });

  test('the summary counts workloads, each under its verdict', () => {
    const counted = (verdict: AuditFinding['verdict']) =>
      cases.filter(({ said }) => said.startsWith(verdict)).length;
    expect(summary.verdicts).toEqual({
      protected: counted('protected'),
      unprotected: counted('unprotected'),
      skipped: counted('skipped'),
      unknown: counted('unknown'),
    });
    expect(summary.wouldBe).toBe(1);
  });
});

const BUILT_IN = { 'cluster-ip': 0.1, 'cluster-dns': 0.1 };
const SHOP = [service({ selector: { app: 'web' }, clusterIP: '10.0.0.1' })];

/** A snapshot whose removals all take this long. */
function slow(lag: number, documents: Parameters<typeof snapshotOf>[0] = SHOP): ClusterSnapshot {
  return snapshotOf(documents, { lags: plannedLags(measuredTable(lag, BUILT_IN)), servicesComplete: true });
}

const NOTHING_RELATED = relatedObjectsIn([], 'default');

interface Given {
  /** Seconds of the container's own sleep. */
  readonly sleeps?: number;
  readonly grace?: number;
  readonly replicas?: number;
  readonly annotations?: Readonly<Record<string, string>>;
  /** The wait in the plan of each running pod, in seconds; undefined: a pod without a plan. */
  readonly running?: readonly (number | undefined)[];
  /** The `why` of these plans. Default: measured. */
  readonly why?: string;
  /** Why the API server refuses its pods with a wait. */
  readonly refusal?: string;
  readonly cut?: GraceCut;
  /** Annotations of the Deployment itself. */
  readonly own?: Readonly<Record<string, string>>;
  readonly namespace?: string;
  readonly minReadySeconds?: number | undefined;
}

function auditedOf(
  {
    sleeps,
    grace,
    replicas = 3,
    annotations = {},
    running,
    why = 'measured',
    refusal,
    cut,
    own = {},
    namespace = 'shop',
    minReadySeconds,
  }: Given,
  snapshot: ClusterSnapshot,
  related = NOTHING_RELATED,
  plans?: readonly string[],
) {
  const lifecycle = sleeps === undefined ? {} : { lifecycle: { preStop: { sleep: { seconds: sleeps } } } };
  // With all that an audit may ask for: a new finding is to be seen in the cases that are about it, and in no other.
  const container = {
    name: 'app',
    image: 'app:1',
    ports: [{ containerPort: 80 }],
    readinessProbe: { httpGet: { path: '/ready', port: 80 } },
    livenessProbe: { httpGet: { path: '/live', port: 80 } },
    resources: { requests: { cpu: '100m', memory: '64Mi' }, limits: { memory: '64Mi' } },
    ...lifecycle,
  };
  const spec = {
    ...(grace === undefined ? {} : { terminationGracePeriodSeconds: grace }),
    containers: [container],
  };
  const object = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace, annotations: own },
    spec: {
      replicas,
      minReadySeconds,
      template: { metadata: { labels: { app: 'web' }, annotations }, spec },
    },
  };
  const workload = workloadOf(object)!;
  const pods = running?.map((wait, index) => ({
    name: `web-${index}`,
    annotations:
      wait === undefined
        ? {}
        : {
            'linger.dev/plan': samplePlan({
              wait,
              grace: wait + 30,
              why,
              ...(wait === 0 && { containers: [] }),
            }),
          },
  }));
  const subject = {
    workload,
    namespace,
    object,
    ...(pods && { running: pods }),
    ...(plans && { running: plans.map((plan) => ({ annotations: { 'linger.dev/plan': plan } })) }),
    ...(refusal !== undefined && { refusal }),
    ...(cut && { cut }),
  };
  return judged(subject, snapshot, related);
}

const auditOf = (...args: Parameters<typeof auditedOf>) => auditedOf(...args).findings;

/**
 * `unprotected GraceEaten, waits 30, open for 0`: the main line, what loses requests, and of all other findings only those under
 * test, so that a new one changes no case that is not about it.
 */
const inWords = (findings: readonly AuditFinding[], ...tested: readonly FindingCode[]) => {
  const [own] = findings;
  const shown = findings.filter(
    (each) => each === own || each.level === 'warning' || tested.some((code) => code === each.reason),
  );
  const reasons = shown.map(({ reason }) => reason).join(',');
  return `${own?.verdict} ${reasons}, waits ${own?.waitSeconds}, open for ${own?.exposureSeconds}`;
};

describe('what is held against the lag that has been measured', () => {
  test.each<[string, Given, number, string]>([
    ['no hook', {}, 12, 'protected Injected, waits 20, open for 0'],
    ['a sleep that covers it', { sleeps: 15, grace: 60 }, 12, 'protected OwnHook, waits 15, open for 0'],
    ['a sleep that does not', { sleeps: 5, grace: 60 }, 12, 'unprotected HookTooShort, waits 5, open for 8'],
    [
      'a short sleep in a quick cluster',
      { sleeps: 5, grace: 60 },
      0.2,
      'protected OwnHook, waits 5, open for 0',
    ],
    [
      'a sleep that covers it, and eats its grace',
      { sleeps: 30 },
      12,
      'unprotected GraceEaten, waits 30, open for 0',
    ],
    [
      'mode Audit',
      { annotations: { 'linger.dev/mode': 'Audit' } },
      12,
      'unprotected AuditOnly, waits 0, open for 13',
    ],
    [
      'a wait that the cluster refuses',
      { refusal: '422: no' },
      12,
      'unprotected PatchRefused, waits 20, open for 13',
    ],
    [
      'a wait in mode Audit that the cluster would refuse',
      { annotations: { 'linger.dev/mode': 'Audit' }, refusal: '422: no' },
      12,
      'unprotected AuditOnly,PatchRefused, waits 0, open for 13',
    ],
    ['pods with today’s wait', { running: [20, 20] }, 12, 'protected Injected, waits 20, open for 0'],
    ['pods with last month’s', { running: [5, 20] }, 12, 'unprotected StampedTooShort, waits 20, open for 8'],
    ['pods without any', { running: [undefined, 20] }, 12, 'unprotected NotInjected, waits 20, open for 13'],
    [
      'both',
      { running: [undefined, 5] },
      12,
      'unprotected NotInjected,StampedTooShort, waits 20, open for 13',
    ],
    [
      'pods with as much as wait.max allows',
      { running: [60, 60] },
      90,
      'unprotected LagNotCovered,StormNotCovered, waits 60, open for 31',
    ],
    [
      'pods with less than wait.max allows',
      { running: [60, 20] },
      90,
      'unprotected StampedTooShort,LagNotCovered,StormNotCovered, waits 60, open for 71',
    ],
  ])('%s', (_title, given, lag, expected) =>
    expect(inWords(auditOf(given, slow(lag)), 'StormNotCovered')).toBe(expected),
  );

  test.each<[string, number, number, string]>([
    ['less than the lag', 20, 35, 'unprotected StampedTooShort, waits 20, open for 16'],
    [
      'as much as wait.max allows, and the lag is longer',
      60,
      90,
      'unprotected LagNotCovered,StormNotCovered, waits 60, open for 31',
    ],
    [
      'as much as wait.max allows, without the whole safety factor',
      60,
      50,
      'protected AlreadyInjected,StormNotCovered, waits 60, open for 0',
    ],
  ])('a pod that carries %s', (_title, wait, lag, expected) => {
    const annotations = { 'linger.dev/plan': samplePlan({ wait, grace: wait + 30, why: 'measured' }) };
    const given = { annotations, sleeps: wait, grace: wait + 30 };
    expect(inWords(auditOf(given, slow(lag)), 'StormNotCovered')).toBe(expected);
  });

  test.each<[string, number, string]>([
    ['most removals outlast', 35, 'unprotected LagNotCovered, waits 30, open for 6'],
    ['covers most removals', 25, 'protected Injected, waits 30, open for 0'],
  ])('a wait that a ceiling bounds and that %s', (_title, lag, expected) => {
    const snapshot = slow(lag, [...SHOP, clusterPolicy({ ceiling: { wait: '30s' } })]);
    expect(inWords(auditOf({}, snapshot))).toBe(expected);
    const fixed = slow(lag, [...SHOP, clusterPolicy({ wait: { from: 'Fixed', fixed: '30s' } })]);
    expect(inWords(auditOf({}, fixed))).toBe('protected Injected, waits 30, open for 0');
  });

  test('a rare storm is said, also of a pod that has its wait, and costs no verdict', () => {
    const lags = Array.from({ length: 50 }, (_, index) => (index === 0 ? 90 : 1));
    const consumers = new Map(Object.entries(BUILT_IN).map(([name, lag]) => [name, historyOf([lag])]));
    const table = tableOf({ cluster: historyOf(lags), consumers });
    const snapshot = snapshotOf(SHOP, { lags: plannedLags(table), servicesComplete: true });
    expect(inWords(auditOf({}, snapshot), 'StormNotCovered')).toBe(
      'protected Injected,StormNotCovered, waits 5, open for 0',
    );
    const annotations = { 'linger.dev/plan': samplePlan({ wait: 5, grace: 35, why: 'storm' }) };
    expect(inWords(auditOf({ annotations, sleeps: 5, grace: 35 }, snapshot), 'StormNotCovered')).toBe(
      'protected AlreadyInjected,StormNotCovered, waits 5, open for 0',
    );
  });

  test.each<[string, Given, string]>([
    [
      'to less than the lag',
      { cut: { from: 50, grace: 35, wait: 5, by: ['Kyverno cap'] } },
      'unprotected WaitShrunk, waits 5, open for 8',
    ],
    [
      'to enough',
      { cut: { from: 50, grace: 45, wait: 15, by: [] } },
      'protected Injected,WaitShrunk, waits 15, open for 0',
    ],
  ])('a grace that the cluster cuts %s', (_, given, expected) => {
    const findings = auditOf(given, slow(12));
    expect(inWords(findings, 'WaitShrunk')).toBe(expected);
    expect(findings.find(({ reason }) => reason === 'WaitShrunk')?.text).toContain(
      'a restart changes nothing',
    );
  });

  test('Hold is told as Hold, with its costs', () => {
    const hold = clusterPolicy({ hook: 'Hold', hold: { min: '5s', max: '120s' } });
    const { findings, cost } = auditedOf({}, snapshotOf([hold, ...SHOP]));
    expect(findings[0]).toMatchObject({ reason: 'Injected', waitSeconds: 30, graceSeconds: 150 });
    expect(findings[0]?.text).toContain('Hold 5s..120s, fallback Sleep 30s, grace 150s');
    expect(cost.drain).toBe(120);
  });

  test('no Hold is told with its reason, as every note that changes what pods get', () => {
    const hold = clusterPolicy({ hook: 'Hold' });
    const snapshot = { ...snapshotOf([hold, ...SHOP]), hold: { why: 'Hold is off (--hold-port=0)' } };
    const { findings } = auditedOf({ annotations: { 'linger.dev/wait': 'soon' } }, snapshot);
    const textOf = (code: string) => findings.find(({ reason }) => reason === code)?.text;
    expect(textOf('HoldUnavailable')).toMatch(/^Sleep instead of Hold .*: Hold is off \(--hold-port=0\)$/);
    expect(textOf('InvalidAnnotation')).toContain('soon');
  });

  describe('pods whose hooks call an address that the Hold Service no longer has', () => {
    const hold = { min: 5, max: 60, percentile: 99, initial: 30, probes: 0, address: '10.201.0.7:8445' };
    const plan = samplePlan({ v: 2, hook: 'Hold', wait: 15, grace: 90, hold });
    const audited = (address: string, plans: readonly string[]) => {
      const supply = { digest: '', namespaces: new Set(''), tested: new Set(''), architectures: new Set('') };
      const documents = [clusterPolicy({ hook: 'Hold', mode: 'Enforce' }), ...SHOP];
      const snapshot = { ...snapshotOf(documents), hold: { ...supply, address } };
      return auditedOf({}, snapshot, NOTHING_RELATED, plans).findings;
    };
    test('are unprotected, with their number and the cure', () => {
      const [own] = audited('10.201.0.9:8445', [plan, plan]);
      expect(own).toMatchObject({ reason: 'HoldUnreached', verdict: 'unprotected', level: 'warning' });
      expect(own?.text).toBe(
        '2 of 2 pods with hook Hold do not reach the Hold Service and wait for 15s instead: they call 10.201.0.7:8445, and the Hold Service is at 10.201.0.9:8445 now; kubectl rollout restart replaces them',
      );
    });
    test('are no finding where the address is the same', () => {
      expect(audited('10.201.0.7:8445', [plan]).map(({ reason }) => reason)).not.toContain('HoldUnreached');
    });
  });

  test('what a pod gives two reasons for is one line with both', () => {
    const annotations = { 'linger.dev/wait': 'soon', 'linger.dev/hook': 'Slep' };
    const said = auditOf({ annotations }, slow(12)).filter(({ reason }) => reason === 'InvalidAnnotation');
    expect(said.map(({ text }) => text)).toEqual([expect.stringMatching(/wait.*"soon".*; .*hook.*"Slep"/)]);
  });

  test('a restart is not advised where new pods wait no longer', () => {
    const running = [5, 5];
    const cut = { from: 50, grace: 35, wait: 5, by: [] };
    expect(auditOf({ running }, slow(12)).map(({ reason }) => reason)).toContain('StampedTooShort');
    expect(auditOf({ running, cut }, slow(12)).map(({ reason }) => reason)).not.toContain('StampedTooShort');
  });

  test('mode Enforce would not protect where the lag outlasts what it would give', () => {
    const audited = (lag: number) =>
      summaryOfAudit([auditedOf({ annotations: { 'linger.dev/mode': 'Audit' } }, slow(lag))]);
    expect([audited(12).wouldBe, audited(90).wouldBe]).toEqual([1, 0]);
  });

  test('the lag of a declared consumer counts', () => {
    const snapshot = slow(1, [...SHOP, consumer({}, 'edge', { declared: { lag: '20s' } })]);
    expect(inWords(auditOf({ sleeps: 10, grace: 60 }, snapshot))).toBe(
      'unprotected HookTooShort, waits 10, open for 11',
    );
  });
});

test.each([
  [
    { type: 'LoadBalancer', externalTrafficPolicy: 'Local' },
    /^Service web has externalTrafficPolicy: Local,/,
  ],
  [{ type: 'NodePort', externalTrafficPolicy: 'Local' }, /health check of the node, whose interval/],
  [{ internalTrafficPolicy: 'Local' }, /internalTrafficPolicy: Local.*clients on that node have no other/],
  [{ type: 'ClusterIP', externalTrafficPolicy: 'Local' }, undefined],
  [{ type: 'LoadBalancer', externalTrafficPolicy: 'Cluster' }, undefined],
])('a Service whose last endpoint is that of each node costs no verdict: %j', (spec, said) => {
  const object = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'shop' },
    spec: { selector: { app: 'web' }, ...spec },
  };
  const findings = auditOf({}, slow(12), relatedObjectsIn([object], 'default'));
  const local = findings.find(({ reason }) => reason === 'LocalTrafficPolicy');
  expect(findings[0]?.verdict).toBe('protected');
  if (said === undefined) expect(local).toBeUndefined();
  else expect(local?.text).toMatch(said);
});

test('a pod whose hook has been taken back has no wait, whatever was planned', () => {
  const fixed = slow(12, [...SHOP, clusterPolicy({ wait: { from: 'Fixed', fixed: '20s' } })]);
  const findings = auditOf({ running: [0, 20], why: 'fixed' }, fixed);
  expect(inWords(findings)).toBe('unprotected NotInjected, waits 20, open for 20');
  expect(findings[0]?.text).toMatch(/^1 of 2 pods has no wait: something in the cluster has changed them/);
});

test.each([
  [30, /the application is killed 2s after SIGTERM/],
  [31, /the API server rejects the pod/],
])('a sleep of %i s in a grace of 30 s', (sleeps, said) => {
  expect(auditOf({ sleeps }, slow(12))[0]?.text).toMatch(said);
});

test.each<[object, RegExp | undefined]>([
  [{ minAvailable: 3 }, /run more replicas than the budget requires$/],
  [{ minAvailable: '100%' }, /set maxUnavailable: 1 instead, as this budget refuses for any number/],
  [{ maxUnavailable: 0 }, /set maxUnavailable: 1 instead/],
  [{ maxUnavailable: 1 }, undefined],
])('a PodDisruptionBudget %j for three pods', (spec, said) => {
  const selector = { matchLabels: { app: 'web' } };
  const metadata = { name: 'web', namespace: 'shop' };
  const budget = {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata,
    spec: { selector, ...spec },
  };
  const findings = auditOf({}, slow(12), relatedObjectsIn([budget], 'default'));
  const refused = findings.find(({ reason }) => reason === 'DrainRefused');
  if (said === undefined) expect(refused).toBeUndefined();
  else expect(refused?.text).toMatch(said);
});

test('a grace of 1 s is eaten by no hook where there is none', () => {
  const none = relatedObjectsIn([], 'default', []);
  const { findings, wouldBe } = auditedOf({ grace: 1 }, slow(12), none);
  expect(findings.map(({ reason }) => reason)).toEqual(['NotInjected']);
  expect(wouldBe).toBe(true);
});

test('without a webhook configuration, a restart is not the cure', () => {
  const none = relatedObjectsIn([], 'default', []);
  const [old] = auditOf({ running: [undefined, 20] }, slow(12), none);
  expect(old?.text).toMatch(/^1 of 2 pods has no wait, and new ones get none: the cluster has no Mutating/);
  expect(old?.text).toMatch(/a restart alone changes nothing$/);
  const fresh = auditOf({ running: [20, 20] }, slow(12), none);
  expect(inWords(fresh)).toBe('unprotected NotInjected, waits 20, open for 13');
  expect(fresh[0]?.text).toMatch(/^new pods get no wait: /);
  expect(inWords(auditOf({ running: [], sleeps: 20, grace: 60 }, slow(12), none))).toMatch(/^protected Own/);
  // An audit of manifests does not know the cluster's webhook configurations.
  expect(inWords(auditOf({ running: [20] }, slow(12)))).toMatch(/^protected/);
});

describe('what sends to a workload and is not declared', () => {
  const ROUTE = {
    apiVersion: 'projectcontour.io/v1',
    kind: 'HTTPProxy',
    metadata: { name: 'root', namespace: 'shop' },
    spec: { virtualhost: { fqdn: 'x' }, routes: [{ services: [{ name: 'web', port: 80 }] }] },
  };
  const related = relatedObjectsIn([ROUTE], 'default');
  const asks = (matchLabels: Readonly<Record<string, string>>) =>
    consumer({}, 'edge', {
      inspect: {
        format: 'Witness',
        instances: { namespaceSelector: {}, podSelector: { matchLabels }, port: 8446 },
      },
    });
  const web = service({ selector: { app: 'web' }, clusterIP: '10.0.0.1' }, 'web');
  const textOf = (...documents: Parameters<typeof snapshotOf>[0]) =>
    auditOf({}, slow(1, [web, ...documents]), related).find(({ reason }) => reason === 'UndeclaredConsumer')
      ?.text;

  test('is named as the catalogue knows it, with the way out', () =>
    expect(textOf()).toBe(
      'contour (HTTPProxy shop/root) sends traffic here, and no DiscoveryConsumer in mode Enforce declares it, so no wait covers its lag: linger consumers discover prints it ready to be applied',
    ));
  test('is only observed', () => {
    const { spec, ...document } = consumer({}, 'contour') as { spec: object };
    expect(textOf({ ...document, spec: { ...spec, mode: 'Observe' } })).toMatch(
      /: DiscoveryConsumer contour only observes it; set its mode to Enforce$/,
    );
  });
  test('is declared by a consumer that asks its pods', () =>
    expect(textOf(asks({ app: 'envoy' }))).toBeUndefined());
  test('may be what a consumer of unknown pods stands for', () =>
    expect(textOf(asks({ app: 'my-own-gateway' }))).toBeUndefined());
  test('is not declared by one that asks the pods of another that was found', () => {
    const gateway = { 'app.kubernetes.io/managed-by': 'envoy-gateway' };
    const other = {
      apiVersion: 'gateway.networking.k8s.io/v1',
      kind: 'GatewayClass',
      metadata: { name: 'eg' },
      spec: { controllerName: 'gateway.envoyproxy.io/gatewayclass-controller' },
    };
    const meta = { name: 'eg', namespace: 'shop' };
    const of = { apiVersion: 'gateway.networking.k8s.io/v1', metadata: meta };
    const gateways = [
      other,
      { ...of, kind: 'Gateway', spec: { gatewayClassName: 'eg' } },
      {
        ...of,
        kind: 'HTTPRoute',
        spec: { parentRefs: [{ name: 'eg' }], rules: [{ backendRefs: [{ name: 'web' }] }] },
      },
    ];
    const both = relatedObjectsIn([ROUTE, ...gateways], 'default');
    const [found] = auditOf({}, slow(1, [web, asks(gateway)]), both).filter(
      ({ reason }) => reason === 'UndeclaredConsumer',
    );
    expect(found?.text).toMatch(/^contour \(HTTPProxy shop\/root\) sends traffic here/);
  });
});

describe('a rollout beside the additions that have been measured', () => {
  const paced = (minReadySeconds: number | undefined, p99: number, services = SHOP) => {
    const related = { ...NOTHING_RELATED, additions: new Map([['cluster-ip', p99]]) };
    return auditedOf({ minReadySeconds }, slow(1, services), related);
  };
  const textOf = (...of: Parameters<typeof paced>) =>
    paced(...of).findings.find(({ reason }) => reason === 'RolloutOutrunsConsumers')?.text;

  test('that goes on sooner than consumers follow is a finding with the value to set', () => {
    expect(textOf(undefined, 9.2)).toBe(
      'cluster-ip starts to send to a new pod up to 10s (p99) after it is ready, and a rollout continues after 0s (minReadySeconds): old pods stop while new ones get no traffic yet. Set spec.minReadySeconds to 10',
    );
    expect(paced(3, 9.2).minReadySeconds).toBe(10);
  });
  test.each([
    ['long enough', 10, 9.2],
    ['as long as controllers take themselves', undefined, 0.9],
    ['less than a second short', 9, 9.2],
  ])('that is %s is none', (_title, given, p99) => expect(textOf(given, p99)).toBeUndefined());
  test('of pods without traffic is none', () => expect(textOf(0, 9, [])).toBeUndefined());
  test('counts from twenty samples on', () => {
    const view = (samples: number) => [{ name: 'edge', additions: { samples, p50: 1, p99: 9 } }] as never;
    expect([additionsIn(view(19)).size, additionsIn(view(20)).get('edge')]).toEqual([0, 9]);
  });
});

describe('an audit of very much', () => {
  const web = [service({ selector: { app: 'web' }, clusterIP: '10.0.0.1' }, 'web')];

  test('reads a plan once that thousands of pods share, and of different ones only so much', () => {
    const parsing = vi.spyOn(JSON, 'parse');
    onTestFinished(() => parsing.mockRestore());
    const readOf = (running: readonly number[]) => {
      parsing.mockClear();
      auditOf({ running }, slow(12));
      return parsing.mock.calls.map(([text]) => text).filter((text) => text.includes('"baseGrace"'));
    };
    expect(readOf(Array<number>(5_000).fill(20))).toHaveLength(1);
    const different = readOf(Array.from({ length: 5_000 }, (_, index) => index + 1));
    expect(different.join('').length).toBeLessThanOrEqual(256 * 1024);
    expect(different.length).toBeGreaterThan(500);
  });

  test('says of thousands of routes to one Service the first, and how many there are', () => {
    const backend = { service: { name: 'web', port: { number: 80 } } };
    const ingresses = Array.from({ length: 5_000 }, (_, index) => ({
      apiVersion: 'networking.k8s.io/v1',
      kind: 'Ingress',
      metadata: { name: `edge-${index}`, namespace: 'shop' },
      spec: { defaultBackend: backend, rules: [{ http: { paths: [{ backend }, { backend }] } }] },
    }));
    const found = auditOf({}, slow(1, web), relatedObjectsIn(ingresses, 'default'));
    const { text = '' } = found.find(({ reason }) => reason === 'UndeclaredConsumer') ?? {};
    expect(text).toMatch(
      /^Ingress shop\/edge-0, Ingress shop\/edge-1, Ingress shop\/edge-2 and 4997 more routes traffic here/,
    );
    expect(text.length).toBeLessThan(500);
  });

  test('says of thousands of misplaced annotations the first', () => {
    const own = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`linger.dev/a${index}`, '']));
    const { text = '' } =
      auditOf({ own }, slow(1)).find(({ reason }) => reason === 'AnnotationMisplaced') ?? {};
    expect(text).toContain('and 4997 more');
    expect(text.length).toBeLessThan(500);
  });

  test('of more workloads than a call has room for arguments has a summary', () => {
    const one = { findings: [], cost: { rollout: 1, drain: 30 } };
    expect(summaryOfAudit(Array(200_000).fill(one))).toMatchObject({
      rolloutSeconds: 200_000,
      drainSeconds: 30,
    });
  });
});

describe('namespaces that the webhook is not asked about', () => {
  const inNamespace = (namespace: string, given: Given = {}) =>
    inWords(auditOf({ ...given, namespace }, slow(12, [])));

  test.each<[string, Given, string]>([
    ['what would be unprotected', {}, 'skipped NotAsked, waits null, open for null'],
    ['whose pods have no wait', { running: [undefined] }, 'skipped NotAsked, waits null, open for null'],
    ['whose hook is too short', { sleeps: 5, grace: 60 }, 'skipped NotAsked, waits null, open for null'],
    [
      'what is skipped for its own reason',
      { annotations: { 'linger.dev/inject': 'false' } },
      'skipped OptedOut, waits null, open for null',
    ],
  ])('%s', (_, given, expected) => expect(inNamespace('kube-system', given)).toBe(expected));

  test('and others are asked about', () => expect(inNamespace('kube-public')).toMatch(/^protected Injected/));

  test('are those of the installation', () => {
    const { webhooks } = parse(readFileSync('deploy/webhook.yaml', 'utf8')) as {
      webhooks: { namespaceSelector: { matchExpressions: { key: string }[] } }[];
    };
    const expressions = webhooks[0]?.namespaceSelector.matchExpressions.filter(
      ({ key }) => key !== 'linger.dev/inject',
    );
    expect(NOTHING_RELATED.webhook.namespaceSelector).toEqual({ matchExpressions: expressions });
  });
});

describe('linger audit --suggest', () => {
  test('prints policies that do what they say: with them in force, so many workloads are protected', async () => {
    const { stdout } = await linger(['audit', '-R', '-f', DATA, '--suggest']);
    const [, before, all, claimed] =
      /^# as the manifests are, \d+ of (?=(?:\d+) workloads protected, with Linger’s webhook (\d+))(\d+) .*; with these policies (\d+)\n/.exec(
        stdout,
      ) ?? [];
    const folder = await mkdtemp(join(tmpdir(), 'linger-suggested-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    await writeFile(join(folder, 'suggested.yaml'), stdout);
    const report = await linger(['audit', '-R', '-f', DATA, '--webhook', '--policies', folder, '-o', 'json']);
    const { summary } = JSON.parse(report.stdout) as AuditReport;
    expect([summary.workloads, summary.verdicts.protected]).toEqual([Number(all), Number(claimed)]);
    expect(Number(claimed)).toBeGreaterThan(Number(before));
    // Each namespace that it lists needs the policy. It sets no mode: no policy overrides mode Audit by annotation.
    expect(stdout).not.toContain('mode:');
    expect([...stdout.matchAll(/^ {10}- (\S+)$/gm)].map(([, name]) => name)).toEqual(['db', 'hooks']);
  });

  test('says so where no policy would help', async () => {
    const { stdout } = await linger(['audit', '-f', join(DATA, 'guestbook.yaml'), '--suggest']);
    expect(stdout).toMatch(
      /^# as the manifests are, 0 of 3 workloads protected, with Linger’s webhook 3; no policy would change that/,
    );
  });
});

test('a workload whose judgement fails is a finding, and no failure of the audit', () => {
  const object = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace: 'shop' },
    get spec() {
      throw new RangeError('Maximum\u001b[31m call stack size exceeded');
    },
  };
  const workload = {
    ...workloadOf({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: {}, spec: { template: {} } })!,
    name: 'web',
    namespace: 'shop',
  };
  const { findings } = judged(
    { workload, namespace: 'shop', object, file: 'a.yaml', line: 3 },
    slow(5),
    NOTHING_RELATED,
  );
  expect(findings).toMatchObject([
    { kind: 'Deployment', name: 'web', verdict: 'unknown', reason: 'InternalError', file: 'a.yaml', line: 3 },
  ]);
  expect(findings[0]?.text).toMatch(/failed on this workload \(RangeError: Maximum\\u001b\[31m call stack/);
});

describe('the catalogue', () => {
  const deployment = (name: string, app: string, spec = '') =>
    `{apiVersion: apps/v1, kind: Deployment, metadata: {name: ${name}}, spec: {${spec}template: {metadata: {labels: {app: ${app}}}, spec: {containers: [{name: app, image: app, ports: [{containerPort: 80}]}]}}}}`;
  const TEXTS = [
    deployment('a', 'web', 'strategy: {type: Recreate}, '),
    deployment('b', 'web'),
    deployment('c', 'other'),
    '{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}',
    '{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: shop}, spec: {chart: {spec: {chart: shop}}}}',
  ].join('\n---\n');

  const servicesIn = (text: string) =>
    judgedText(text, snapshotOf([])).objects.filter(
      (each) => isRecord(each) && each.kind === 'Service' && isRecord(each.metadata) && isRecord(each.spec),
    ) as Parameters<typeof snapshotOf>[0];

  test('has no finding that nothing ever reports', () => {
    const texts = globSync('{cases,audit}/*.yaml', { cwd: join(DATA, '..') }).map((file) =>
      readFileSync(join(DATA, '..', file), 'utf8'),
    );
    for (const text of [...texts, TEXTS])
      for (const webhooks of [undefined, []] as const)
        judgedText(text, snapshotOf(servicesIn(text)), webhooks && []);
    auditedOf({}, slow(1), { ...NOTHING_RELATED, unread: new Map([['shop', new Set(['Ingress'])]]) });
    // A note of a decision has its own case.
    const silent = Object.keys(AUDIT_FINDINGS).filter((code) => !reported.has(code) && !(code in NOTES));
    expect(silent).toEqual([]);
  });

  test('is in the order in which findings are reported', () => {
    const { findings } = auditedOf({ running: [60, 20] }, slow(90));
    const order = Object.keys(AUDIT_FINDINGS);
    const reasons = findings.map(({ reason }) => reason);
    expect(reasons).toContain('StormNotCovered');
    expect(reasons).toEqual(reasons.toSorted((a, b) => order.indexOf(a) - order.indexOf(b)));
  });

  test('decides by what is unprotected, before what is unknown', () => {
    const text = [
      '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, template: {metadata: {labels: {app: web}}, spec: {nodeSelector: {cloud.google.com/gke-spot: "true"}, containers: [{name: app, image: app, ports: [{containerPort: 80}]}]}}}}',
      '{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {selector: {app: web}, publishNotReadyAddresses: true, ports: [{port: 80}]}}',
    ].join('\n---\n');
    const [audited] = judgedText(text, snapshotOf(servicesIn(text))).audited;
    expect(audited?.findings.map(({ verdict, reason, level }) => [verdict, reason, level])).toEqual([
      ['unprotected', 'NeverWithdrawn', 'warning'],
      ['unprotected', 'NodeBudgetShort', 'note'],
    ]);
  });

  test('has, of a workload that is skipped, what it says of those', () => {
    const daemons = [
      '{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web, annotations: {linger.dev/wait: 5s}}, spec: {template: {metadata: {labels: {app: web}, annotations: {linger.dev/wiat: 5s}}, spec: {containers: [{name: app, image: app, ports: [{containerPort: 80}]}]}}}}',
      '{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {selector: {app: web}, publishNotReadyAddresses: true, type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]}}',
    ].join('\n---\n');
    const [audited] = judgedText(daemons, snapshotOf(servicesIn(daemons))).audited;
    const [own, ...further] = audited?.findings ?? [];
    expect([own?.verdict, own?.reason]).toEqual(['skipped', 'DaemonSet']);
    expect(further.map(({ reason }) => reason)).toEqual([
      'UnknownAnnotation',
      'DaemonSetServing',
      'AnnotationMisplaced',
    ]);
  });
});
