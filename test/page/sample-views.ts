import { assess, terminationSummary } from '../../src/core/timeline/index.ts';
import type {
  AllWorkloads,
  Answers,
  ConsumersView,
  ExplanationReport,
  LagReport,
  NowReport,
  TimelineView,
  WhatIfReport,
} from '../../src/dashboard/index.ts';
import { CLEAR, SENT, UNKNOWN } from '../core/timeline/sample-termination.ts';

/** Seconds since the epoch: a quarter of an hour of 24 November 2026, some minutes old. */
const NOW = 1_795_514_700 + 400;
const DAY = 86_400;

const SUMMARY = {
  workloads: 41,
  verdicts: { protected: 31, unprotected: 3, skipped: 6, unknown: 1 },
  wouldBe: 3,
  reasons: { NotInjected: 2, HookTooShort: 1 },
  skipped: { NoTraffic: 6 },
  rolloutSeconds: 620,
  drainSeconds: 45,
};

/** What each view shows of a busy cluster. @param named of each name that others choose, what is shown in its place */
export function sampleSources(named = (name: string) => name): Answers {
  const [shop, web, edge] = [named('shop'), named('web'), named('edge')];
  const finding = (
    kind: string,
    name: string,
    verdict: 'protected' | 'unprotected' | 'skipped',
    reason: string,
  ) => ({
    kind,
    namespace: shop,
    name,
    verdict,
    reason,
    waitSeconds: verdict === 'protected' ? 15 : 0,
    level: verdict === 'unprotected' ? ('warning' as const) : null,
    graceSeconds: 30,
    exposureSeconds: verdict === 'unprotected' ? 9.8 : 0,
    evidence: {
      basis: 'measured' as const,
      removals: 4_102,
      historySeconds: 604_800,
      text: 'measured: 4102 removals over 7 d',
    },
    text: `its pods get requests through ${edge} for 9.8 s after SIGTERM: add a wait, or let Linger add it`,
  });
  const workloads: AllWorkloads = {
    rows: [
      finding('Deployment', web, 'unprotected', 'NotInjected'),
      finding('StatefulSet', named('cart'), 'unprotected', 'HookTooShort'),
      finding('Deployment', named('checkout-service'), 'protected', 'Injected'),
      finding('DaemonSet', named('node-agent'), 'skipped', 'NoTraffic'),
    ].map((each) => ({
      address: `${each.kind}/${each.namespace}/${each.name}`,
      fate: each.verdict === 'unprotected' ? ('lost' as const) : ('fine' as const),
      findings: [each],
    })),
    summary: SUMMARY,
    asOf: NOW,
    unseen: [`Ingress: ${shop} cannot be listed`],
    fates: { lost: 3, assumed: 0, fine: 37, unknown: 1 },
    headline: '3 of 41 lose requests when they roll; 37 are fine; of 1 it is not known',
    basis: [`Worst: Deployment ${shop}/${web}, for 9.8 s through ${edge}.`],
  };
  const explanation: ExplanationReport = {
    plan: {
      kind: 'Deployment',
      namespace: shop,
      name: web,
      outcome: 'inject',
      mode: 'Enforce',
      digest: null,
      reason: null,
      waitSeconds: 15,
      graceSeconds: 45,
      baseGraceSeconds: 30,
      hook: 'Sleep',
      hold: null,
      admitted: null,
      containers: [named('app')],
      why: null,
      observers: [edge],
      notes: [],
      evidence: null,
      estimate: { text: `99 % of 4,102 removals were complete within 9.8 s, times 1.5` },
      fields: [
        { field: 'wait.from', value: 'Measured', origin: `ClusterTerminationPolicy/${named('base')}` },
      ],
    },
    stands: false,
    helps: true,
    because: `99 % of removals are through ${edge} within 9.8 s`,
    charts: [
      {
        title: `Deployment ${shop}/${web}: as it is`,
        from: 0,
        to: 30,
        summary: 'SIGTERM after 0 s: requests are lost for up to 9.8 s.',
        marks: [{ at: 0, label: 'deleted' }],
        lanes: [
          { label: 'who still sends', note: '9.8 s (measured)', spans: [{ from: 0, to: 9.8, tone: 'lost' }] },
        ],
      },
    ],
    patch: { before: `name: ${web}\n`, after: `name: ${web}\nterminationGracePeriodSeconds: 45\n` },
    left: [],
    policy: 'mode: Audit\n',
  };
  const consumer = (name: string, status: 'True' | 'False', message: string) => ({
    name,
    measure: 'probe',
    removals: { samples: 4_102, p50: 2.1, p99: 9.8 },
    additions: null,
    lastSample: NOW - 40,
    services: 12,
    instances: 3,
    limits: [],
    condition: { status, reason: status === 'True' ? 'Measuring' : 'Silent', message, since: NOW - 4_000 },
  });
  const troubled = consumer(
    edge,
    'False',
    `no report of ${edge} for 67 min: its pods wait for what was measured before`,
  );
  const consumers: ConsumersView = {
    asOf: NOW,
    unseen: [],
    consumers: [troubled, consumer('cluster-ip', 'True', 'measured by the canary')],
    undeclared: [
      ...[{ from: `10.0.9.9 (infra/${named('gw-0')})`, pods: 3, connections: 40, lastSeen: NOW - 90 }].map(
        (each) => ({ ...each, workloads: [`${shop}/Deployment/${web}`] }),
      ),
    ],
    routed: [
      { kind: 'Deployment', namespace: shop, name: web, text: `HTTPRoute ${shop}/${web} leads to it` },
    ],
  };
  const place = (pod: string, source: string) => ({ namespace: shop, service: web, pod: named(pod), source });
  const now: NowReport = {
    asOf: NOW,
    headline: workloads.headline,
    troubled: [troubled],
    unseen: [],
    held: [
      {
        namespace: shop,
        pod: named('web-5d8f7-k2x4p'),
        uid: 'h',
        heldMs: 3_400,
        deleted: true,
        hooks: 1,
        maxSeconds: 60,
        leftMs: 56_600,
        open: 2,
        from: ['10.0.9.9'],
        waitingFor: [{ consumer: edge, instances: [named('gw-0')] }],
      },
    ],
    shortfalls: [
      {
        at: NOW - 4_000,
        namespace: shop,
        owner: `Deployment/${web}`,
        pods: 12,
        seconds: 4.8,
        text: `no wait; ${edge} follows within 4.8 s (p99)`,
      },
    ],
    ended: (['clear', 'sent', 'unknown'] as const).map((afterSigterm, index) => ({
      uid: `u${index + 1}`,
      namespace: shop,
      pod: named(`web-${index}`),
      owner: `Deployment/${web}`,
      at: NOW - 60 - 400 * index,
      afterSigterm,
      waitSeconds: 9.1 - 4 * index,
      lagSeconds: index === 2 ? null : 9,
    })),
    watched: {
      since: NOW - 900,
      open: [{ ...place('web-5d8f7-k2x4p', 'Endpoints'), since: NOW - 3 }],
      done: [
        { ...place('web-5d8f7-k2x4p', 'EndpointSlice'), at: NOW - 3, lagSeconds: 0.038 },
        { ...place('web-5d8f7-9q2ml', 'Endpoints'), at: NOW - 400, lagSeconds: null },
      ],
      lags: [{ source: 'EndpointSlice', samples: 118, p50: 0.031, p99: 0.22, max: 2.2 }],
    },
  };
  const distribution = Array.from(
    { length: 60 },
    (_, each) => [0.02 * 1.13 ** each, 1 - 0.9 ** (each / 2 + 1)] as const,
  );
  const begin = NOW - 6 * DAY;
  const lag: LagReport = {
    asOf: NOW,
    scopes: ['cluster', `namespace/${shop}`, `consumer/${edge}/removal`],
    scope: 'cluster',
    samples: 4_102,
    p50: 2.1,
    p90: 6.4,
    p99: 9.8,
    max: 41,
    distribution,
    unseen: [],
    edges: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
    spans: Array.from({ length: 500 }, (_, each) => ({
      from: begin + each * 900,
      to: begin + (each + 1) * 900,
      counts: [
        0,
        0,
        1 + (each % 3),
        2,
        5 + (each % 7),
        9,
        each % 4,
        each > 300 && each < 310 ? 40 : 0,
        0,
        0,
        0,
      ],
    })),
    parts: (['control plane', edge, named('mesh')] as const).map((name, index) => ({
      name,
      source: index < 2 ? 'measured' : 'unknown',
      samples: index < 2 ? 4_102 : 0,
      ...(index < 2 ? { p50: 0.03 + 2 * index, p99: 0.2 + 9.6 * index } : { p50: null, p99: null }),
      distribution:
        index < 2 ? distribution.map(([lag, share]) => [lag * (0.2 + index * 0.7), share] as const) : [],
    })),
    waits: [{ seconds: 15, namespaces: 12, covered: 0.9971 }],
    episodes: [
      {
        scope: 'cluster',
        from: begin + 301 * 900,
        to: begin + 310 * 900,
        removals: 360,
        share: 0.09,
        p99Seconds: 41,
        p99WithoutSeconds: 9.8,
      },
    ],
  };
  const whatIf = (fields: Readonly<Record<string, unknown>>): WhatIfReport => ({
    policy: `apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata:\n  name: what-if\nspec:\n  mode: Enforce\n  wait:\n    from: ${String(fields.from)}\n  hook: ${String(fields.hook ?? 'Auto')}\n`,
    waits: [
      {
        seconds: 15,
        namespaces: 12,
        covered: 0.9971,
        hold: fields.hook === 'Hold' ? { minSeconds: 5, maxSeconds: 60 } : null,
      },
    ],
    removals: 4_102,
    distribution,
    held: fields.hook === 'Hold' ? { p50: 5, p99: 9.8 } : null,
    obstacles: fields.hook === 'Hold' ? [`namespace ${shop}: node ${named('node-3')} is s390x`] : [],
    before: SUMMARY,
    after: {
      ...SUMMARY,
      verdicts: { ...SUMMARY.verdicts, protected: 34, unprotected: 0 },
      rolloutSeconds: 980,
    },
  });
  const ended = [CLEAR, SENT, UNKNOWN].map((each, index) => ({
    ...each,
    namespace: shop,
    pod: named(each.pod),
    owner: each.owner && `Deployment/${web}`,
    deletedAt: NOW - 60 - 400 * index,
    consumers: each.consumers.map((one) => ({ ...one, name: named(one.name) })),
  }));
  const timeline: TimelineView = {
    asOf: NOW,
    terminations: ended.map((each) => ({ ...each, ...assess(each), text: terminationSummary(each) })),
  };
  return {
    root: {
      version: '0.0.0',
      views: ['now', 'workloads', 'timeline', 'lag', 'what-if', 'consumers'],
      source: named('prod-eu-1'),
    },
    workloads: async () => workloads,
    explanation: async () => explanation,
    now: async () => now,
    timeline: async () => timeline,
    consumers: async () => consumers,
    lag: async (scope) => ({ ...lag, scope }),
    whatIf: async (fields) => whatIf(fields),
    follow: () => () => undefined,
  };
}
