import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { linger, ROOT } from './linger.ts';

// The second set of inputs in the style of public bug reports, 30 to 51, each with other inputs of its kind.

const CASES = join(ROOT, 'test', 'testdata', 'cases');
const at = (name: string) => join(CASES, name);
const textOf = (name: string) => readFile(at(name), 'utf8');

async function audited(args: readonly string[], stdin?: string) {
  const options = stdin === undefined ? {} : { stdin };
  const { code, stdout, stderr } = await linger(['audit', '-o', 'json', ...args], options);
  const { findings, summary } = JSON.parse(stdout) as AuditReport;
  const rows = Object.fromEntries(
    Object.entries(Object.groupBy(findings, ({ kind, name }) => `${kind} ${name}`)).map(([key, all = []]) => [
      key,
      `${all[0]?.verdict} ${all.map(({ reason }) => reason).join(',')}`,
    ]),
  );
  const said = (reason: string) => findings.filter((each) => each.reason === reason).map(({ text }) => text);
  return { code, stderr, findings, summary, rows, said };
}

const audit = (name: string, ...flags: string[]) => audited(['--webhook', '-f', at(name), ...flags]);
/** Of an input with something replaced. */
async function auditWith(name: string, ...replaced: readonly (readonly [RegExp | string, string])[]) {
  let text = await textOf(name);
  for (const [from, to] of replaced) {
    expect(text).toMatch(from);
    text = text.replaceAll(from, to);
  }
  return audited(['--webhook', '-'], text);
}

describe.concurrent('one judge', () => {
  it('30: a plan that is there is judged as one that is to come', async () => {
    const webhook = await audit('30-injected-partial.yaml');
    const { stdout } = await linger(['inject', '-f', at('30-injected-partial.yaml')]);
    const injected = await audited(['--fail-on', 'any,unknown', '-'], stdout);
    expect(webhook.rows).toEqual({
      'Deployment front': 'unprotected PartialWait',
      'Deployment back': 'unknown ExistingHook',
    });
    expect([injected.code, injected.rows]).toEqual([3, webhook.rows]);
    expect(injected.findings.map(({ exposureSeconds }) => exposureSeconds)).toEqual([25, 0]);
  });

  it.each(['13-native-sidecar-prestop.yaml'])('%s: after inject, too', async (name) => {
    const { stdout } = await linger(['inject', '-f', at(name)]);
    const { rows } = await audited(['-'], stdout);
    expect(Object.values(rows).join()).toContain('SidecarHook');
  });
});

