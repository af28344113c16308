import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, ROOT, shipped } from './linger.ts';

// Inputs in the style of public bug reports; each stands for its kind.

const atEnd = atEndOfFile();
const CASES = join(ROOT, 'test', 'testdata', 'cases');
const at = (name: string) => join(CASES, name);

async function audit(name: string, ...flags: string[]) {
  return read(await linger(['audit', '-f', at(name), '-o', 'json', ...flags]));
}

/** Audits an input in which texts have been replaced. */
async function auditWith(name: string, ...replaced: readonly (readonly [RegExp | string, string])[]) {
  let stdin = await readFile(at(name), 'utf8');
  for (const [from, to] of replaced) {
    expect(stdin).toMatch(from);
    stdin = stdin.replace(from, to);
  }
  return read(await linger(['audit', '--webhook', '-o', 'json', '-'], { stdin }));
}

function read({ code, stdout, stderr }: Awaited<ReturnType<typeof linger>>) {
  const { findings, summary } = JSON.parse(stdout) as AuditReport;
  const rows = findings.map(({ kind, name, verdict, reason }) => `${kind} ${name}: ${verdict} ${reason}`);
  const said = (reason: string) => findings.filter((each) => each.reason === reason).map(({ text }) => text);
  return { code, stderr, findings, summary, rows, said };
}

interface Explained {
  readonly kind: string;
  readonly name: string;
  readonly reason: string | null;
  readonly waitSeconds: number | null;
  readonly notes: readonly { readonly code: string; readonly text: string }[];
}

async function explain(name: string, ...flags: string[]) {
  const { code, stdout, stderr } = await linger(['explain', '-f', at(name), '-o', 'json', ...flags]);
  return { code, stderr, plans: (JSON.parse(stdout) as { plans: readonly Explained[] }).plans };
}

const codes = ({ notes }: Explained) => notes.map(({ code }) => code);

describe.concurrent('what own hooks wait', () => {
  it('01: a sleep of any shell', async () => {
    const { rows, said } = await audit('01-bash-sleep-eats-grace.yaml');
    expect(rows).toEqual(['Deployment search: unprotected GraceEaten']);
    expect(said('GraceEaten')[0]).toContain('waits 60s, and the grace is 30s');
  });

  it.each([[[]], [['--webhook']]])(
    '03: one container eats the grace, whatever the others get %j',
    async (flags) => {
      const { rows, said } = await audit('03-sidecar-hides-grace-eaten.yaml', ...flags);
      expect(rows).toContain('Deployment sqlapp: unprotected GraceEaten');
      expect(said('GraceEaten')[0]).toContain(
        `waits 120s, and the grace is ${flags.length === 0 ? 30 : 60}s`,
      );
    },
  );

  it('03: a wait that is there is not called none', async () => {
    const { said } = await audit('03-sidecar-hides-grace-eaten.yaml');
    expect(said('NotInjected')[0]).toContain('have no wait in container sql-proxy, and no webhook');
    const hooked = 'lifecycle: {preStop: {sleep: {seconds: 5}}}, ports: [{containerPort: 80}]';
    const stdin = `apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, ${hooked}}]}\n`;
    const policies = join(await emptyDirectory(atEnd), 'extend.yaml');
    const policy = 'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: a}\n';
    await writeFile(policies, `${policy}spec: {existingHook: Extend}\n`);
    const { stdout } = await linger(['audit', '-o', 'json', '--policies', policies, '-'], { stdin });
    const [finding] = (JSON.parse(stdout) as AuditReport).findings;
    expect(finding).toMatchObject({ reason: 'NotInjected', waitSeconds: 5 });
    expect(finding?.text).toContain('its pods wait 5s only');
  });

  it('13: the hook of a native sidecar is not passed over', async () => {
    const { rows } = await audit('13-native-sidecar-prestop.yaml', '--webhook');
    expect(rows.map((row) => row.split(' ').at(-1))).toContain('SidecarHook');
  });

  // The kubelet stops a native sidecar after the application, whose SIGTERM does not wait for its hook.
  it.each([
    ['exec: {command: [sleep, "90"]}', 'protected', 'Injected', 'nothing'],
    ['sleep: {seconds: 90}', 'unprotected', 'GraceEaten', 'the API server rejects the pod'],
  ])('13: a long hook of a native sidecar is refused at most: %s', async (hook, verdict, reason, said) => {
    const own = ['httpGet: {path: /drain, port: 15020, scheme: HTTP}', hook] as const;
    const { rows, findings } = await auditWith('13-native-sidecar-prestop.yaml', own);
    expect(rows).toEqual([`Pod orders-7c9f6d8b5-abcde: ${verdict} ${reason}`]);
    if (reason === 'GraceEaten') expect(findings[0]?.text).toContain(said);
  });
});

