import { describe, expect, it } from 'vitest';
import { JudgedManifests, POLICIES } from '../../../src/core/report/index.ts';

const FILE = 'manifest.yaml';

const pod = (app: string, namespace = 'team') =>
  `---\napiVersion: v1\nkind: Pod\nmetadata: {name: ${app}, namespace: ${namespace}, labels: {app: ${app}}}\nspec: {containers: [{name: a, image: a, ports: [{containerPort: 80}]}]}\n`;
const service = (app: string, more = '') =>
  `---\napiVersion: v1\nkind: Service\nmetadata: {name: ${app}, namespace: team}\nspec: {selector: {app: ${app}}, ports: [{port: 80}]${more}}\n`;
const object = (apiVersion: string, kind: string) =>
  `---\napiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: mine}\nspec: {}\n`;
const policy = (spec: string) =>
  `apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: mine}\nspec: {${spec}}\n`;

const said = (text: string, policies = '') =>
  new JudgedManifests([{ name: FILE, text }], policies).report.notices.map(
    ({ file, line, text: what }) => `${file}:${line} ${what}`,
  );

describe('a Service without pods', () => {
  const LONE = /^manifest\.yaml:\d+ Service team\/web \(app=web\): no pod here has these labels: add/;

  it.each([
    ['alone', service('web')],
    ['beside pods with other labels', pod('api') + service('web')],
    ['beside pods of another namespace', pod('web', 'other') + service('web')],
  ])('%s is said at its line', (_, text) => {
    expect(said(text)).toEqual([expect.stringMatching(LONE)]);
  });

  it.each([
    ['that selects a pod', pod('web') + service('web')],
    ['that is a name elsewhere', service('web', ', type: ExternalName, externalName: a.example')],
    ['without a selector', service('web').replace('selector: {app: web}, ', '')],
    [
      'beside a release that is not rendered',
      `${service('web')}---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web, namespace: team}\nspec: {}\n`,
    ],
  ])('%s is not', (_, text) => {
    expect(said(text)).toEqual([]);
  });

  it('many are one notice', () => {
    const [notice, ...more] = said(Array.from({ length: 30 }, (_, each) => service(`web-${each}`)).join(''));
    expect(notice).toMatch(/:2 30 Services: team\/web-0 .* and \d+ more: no pod/);
    expect(more).toEqual([]);
  });
});

describe('a kind that does not exist', () => {
  it.each([
    ['apps/v1', 'Deployent', 'Deployment of apps/v1'],
    ['apps/v1', 'deployment', 'Deployment of apps/v1'],
    ['apps/v1', 'StatefullSet', 'StatefulSet of apps/v1'],
    ['apps/v1', 'DeamonSet', 'DaemonSet of apps/v1'],
    ['v1', 'Deployment', 'Deployment of apps/v1'],
    ['app/v1', 'Deployment', 'Deployment of apps/v1'],
    ['batch/v1', 'Cronjob', 'CronJob of batch/v1'],
    ['v1', 'Pods', 'Pod of v1'],
    ['v1', 'Sevice', 'Service of v1'],
    ['argoproj.io/v1alpha1', 'Rolout', 'Rollout of argoproj.io'],
  ])('%s %s: %s is meant', (apiVersion, kind, meant) => {
    expect(said(object(apiVersion, kind))).toEqual([
      `manifest.yaml:2 mine: there is no ${apiVersion} ${kind}: is ${meant} meant?`,
    ]);
  });

  it.each([
    ['v1', 'Node'],
    ['v1', 'Secret'],
    ['v1', 'PodTemplate'],
    ['apps/v1', 'Deployment'],
    ['apps/v1', 'ControllerRevision'],
    ['gateway.networking.k8s.io/v1', 'TCPRoute'],
    ['devices.example/v1', 'Device'],
    ['devices.example/v1', 'Pods'],
    ['argoproj.io/v1alpha1', 'Workflow'],
  ])('%s %s is none', (apiVersion, kind) => {
    expect(said(object(apiVersion, kind))).toEqual([]);
  });

  it('with the template of its pods, its finding says so, too', () => {
    const text = `apiVersion: apps/v1\nkind: Deployent\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: a, image: a}]}}}\n`;
    const { rows } = new JudgedManifests([{ name: FILE, text }], '').report;
    expect(rows[0]?.findings[0]?.text).toContain('(is Deployment of apps/v1 meant?)');
  });
});

describe('a policy that selects no workload', () => {
  const idle = (because: RegExp) =>
    expect.stringMatching(
      new RegExp(`^${POLICIES}:1 ClusterTerminationPolicy/mine selects none of these .*${because.source}`),
    ) as string;

  it.each([
    ['by pods', 'podSelector: {matchLabels: {app: api}}', /compare its selectors/],
    [
      'by the name of a namespace',
      'namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}',
      /compare its selectors/,
    ],
    [
      'by labels of a namespace that are not here',
      'namespaceSelector: {matchLabels: {stage: prod}}',
      /those of team are not here: add the Namespace/,
    ],
  ])('%s', (_, spec, because) => {
    expect(said(pod('web'), policy(spec))).toEqual([idle(because)]);
  });

  it('of another namespace', () => {
    const namespaced =
      'apiVersion: linger.dev/v1alpha1\nkind: TerminationPolicy\nmetadata: {name: mine, namespace: shop}\nspec: {mode: Audit}\n';
    expect(said(pod('web'), `${policy('mode: Audit')}---\n${namespaced}`)).toEqual([
      expect.stringMatching(/^policies\.yaml:6 TerminationPolicy\/(shop\/)?mine selects none/),
    ]);
  });

  it.each([
    ['everything', 'mode: Audit'],
    ['one of them', 'podSelector: {matchLabels: {app: web}}'],
    ['its namespace', 'namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team}}'],
  ])('one that selects %s does', (_, spec) => {
    expect(said(pod('web') + pod('api'), policy(spec))).toEqual([]);
  });

  it('is not asked for workloads where there are none', () => {
    expect(said('', policy('podSelector: {matchLabels: {app: api}}'))).toEqual([]);
  });
});