describe.concurrent('all pods behind a Service, and within a budget', () => {
  it('38: two budgets', async () => {
    const { said, rows } = await audit('38-two-budgets.yaml');
    expect(rows).toEqual({ 'Deployment web': 'protected Injected,DrainRefused' });
    expect(said('DrainRefused')[0]).toContain('web, front-tier select the same pods');
  });

  it.each([
    [
      'only one of them selects it',
      [['{matchLabels: {tier: front}}', '{matchLabels: {tier: back}}']],
      'protected Injected',
    ],
    [
      'the other is of another namespace',
      [['front-tier, namespace: shop', 'front-tier, namespace: x']],
      'protected Injected',
    ],
    ['one pod', [['replicas: 4', 'replicas: 1']], 'protected Injected,DrainRefused'],
  ] as const)('38: %s', async (_, replaced, verdict) => {
    const { rows } = await auditWith('38-two-budgets.yaml', ...replaced);
    expect(rows['Deployment web']).toBe(verdict);
  });

  it.each([
    ['minAvailable: 1', true],
    ['minAvailable: 0', false],
    ['maxUnavailable: 1', true],
    ['minAvailable: "50%"', true],
  ])('38: the budget of a pod without a controller: %s', async (spec, isRefused) => {
    const pod =
      'apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\nspec: {containers: [{name: a, ports: [{containerPort: 80}]}]}';
    const budget = `apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {${spec}, selector: {matchLabels: {app: a}}}`;
    const { said } = await audited(['--webhook', '-'], `${pod}\n---\n${budget}\n`);
    expect(said('DrainRefused')).toHaveLength(isRefused ? 1 : 0);
  });

  it('40: with a traffic router, a canary keeps its stable pods', async () => {
    const { rows } = await audit('40-canary-with-router.yaml');
    expect(rows).toEqual({ 'Rollout pay': 'protected Injected,NoOtherEndpoint' });
  });

  it.each([
    ['no router', 'trafficRouting: {nginx: {stableIngress: pay}}', 'antiAffinity: {}'],
    ['it scales them down', 'trafficRouting:', 'dynamicStableScale: true\n      trafficRouting:'],
  ])('40: but not with %s', async (_, from, to) => {
    const { rows } = await auditWith('40-canary-with-router.yaml', [from, to]);
    expect(rows['Rollout pay']).toBe('unprotected NoOtherEndpoint');
  });

  it.each(['istio: {}', 'alb: {ingress: pay, servicePort: 80}', 'plugins: {argoproj-labs/gatewayAPI: {}}'])(
    '40: whatever routes: %s',
    async (router) => {
      const { rows } = await auditWith('40-canary-with-router.yaml', ['nginx: {stableIngress: pay}', router]);
      expect(rows['Rollout pay']).toBe('protected Injected,NoOtherEndpoint');
    },
  );

  it('48: pods of three workloads behind one Service', async () => {
    const { rows, said } = await audit('48-one-service-three-workloads.yaml');
    expect(new Set(Object.values(rows))).toEqual(new Set(['protected Injected,RollsTogether']));
    expect(said('RollsTogether')[0]).toContain('One kubectl apply may roll all of them at once');
  });

  it.each([
    [
      'a Service for each',
      ['selector: {app: ingester}, ports', 'selector: {app: ingester, zone: a}, ports'],
      'zone-a',
      'unprotected NoOtherEndpoint',
    ],
    [
      'a budget that lets none go',
      ['minAvailable: 2', 'minAvailable: 3'],
      'zone-b',
      'protected Injected,RollsTogether,DrainRefused',
    ],
    [
      'more than there are',
      ['minAvailable: 2', 'minAvailable: 100%'],
      'zone-b',
      'protected Injected,RollsTogether,DrainRefused',
    ],
    ['one of them without pods', ['replicas: 1', 'replicas: 0'], 'zone-b', 'skipped NoReplicas'],
  ] as const)('48: %s', async (_, replaced, zone, verdict) => {
    const { rows } = await auditWith('48-one-service-three-workloads.yaml', replaced);
    expect(rows[`StatefulSet ingester-${zone}`]).toBe(verdict);
  });

  it('48: blue beside green, of which one has no pods', async () => {
    const one = (name: string, replicas: number) =>
      `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ${name}}\nspec: {replicas: ${replicas}, strategy: {type: Recreate}, template: {metadata: {labels: {app: web, of: ${name}}}, spec: {containers: [{name: a, ports: [{containerPort: 80}]}]}}}\n---\n`;
    const service =
      'apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n';
    const rowsOf = async (green: number) =>
      (await audited(['--webhook', '-'], one('blue', 2) + one('green', green) + service)).rows[
        'Deployment blue'
      ];
    expect(await rowsOf(2)).toBe('protected Injected,RollsTogether');
    expect(await rowsOf(0)).toBe('unprotected NoOtherEndpoint');
  });
});

describe.concurrent('what is known of the clients', () => {
  it('49: a Service for metrics alone', async () => {
    const { rows, said } = await audit('49-only-metrics.yaml');
    expect(rows).toEqual({ 'Deployment notifier': 'protected Injected,MetricsOnly' });
    expect(said('MetricsOnly')[0]).toContain('no request of a client is lost');
    const { rows: bare } = await audited(['-f', at('49-only-metrics.yaml')]);
    expect(bare).toEqual({ 'Deployment notifier': 'protected MetricsOnly' });
  });

  const ROUTE =
    '---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: cd}\nspec: {defaultBackend: {service: {name: notifier-metrics, port: {number: 9001}}}}\n';
  it.each([
    ['http-metrics', [['name: metrics, port', 'name: http-metrics, port']], true],
    ['a port without a name, of what is called metrics', [['name: metrics, port', 'port']], true],
    ['kubebuilder’s https', [['name: metrics, port', 'name: https, port']], true],
    [
      'a port for clients beside it',
      [['ports: [{name: metrics, port', 'ports: [{name: http, port: 80}, {name: metrics, port']],
      false,
    ],
    [
      'one of another name',
      [
        ['notifier-metrics', 'notifier'],
        ['name: metrics, port', 'name: web, port'],
      ],
      false,
    ],
    ['a route to it', [[/$(?![\s\S])/g, ROUTE]], false],
    [
      'a load balancer',
      [['selector: {app: notifier}, ports', 'type: LoadBalancer, selector: {app: notifier}, ports']],
      false,
    ],
  ] as const)('49: %s', async (_, replaced, isOnly) => {
    const { rows } = await auditWith('49-only-metrics.yaml', ...replaced);
    expect(rows['Deployment notifier']?.startsWith('unprotected')).toBe(!isOnly);
    expect(rows['Deployment notifier']?.includes('MetricsOnly')).toBe(isOnly);
  });

  it('a port that no Service of the namespace selects is unknown, not unprotected', async () => {
    const text = (await textOf('49-only-metrics.yaml')).replaceAll(
      'app: notifier}, ports',
      'app: other}, ports',
    );
    const { rows } = await audited(['-'], text);
    expect(rows).toEqual({ 'Deployment notifier': 'unknown NoService' });
  });
});