describe.concurrent('what rollouts do', () => {
  it('04: a rollout that may stop all pods before a new one is ready', async () => {
    const { findings } = await audit('04-all-replicas-at-once.yaml', '--webhook');
    const own = findings.filter(({ reason }) => reason === 'NoOtherEndpoint');
    expect(own.map(({ name, verdict }) => [name, verdict])).toEqual([
      ['one-surge0', 'unprotected'],
      ['three-unavail10', 'unprotected'],
      ['two-100pct', 'unprotected'],
    ]);
    expect(own[1]?.text).toContain('maxUnavailable lets a rollout stop all 3 pods');
  });

  it.each([
    [
      'its only pod, without surge',
      'maxSurge: 0, maxUnavailable: 1',
      'set maxSurge: 1 and maxUnavailable: 0',
    ],
    [
      'half of one, rounded down',
      'maxSurge: 0%, maxUnavailable: 50%',
      'set maxSurge: 1 and maxUnavailable: 0',
    ],
  ])('04: the way out is one that the API server accepts: %s', async (_, rolling, wayOut) => {
    const { findings } = await auditWith('04-all-replicas-at-once.yaml', [
      'maxSurge: 0, maxUnavailable: 1',
      rolling,
    ]);
    const own = findings.find(({ name, reason }) => name === 'one-surge0' && reason === 'NoOtherEndpoint');
    expect(own?.text.split('; ').at(-1)).toBe(wayOut);
  });

  it.each([
    [
      'maxSurge: 0, maxUnavailable: 1',
      'maxSurge: 0, maxUnavailable: 0',
      'maxSurge and maxUnavailable are both 0; the API server refuses',
    ],
    [
      'maxSurge: 0, maxUnavailable: 1',
      'maxSurge: 0%, maxUnavailable: 0',
      'maxSurge and maxUnavailable are both 0; the API server refuses',
    ],
    [
      'maxSurge: 0, maxUnavailable: 1',
      'maxSurge: "1", maxUnavailable: 1',
      'maxSurge: expected a whole number or a percentage, got string 1',
    ],
    [
      'strategy: {type: RollingUpdate',
      'strategy: {type: Rolling',
      'spec.strategy.type: expected Recreate or RollingUpdate, got Rolling;',
    ],
    [
      '    spec:\n',
      '    spec:\n      restartPolicy: OnFailure\n',
      'restartPolicy: expected Always, got OnFailure;',
    ],
    [
      'metadata: {labels: {app: one-surge0}}',
      'metadata: {labels: {app: one}}',
      'spec.selector (app: one-surge0) does not match the labels of the template;',
    ],
  ])('04: a Deployment that the API server refuses protects nothing: %s → %s', async (from, to, text) => {
    const { findings } = await auditWith('04-all-replicas-at-once.yaml', [from, to]);
    const own = findings.filter(({ name }) => name === 'one-surge0');
    expect(own).toMatchObject([{ verdict: 'unknown', reason: 'InvalidObject' }]);
    expect(own[0]?.text).toContain(text);
  });

  it('04: nor does one with rollingUpdate beside Recreate', async () => {
    const { rows } = await auditWith('04-all-replicas-at-once.yaml', [
      'type: RollingUpdate, rollingUpdate',
      'type: Recreate, rollingUpdate',
    ]);
    expect(rows).toContain('Deployment one-surge0: unknown InvalidObject');
  });

  const MADE =
    '---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: keda-hpa-video, namespace: media}\nspec: {minReplicas: 1, maxReplicas: 10, scaleTargetRef: {kind: Deployment, name: video}}\n';
  it.each([
    ['behind it', [/$(?![\s\S])/g, MADE]],
    ['before it', [/---\napiVersion: keda/, `${MADE}---\napiVersion: keda`]],
  ] as const)('15: whatever the HorizontalPodAutoscaler that KEDA makes says: %s', async (_, replaced) => {
    const { said } = await auditWith('15-keda-scale-to-zero.yaml', replaced);
    expect(said('NoOtherEndpoint')).toEqual([
      expect.stringContaining('ScaledObject video scales it down to 0'),
    ]);
  });

  it.each([
    ['replicas: {max: 10}', 1],
    ['replicas: {min: 2, max: 10}', 0],
  ])('15: by requests, of which KEDA’s interceptor knows: %s', async (replicas, count) => {
    const { said } = await auditWith('15-keda-scale-to-zero.yaml', [
      /apiVersion: keda[\s\S]*/,
      `apiVersion: http.keda.sh/v1alpha1\nkind: HTTPScaledObject\nmetadata: {name: video, namespace: media}\nspec: {hosts: [v.example], scaleTargetRef: {name: video, service: video, port: 80}, ${replicas}}\n`,
    ]);
    expect(said('NoOtherEndpoint')).toHaveLength(count);
  });

  it.each([
    ['a HorizontalPodAutoscaler is disabled by that', MADE, 'skipped NoReplicas'],
    ['not one that scales to 0', MADE.replace('minReplicas: 1', 'minReplicas: 0'), 'protected Injected'],
    [
      'nor KEDA',
      `${MADE}---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: video, namespace: media}\nspec: {scaleTargetRef: {name: video}, minReplicaCount: 1}\n`,
      'protected Injected',
    ],
  ])('15: with 0 replicas: %s', async (_, scaler, row) => {
    const { rows } = await auditWith(
      '15-keda-scale-to-zero.yaml',
      ['replicas: 3', 'replicas: 0'],
      [/---\napiVersion: keda[\s\S]*/, scaler],
    );
    expect(rows[0]).toBe(`Deployment video: ${row}`);
  });

  it('15: KEDA scales to 0 unless it is told otherwise', async () => {
    expect((await audit('15-keda-scale-to-zero.yaml')).said('NoOtherEndpoint')).toEqual([
      expect.stringContaining('ScaledObject video scales it down to 0'),
    ]);
  });

  it('15: a StatefulSet that is scaled down to one is not told to lower what it does not set', async () => {
    const stdin = `${[
      'apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: kv}\nspec:\n  replicas: 3\n  template:',
      '    metadata: {labels: {app: kv}}\n    spec: {containers: [{name: kv, ports: [{containerPort: 80}]}]}',
      '---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: kv}',
      'spec: {minReplicas: 0, scaleTargetRef: {kind: StatefulSet, name: kv}}',
    ].join('\n')}\n`;
    const { stdout } = await linger(['audit', '-o', 'json', '-'], { stdin });
    const { findings } = JSON.parse(stdout) as AuditReport;
    expect(findings.find(({ reason }) => reason === 'NoOtherEndpoint')?.text).toMatch(/; use two replicas$/);
  });

  it('16: a Service for peers beside one for clients is no verdict', async () => {
    const { rows, said } = await audit('16-peer-service-not-ready.yaml', '--webhook');
    expect(rows).toEqual(['StatefulSet kv: protected Injected', 'StatefulSet kv: protected NeverWithdrawn']);
    expect(said('NeverWithdrawn')[0]).toContain('clients use Service kv');
  });

  it.each([
    ['another headless one', /(name: kv, namespace: media}\nspec:\n)/, '$1  clusterIP: None\n', 'protected'],
    ['one for metrics alone', /port: 6379}\]\n$/, 'port: 9121, name: metrics}]\n', 'unprotected'],
  ])('16: what clients have beside it: %s', async (_, from, to, verdict) => {
    const { said, findings } = await auditWith('16-peer-service-not-ready.yaml', [from, to]);
    expect(said('NeverWithdrawn')).toHaveLength(1);
    expect(findings[0]?.verdict).toBe(verdict);
  });

  it('17: OnDelete has no rollout', async () => {
    const { summary } = await audit('17-ondelete-cost.yaml', '--webhook');
    expect(summary).toMatchObject({ rolloutSeconds: 0, drainSeconds: 30 });
  });

  it('29: a budget that is there is not advised', async () => {
    const { rows, said, findings } = await audit('29-pdb-not-read.yaml', '--webhook');
    expect(rows).toEqual(['Deployment one: protected Injected', 'Deployment one: protected DrainRefused']);
    expect(said('DrainRefused')[0]).toContain('PodDisruptionBudget one refuses the eviction');
    expect(findings.map(({ text }) => text).join()).not.toContain('a PodDisruptionBudget');
  });
});

describe.concurrent('what belongs to what', () => {
  it('06: a Rollout by workloadRef has the pods of the Deployment', async () => {
    const { rows } = await audit('06-rollout-workloadref.yaml', '--webhook');
    expect(rows).toEqual([
      'Deployment checkout: skipped NoReplicas',
      'Rollout checkout: unprotected NoOtherEndpoint',
    ]);
    const { plans } = await explain('06-rollout-workloadref.yaml');
    expect(plans.map(({ kind, waitSeconds }) => [kind, waitSeconds])).toEqual([
      ['Deployment', 30],
      ['Rollout', 30],
    ]);
  });

  it('06: a Rollout whose template is a PodTemplate', async () => {
    const text = await readFile(at('06-rollout-workloadref.yaml'), 'utf8');
    const [, rollout = ''] = text.split('---\n');
    const template =
      'apiVersion: v1\nkind: PodTemplate\nmetadata: {name: checkout}\ntemplate: {metadata: {labels: {app: checkout}}, spec: {containers: [{name: app, image: x, ports: [{containerPort: 80}]}]}}\n';
    const stdin = `${rollout.replace('kind: Deployment', 'kind: PodTemplate')}---\n${template}`;
    const { stdout } = await linger(['audit', '-o', 'json', '-'], { stdin });
    const { findings } = JSON.parse(stdout) as AuditReport;
    expect(findings.find(({ kind }) => kind === 'Rollout')).toMatchObject({ reason: 'NotInjected' });
  });

  it('06: a Rollout alone, whose template is elsewhere', async () => {
    const [, rollout = ''] = (await readFile(at('06-rollout-workloadref.yaml'), 'utf8')).split('---\n');
    const { stdout, stderr } = await linger(['audit', '-o', 'json', '-'], { stdin: rollout });
    const { findings } = JSON.parse(stdout) as AuditReport;
    expect(findings).toMatchObject([{ kind: 'Rollout', verdict: 'unknown', reason: 'UnknownKind' }]);
    expect(findings[0]?.text).toContain('template of Deployment checkout (workloadRef)');
    expect(stderr).not.toContain('no Pod or workload');
  });

  it('09: what another object of the input owns is not counted, and not changed', async () => {
    const { rows, stderr } = await audit('09-get-all-export.json', '--webhook');
    expect(rows).toEqual(['Deployment web: unprotected GraceEaten', 'Job mig: skipped Job']);
    expect(stderr).toContain('Pod web-abc-0, Pod web-abc-1, ReplicaSet web-abc and 4 more: left out');
    const text = await readFile(at('09-get-all-export.json'), 'utf8');
    // Without the Deployment's own hook, it is the only one that gets one.
    const stdin = text.replaceAll('preStop', 'postStart');
    const { stdout } = await linger(['inject', '-'], { stdin });
    expect(stdout.match(/linger\.dev\/plan/g)).toHaveLength(1);
  });

  // What kubectl get pods -o yaml exports: their ReplicaSet is not in it.
  it('09: pods whose owner is not among them are not taken for one pod without a controller', async () => {
    const pod = (name: string, owner: string) =>
      `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}, labels: {app: web}${owner}}\nspec: {containers: [{name: a, ports: [{containerPort: 80}], livenessProbe: {tcpSocket: {port: 80}}}]}\n---\n`;
    const budget =
      'apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}\n';
    const audited = async (owner: string) => {
      const stdin = pod('web-1', owner) + pod('web-2', owner) + budget;
      const { rows } = read(await linger(['audit', '--webhook', '-o', 'json', '-'], { stdin }));
      return rows.map((row) => row.split(' ').at(-1));
    };
    const owner =
      ', ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]';
    expect(await audited(owner)).toEqual(['Injected', 'Injected']);
    const bare = ['Injected', 'DrainRefused', 'LivenessRestart'];
    expect(await audited('')).toEqual([...bare, ...bare]);
  });

  const OWNED = 'ownerReferences: [{apiVersion: apps/v1, kind: X, name: x, uid: u, controller: true}]';
  it.each([
    ['a Pod that runs', `metadata: {name: a, ${OWNED}}, spec: SPEC, status: {phase: Running}`, false],
    ['one without its status', `metadata: {name: a, resourceVersion: "1", ${OWNED}}, spec: SPEC`, false],
    ['a Pod as the webhook sees it', `metadata: {name: a, uid: a, ${OWNED}}, spec: SPEC, status: {}`, true],
    ['a Pod of nobody', 'metadata: {name: a}, spec: SPEC, status: {phase: Running}', true],
  ])('09: inject changes no object that a controller in a cluster made: %s', async (_, text, isChanged) => {
    const spec = '{containers: [{name: a, ports: [{containerPort: 80}]}]}';
    const pod = text.replace('SPEC', spec);
    const set = text.replace('SPEC', `{template: {spec: ${spec}}}`);
    for (const stdin of [
      `{apiVersion: v1, kind: Pod, ${pod}}\n`,
      `{apiVersion: apps/v1, kind: ReplicaSet, ${set}}\n`,
    ]) {
      const { code, stdout, stderr } = await linger(['inject', '-'], { stdin });
      expect([code, stdout.includes('linger.dev/plan')]).toEqual([0, isChanged]);
      if (!isChanged)
        expect([stdout, stderr]).toEqual([stdin, expect.stringContaining('controllers made them')]);
    }
  });

  it('08: one name in two files is two workloads', async () => {
    const flags = ['-R', '-f', at('08-same-name-two-files')];
    const { stdout: table } = await linger(['audit', ...flags]);
    expect(table.split('\n').filter((line) => /^unprotected.*\/app\.yaml:1 /.test(line))).toHaveLength(2);
    const { stdout: xml } = await linger(['audit', ...flags, '--webhook', '-o', 'junit']);
    expect(xml).toContain('tests="2" failures="1"');
    expect(xml.match(/<failure /g)).toHaveLength(1);
    expect(xml.match(/ file="[^"]*(dev|prod)\/app\.yaml"/g)).toHaveLength(2);
  });
});

it('08: one name twice in a line of JSON is two workloads, too', async () => {
  const web = (container: object) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web' },
    spec: { replicas: 2, template: { spec: { containers: [{ name: 'app', image: 'x', ...container }] } } },
  });
  const greedy = web({ lifecycle: { preStop: { exec: { command: ['sleep', '60'] } } } });
  const stdin = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [web({}), greedy] });
  const { stdout } = await linger(['audit', '--webhook', '-o', 'junit', '-'], { stdin });
  expect(stdout).toContain('tests="2" failures="1"');
  expect(stdout.match(/<failure message="GraceEaten"/g)).toHaveLength(1);
});

const LEADING = [
  ...['ingress', 'tgb', 'virtualservice', 'ingressroute', 'httpproxy', 'osroute', 'tcproute', 'nodeport'],
  ...['neg', 'mirror'],
];

it('11: whatever leads traffic to a Service', async () => {
  const { findings } = await audit('11-routes-not-seen.yaml');
  const named = findings.filter(({ reason }) => reason === 'UndeclaredConsumer').map(({ name }) => name);
  expect(named).toEqual(LEADING);
});

it('11: in the group that Traefik had before, too', async () => {
  const text = await readFile(at('11-routes-not-seen.yaml'), 'utf8');
  const stdin = text.replaceAll('traefik.io/v1alpha1', 'traefik.containo.us/v1alpha1');
  const { stdout } = await linger(['audit', '-o', 'json', '-'], { stdin });
  const { findings } = JSON.parse(stdout) as AuditReport;
  const said = findings.find(
    ({ name, reason }) => name === 'ingressroute' && reason === 'UndeclaredConsumer',
  );
  expect(said?.text).toContain('IngressRoute default/ingressroute');
});

describe.concurrent('what cannot be read is never absent', () => {
  it.each(['explain', 'audit', 'inject'])(
    '18: %s names a Service with an unreadable selector',
    async (verb) => {
      const { code, stdout, stderr } = await linger([verb, '-f', at('18-unreadable-service.yaml')]);
      expect([code, stdout]).toEqual([1, expect.not.stringContaining('NotServing')]);
      expect(stderr).toMatch(/Service a: spec\.selector .*matchLabels/);
      expect(stderr).toMatch(/Service b: spec\.selector .*version \(1\)/);
    },
  );

  it.each([
    ['selector', 'metadata: {name: bad}\nspec: {selector: [app]}', 'Service bad: spec.selector is not a map'],
    ['spec', 'metadata: {name: bad}\nspec: none', 'Service bad: spec is not an object'],
    ['name', 'metadata: {name: 80}\nspec: {selector: {app: x}}', 'Service 80: metadata.name is not a string'],
  ])(
    '18: nor is one with an unreadable %s beside others, among manifests or policies',
    async (_, bad, said) => {
      const other = 'metadata: {name: other}\nspec: {selector: {app: other}}';
      const services = [other, bad].map((each) => `apiVersion: v1\nkind: Service\n${each}\n`).join('---\n');
      const stdin = 'apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n';
      const explained = await linger(['explain', '-'], { stdin: `${services}---\n${stdin}` });
      expect([explained.code, explained.stderr]).toEqual([1, expect.stringContaining(said)]);
      // The third can be read but for its name.
      expect(explained.stdout).toContain(bad.includes('80') ? 'NotServing' : 'wait     30s');
      const file = join(await emptyDirectory(atEnd), 'services.yaml');
      await writeFile(file, services);
      const isNamed = !bad.includes('80');
      for (const args of [
        ['check', file],
        ['explain', '--policies', file, '-'],
      ]) {
        const { code, stdout, stderr } = await linger(args, { stdin });
        expect(code).toBe(isNamed ? 1 : 0);
        if (isNamed) expect(stdout + stderr).toContain('Service/default/bad: spec.selector cannot be read');
      }
    },
  );

  it.each([
    ['ports: [{containerPort: "8080"}]', 'ports[0].containerPort: expected a whole number, got string 8080'],
    ['env: [{name: A}, {name: PORT, value: 8080}]', 'env[1].value: expected a string, got number 8080'],
    ['env: [{name: DEBUG, value: true}]', 'env[0].value: expected a string, got boolean true'],
    ['args: [--port, 8080]', 'args: expected a list of strings, got number 8080'],
    ['command: run', 'command: expected a list of strings, got string run'],
    ['image: 1.25', 'image: expected a string, got number 1.25'],
  ])('19: nor what kubectl refuses in a container: %s', async (member, text) => {
    const pod = `{spec: {containers: [{name: a}, {name: b, ${member}}]}}`;
    const stdin = `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: ${pod}}\n`;
    const { findings } = read(await linger(['audit', '--webhook', '-o', 'json', '-'], { stdin }));
    expect(findings).toMatchObject([{ verdict: 'unknown', reason: 'InvalidObject' }]);
    expect(findings[0]?.text).toContain(`spec.template.spec.containers[1].${text}`);
  });

  it('18: its pods wait', async () => {
    const { plans } = await explain('18-unreadable-service.yaml');
    expect(plans.map(({ waitSeconds }) => waitSeconds)).toEqual([30, 30]);
  });

  it('19: labels that are not strings are named', async () => {
    const { plans } = await explain('19-numeric-label.yaml');
    const text = expect.stringMatching(/replica \(1\), commit \(1234567\)/) as string;
    expect(plans).toMatchObject([{ reason: 'InvalidPod', notes: [{ code: 'UnreadablePod', text }] }]);
    expect((await audit('19-numeric-label.yaml')).said('InvalidPod')).toEqual([text]);
  });

  it.each([
    [
      'metadata: {name: a, annotations: {port: 9090}}',
      '',
      'metadata.annotations: expected a map of strings, got port (9090)',
    ],
    ['', 'name: 8080', 'spec.containers[0].name: expected a string'],
    ['', 'name: app, ports: {containerPort: 80}', 'spec.containers[0].ports: expected a list'],
    ['', 'name: app, readinessProbe: none', 'spec.containers[0].readinessProbe: expected an object'],
    [
      '',
      'name: app, lifecycle: {preStop: [sleep]}',
      'spec.containers[0].lifecycle.preStop: expected an object',
    ],
  ])('19: nor is any other member passed over: %s %s', async (metadata, container, said) => {
    const object = metadata || 'metadata: {name: a}';
    const stdin = `apiVersion: v1\nkind: Pod\n${object}\nspec: {containers: [{${container || 'name: app'}}]}\n`;
    const { stdout } = await linger(['audit', '-o', 'json', '-'], { stdin });
    expect((JSON.parse(stdout) as AuditReport).findings[0]?.text).toContain(said);
  });

  it('20: fields where they have no effect', async () => {
    const { said, findings } = await audit('20-misplaced-grace.yaml');
    expect(findings.filter(({ reason }) => reason === 'FieldMisplaced').map(({ name }) => name)).toEqual([
      'web',
      'gateway',
      'zk',
    ]);
    expect(said('FieldMisplaced')).toEqual([
      'spec.template.spec.lifecycle has no effect: it belongs in each container',
      'spec.template.spec.containers[0].terminationGracePeriodSeconds, spec.template.spec.containers[1].terminationGracePeriodSeconds has no effect: it belongs in the spec of the pod',
      'spec.terminationGracePeriodSeconds has no effect: it belongs in the spec of the pod',
    ]);
    const { plans } = await explain('20-misplaced-grace.yaml');
    expect(plans.every((plan) => codes(plan).includes('FieldMisplaced'))).toBe(true);
  });

  it.each([
    [
      '      lifecycle:',
      '      terminationGracePeriod: 120\n      lifecycle:',
      'it is spelt terminationGracePeriodSeconds',
    ],
    [
      '    metadata: {labels: {app: web}}',
      '    metadata: {labels: {app: web}, terminationGracePeriodSeconds: 120}',
      'spec.template.metadata.terminationGracePeriodSeconds has no effect',
    ],
  ])('20: %s → %s', async (from, to, text) => {
    const { said } = await auditWith('20-misplaced-grace.yaml', [from, to]);
    expect(said('FieldMisplaced')[0]).toContain(text);
  });

  it.each([
    ['', undefined],
    [
      ', terminationGracePeriodSeconds: 60',
      'spec.predictor.containers[0].terminationGracePeriodSeconds has no effect: it belongs in the spec of the pod',
    ],
  ])('20: in an object that is the spec of a pod, beside fields of its own%s', async (container, text) => {
    const stdin = `apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: a}\nspec: {predictor: {replicas: 2, terminationGracePeriodSeconds: 120, containers: [{name: a, image: a, lifecycle: {preStop: {exec: {command: [sleep, "15"]}}}${container}}]}}\n`;
    const { said } = read(await linger(['audit', '-o', 'json', '-'], { stdin }));
    expect(said('FieldMisplaced')).toEqual(text === undefined ? [] : [text]);
  });

  it('20: all of them, where there are several', async () => {
    const text = await readFile(at('20-misplaced-grace.yaml'), 'utf8');
    const stdin = text.replace(/^( +)lifecycle:/m, '$1terminationGracePeriodseconds: 5\n$&');
    const { stdout } = await linger(['audit', '-o', 'json', '-'], { stdin });
    const { findings } = JSON.parse(stdout) as AuditReport;
    expect(findings.find(({ reason }) => reason === 'FieldMisplaced')?.text).toBe(
      'spec.template.spec.terminationGracePeriodseconds has no effect: it is spelt terminationGracePeriodSeconds; spec.template.spec.lifecycle has no effect: it belongs in each container',
    );
  });

  it.each(['explain', 'inject', 'audit'])('21: %s names API versions that are gone', async (verb) => {
    const { stderr } = await linger([verb, '-f', at('21-old-api-group.yaml')]);
    expect(stderr).toContain('Deployment old: Kubernetes no longer serves apps/v1beta1: write apps/v1');
    expect(stderr).toContain('StatefulSet old-sts: Kubernetes no longer serves apps/v1beta2: write apps/v1');
    expect(stderr).toContain('CronJob cron: Kubernetes no longer serves batch/v1beta1: write batch/v1');
  });

  it('21: audit counts their workloads as unknown, so that a gate sees them', async () => {
    const { code, stdout } = await linger([
      'audit',
      '-f',
      at('21-old-api-group.yaml'),
      '--fail-on',
      'unknown',
    ]);
    expect(code).toBe(3);
    expect(stdout).toContain('3 unknown');
  });

  it('21: and leaves them unchanged', async () => {
    const { stdout } = await linger(['inject', '-f', at('21-old-api-group.yaml')]);
    expect(stdout).toBe(await readFile(at('21-old-api-group.yaml'), 'utf8'));
  });

  it('22: of a kind that it does not know, what the webhook does with its pods', async () => {
    const { plans, stderr } = await explain('22-deploymentconfig.yaml');
    expect(plans).toMatchObject([{ kind: 'DeploymentConfig', name: 'shop', waitSeconds: 30 }]);
    expect(plans.flatMap(codes)).toContain('UnknownKind');
    expect(stderr).not.toContain('left unchanged');
    const { rows, code } = await audit('22-deploymentconfig.yaml', '--fail-on', 'unknown');
    expect([code, rows]).toEqual([3, ['DeploymentConfig shop: unknown UnknownKind']]);
    const injected = await linger(['inject', '-f', at('22-deploymentconfig.yaml')]);
    expect(injected.stdout).toBe(await readFile(at('22-deploymentconfig.yaml'), 'utf8'));
    expect(injected.stderr).toContain('is not a kind that Linger knows; left unchanged');
  });

  it('24: what is left unchanged is not announced, and the exit code says so', async () => {
    const { code, stdout, stderr } = await linger(['inject', '-f', at('24-anchored-inject.yaml')]);
    expect([code, stdout]).toEqual([1, await readFile(at('24-anchored-inject.yaml'), 'utf8')]);
    expect(stderr).toContain('left unchanged');
    expect(stderr).not.toContain('wait 30s');
  });
});

describe('07: a kustomization', () => {
  const flags = ['-R', '-f', at('07-kustomize')];
  const nowhere = { env: { PATH: '/nowhere' } };

  it.each(['explain', 'audit', 'inject'])('%s refuses it where nothing builds it', async (verb) => {
    const { code, stdout, stderr } = await shipped([verb, ...flags], nowhere);
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining(`kubectl kustomize ${at('07-kustomize/overlays/prod')}`),
    ]);
    expect(stdout).not.toContain('api');
  });

  it.each(['base/deployment.yaml', 'overlays/prod/drain.yaml'])(
    'nor is one of its files changed where it is named: %s',
    async (file) => {
      const folder = join(await emptyDirectory(atEnd), 'k');
      await cp(at('07-kustomize'), folder, { recursive: true });
      const { code, stderr } = await linger(['inject', '--in-place', join(folder, file)]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('is a kustomization')]);
      expect(await readFile(join(folder, file), 'utf8')).toBe(
        await readFile(at(`07-kustomize/${file}`), 'utf8'),
      );
    },
  );

  it('its files are never changed', async () => {
    const folder = join(await emptyDirectory(atEnd), 'k');
    await cp(at('07-kustomize'), folder, { recursive: true });
    const { code, stderr } = await linger(['inject', '--in-place', '-R', '-f', folder]);
    expect([code, stderr]).toEqual([1, expect.stringContaining('render it first')]);
    for (const file of ['base/deployment.yaml', 'overlays/prod/drain.yaml'])
      expect(await readFile(join(folder, file), 'utf8')).toBe(
        await readFile(at(`07-kustomize/${file}`), 'utf8'),
      );
  });
});
