import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Script } from 'node:vm';
import jsonPatch from 'fast-json-patch';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { type Kind, pluralOf, WORKLOAD_KINDS } from '../../src/audit/index.ts';
import { changersOf } from '../../src/check/index.ts';
import { VERBS } from '../../src/cli/commands.ts';
import type { ApiReader } from '../../src/cluster/index.ts';
import { ROUTING_KINDS, SENDER_KINDS } from '../../src/core/discovery/index.ts';
import { RELATED_KINDS } from '../../src/core/judge/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { emptyDirectory, ROOT } from '../cli/linger.ts';

interface Expression {
  readonly key: string;
  readonly operator: string;
  readonly values: readonly string[];
}
interface Rendered {
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Record<string, string>;
  };
  readonly webhooks?: readonly {
    readonly clientConfig: { readonly service: { readonly namespace: string } };
    readonly namespaceSelector: { readonly matchExpressions: readonly Expression[] };
  }[];
  readonly subjects?: readonly { readonly namespace: string }[];
}

const objectsIn = (text: string) => parseAllDocuments(text).map((document) => document.toJS() as Rendered);

/** Whether the webhook is asked about pods of a namespace with these labels. */
function isSent(webhook: Rendered | undefined, labels: Readonly<Record<string, string>>): boolean {
  const [hook] = webhook?.webhooks ?? [];
  if (hook === undefined) throw new Error('expected a webhook');
  return hook.namespaceSelector.matchExpressions.every(({ key, operator, values }) => {
    if (operator !== 'NotIn') throw new Error(`expected NotIn, got ${operator}`);
    return !values.includes(labels[key] ?? '');
  });
}

/** The manifests of deploy/, without those that stand in no kustomization. */
async function written(): Promise<readonly Rendered[]> {
  const files = (await readdir(join(ROOT, 'deploy'))).filter((name) => name.endsWith('.yaml'));
  const texts = files.map((name) => readFile(join(ROOT, 'deploy', name), 'utf8'));
  return (await Promise.all(texts)).flatMap(objectsIn);
}

const labelsOf = (objects: readonly Rendered[]) => {
  const own = objects.find(({ kind }) => kind === 'Namespace');
  return { ...own?.metadata.labels, 'kubernetes.io/metadata.name': own?.metadata.name ?? '' };
};
const webhookOf = (objects: readonly Rendered[]) =>
  objects.find(({ kind }) => kind === 'MutatingWebhookConfiguration');

describe('the webhook leaves out the pods of Linger', () => {
  it('by a label of their namespace, and takes those of others', async () => {
    const objects = await written();
    expect(isSent(webhookOf(objects), labelsOf(objects))).toBe(false);
    expect(isSent(webhookOf(objects), { 'kubernetes.io/metadata.name': 'shop' })).toBe(true);
    expect(isSent(webhookOf(objects), { 'kubernetes.io/metadata.name': 'kube-system' })).toBe(false);
  });

  const kustomize = spawnSync('kubectl', ['kustomize', '--help']).status === 0;
  it.runIf(kustomize)('also where it is installed in another namespace', async () => {
    const directory = await emptyDirectory();
    await cp(join(ROOT, 'deploy'), directory, { recursive: true });
    const file = join(directory, 'kustomization.yaml');
    await writeFile(
      file,
      (await readFile(file, 'utf8')).replace('namespace: linger', 'namespace: elsewhere'),
    );
    const { status, stdout, stderr } = spawnSync('kubectl', ['kustomize', directory], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
    const objects = objectsIn(stdout);

    expect(labelsOf(objects)).toMatchObject({ 'kubernetes.io/metadata.name': 'elsewhere' });
    expect(isSent(webhookOf(objects), labelsOf(objects))).toBe(false);
    const [webhook] = webhookOf(objects)?.webhooks ?? [];
    const named = objects.flatMap(({ metadata, subjects = [] }) => [metadata, ...subjects]);
    const namespaces = named.flatMap(({ namespace }) => namespace ?? []);
    expect(new Set([...namespaces, webhook?.clientConfig.service.namespace])).toEqual(new Set(['elsewhere']));
    await rm(directory, { recursive: true });
  });
});

it('failing closed adds conditions, and the chart the same ones', async () => {
  const at = (file: string) => readFile(join(ROOT, 'deploy', file), 'utf8');
  type Closed = {
    webhooks: { failurePolicy: string; matchConditions: { name: string; expression: string }[] }[];
  };
  const closed = parse(await at('webhook.yaml')) as Closed;
  jsonPatch.applyPatch(closed, parse(await at('fail-closed/webhook.yaml')), true);
  const [webhook] = closed.webhooks;
  expect(webhook?.failurePolicy).toBe('Fail');
  expect(webhook?.matchConditions.map(({ name }) => name)).toEqual([
    'restart-policy-always',
    'no-mirror-pod',
    'not-of-a-daemonset',
    'not-system-critical',
  ]);
  const template = await at('chart/templates/webhook.yaml');
  for (const { name, expression } of webhook?.matchConditions ?? [])
    expect(template).toContain(`      - name: ${name}\n        expression: "${expression}"\n`);
});

it('the webhook asks about every pod with a container that runs as long as it does', async () => {
  const { webhooks } = parse(await readFile(join(ROOT, 'deploy', 'webhook.yaml'), 'utf8')) as {
    webhooks: { matchConditions: { name: string; expression: string }[] }[];
  };
  const [condition] = webhooks[0]?.matchConditions ?? [];
  expect(condition?.name).toBe('restart-policy-always');
  // What CEL and JavaScript write differently.
  const expression = (condition?.expression ?? '')
    .replaceAll(/has\(([\w.]+)\)/g, "(typeof $1 !== 'undefined')")
    .replace(/\.exists\((\w+), /, '.some(($1) => ');
  const asked = new Script(expression);
  const asks = (restartPolicy: string | undefined, ...own: readonly (string | undefined)[]) => {
    const containers = own.map((each) => ({ restartPolicy: each }));
    return asked.runInNewContext({ object: { spec: { restartPolicy, containers } } }) as boolean;
  };
  for (const [of, ...own] of [
    ['Always', undefined],
    ['Always', 'Never'],
    [undefined, undefined],
    ['Never', undefined, 'Always'],
  ])
    expect([of, own, asks(of, ...own)]).toEqual([of, own, true]);
  for (const [of, ...own] of [
    ['Never', undefined],
    ['OnFailure', 'Never', 'OnFailure'],
  ])
    expect([of, own, asks(of, ...own)]).toEqual([of, own, false]);
});

describe('the NetworkPolicy', () => {
  interface Policy {
    readonly spec: {
      readonly podSelector: { readonly matchLabels: Record<string, string> };
      readonly ingress: readonly {
        readonly ports: readonly { port: number }[];
        readonly from?: readonly object[];
      }[];
      readonly egress: readonly {
        readonly to?: readonly object[];
        readonly ports: readonly { port: number; protocol?: string }[];
      }[];
    };
  }
  const policyOf = (text: string) => (parse(text) as Policy).spec;
  const ingressOf = (text: string) =>
    policyOf(text).ingress.map(({ ports, from = [] }) => [
      ports.map(({ port }) => port).join(),
      from.flatMap((each) => Object.keys(each)).join() || 'all',
    ]);
  const file = join(ROOT, 'deploy', 'networkpolicy.yaml');

  it('selects only the replicas, and allows only their ports', async () => {
    const text = await readFile(file, 'utf8');
    const own = (await written()).find(
      ({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'linger',
    );
    const { template } = (own as unknown as { spec: { template: { metadata: { labels: object } } } }).spec;
    expect(template.metadata.labels).toMatchObject(policyOf(text).podSelector.matchLabels);
    expect(ingressOf(text)).toEqual([
      ['8443', 'all'],
      ['8080', 'all'],
      ['8081', 'all'],
      ['8445', 'all'],
    ]);
  });

  it('restricts the webhook’s port once the lines with `from` are no comments any more', async () => {
    const text = await readFile(file, 'utf8');
    const uncommented = text.replace(/^( +)# (?!For )/gm, '$1');
    expect(ingressOf(uncommented)).toEqual([
      ['8443', 'ipBlock,namespaceSelector'],
      ['8080', 'ipBlock,namespaceSelector'],
      ['8081', 'all'],
      ['8445', 'all'],
    ]);
    expect(policyOf(uncommented).egress.at(-1)?.ports).toEqual([{ port: 80 }]);
  });

  it('opens, as it is, what Linger calls wherever it runs', async () => {
    const { egress } = policyOf(await readFile(file, 'utf8'));
    const { canaryPort, holdPort } = VERBS.serve.flags;
    const { port: timers } = VERBS['node-timer'].flags;
    const open = (to: boolean) =>
      egress
        .filter((rule) => (rule.to !== undefined) === to)
        .flatMap(({ ports }) => ports.map(({ port, protocol = 'TCP' }) => `${port}/${protocol}`));
    // The resolver of src/measurement/cluster-dns/dns.ts asks the servers of resolv.conf, whose port is always this one: over UDP, and
    // over TCP where an answer is too long.
    expect(open(false).toSorted()).toEqual(['443/TCP', '53/TCP', '53/UDP', '6443/TCP']);
    // Ports of other replicas (the canary's, and the Hold Service's, to which calls are relayed) and of node timers.
    expect(open(true)).toEqual([canaryPort, holdPort, timers].map(({ fallback }) => `${fallback}/TCP`));
  });
});

it('pods run on Linux nodes alone: the image is for no other', async () => {
  type Workload = { spec: { template: { spec: { nodeSelector?: Record<string, string> } } } };
  const workloads = (await written()).filter(({ kind }) => ['Deployment', 'DaemonSet'].includes(kind));
  const selectors = workloads.map(
    (workload) => (workload as unknown as Workload).spec.template.spec.nodeSelector,
  );
  const linux = { 'kubernetes.io/os': 'linux' };
  expect(selectors).toEqual([linux, linux]);
  const values = parse(await readFile(join(ROOT, 'deploy', 'chart', 'values.yaml'), 'utf8')) as object;
  expect(values).toMatchObject({ nodeSelector: linux });
});

describe('rights', () => {
  const files = readdirSync(join(ROOT, 'deploy')).filter((name) => /^(rbac|role)[\w-]*\.yaml$/.test(name));

  it.each(files)('%s: each rule says why, beside it, or above a role that has one', async (file) => {
    const documents = (await readFile(join(ROOT, 'deploy', file), 'utf8')).split(/^---$/m);
    for (const text of documents.filter((each) => /^kind: (Cluster)?Role$/m.test(each))) {
      const lines = text.split('\n');
      const rules = lines.flatMap((line, index) => (/^ {2}- apiGroups:/.test(line) ? [index] : []));
      expect(rules).not.toEqual([]);
      const unsaid = rules.filter((at) => !/^ {2}#/.test(lines[at - 1] ?? ''));
      // That of the first may stand above the role, or at each of its resources.
      const first = /^ *#/m.test(text) ? rules.slice(0, 1) : [];
      expect(unsaid.filter((at) => !first.includes(at)).map((at) => lines[at + 1])).toEqual([]);
    }
  });

  interface Rule {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly resourceNames?: readonly string[];
    readonly verbs: readonly string[];
  }
  const rulesOf = async (role: string) => {
    const documents = parseAllDocuments(await readFile(join(ROOT, 'deploy', 'rbac-view.yaml'), 'utf8'));
    const roles = documents.map((each) => each.toJS() as Rendered & { rules: readonly Rule[] });
    return roles.find(({ metadata }) => metadata.name === role)?.rules ?? [];
  };
  const allows = (rules: readonly Rule[], verb: string, group: string, resource: string, name?: string) =>
    rules.some(
      ({ apiGroups, resources, resourceNames, verbs }) =>
        apiGroups.includes(group) &&
        resources.includes(resource) &&
        verbs.includes(verb) &&
        (resourceNames === undefined || (name !== undefined && resourceNames.includes(name))),
    );
  /** Cluster-scoped kinds: a RoleBinding grants no access to their objects. */
  const OF_CLUSTERS = [
    ...['Namespace', 'IngressClass', 'GatewayClass', 'DiscoveryConsumer', 'NodePool'],
    'CiliumClusterwideEnvoyConfig',
  ];
  /** Kinds that are read in other namespaces, too: an audit of one namespace does without them. */
  const OF_OTHERS = ['Gateway', 'ReferenceGrant'];

  it.each<[string, readonly string[]]>([
    ['linger-view', []],
    ['linger-view-namespace', [...OF_CLUSTERS, ...OF_OTHERS]],
  ])('%s lets people list all that audits, discovery and watches read', async (role, without) => {
    const rules = await rulesOf(role);
    const kinds: readonly Kind[] = [
      ...[...WORKLOAD_KINDS, ...RELATED_KINDS, ...ROUTING_KINDS, ...SENDER_KINDS],
      { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice' },
      { apiVersion: 'v1', kind: 'Endpoints', plural: 'endpoints' },
    ];
    const wanted = kinds.filter(({ kind }) => !without.includes(kind));
    const denied = wanted.filter((each) => {
      const [group = ''] = each.apiVersion.includes('/') ? each.apiVersion.split('/') : [];
      return !allows(rules, 'list', group, pluralOf(each));
    });
    expect(denied).toEqual([]);
    const watched = [
      ['', 'pods'],
      ['', 'services'],
      ['', 'endpoints'],
      ['discovery.k8s.io', 'endpointslices'],
    ] as const;
    for (const [group, resource] of watched) expect(allows(rules, 'watch', group, resource)).toBe(true);
  });

  it('linger-view lets people get all that replicas publish, and see where the helper is', async () => {
    const rules = await rulesOf('linger-view');
    const replicas = await readFile(join(ROOT, 'deploy', 'role-publish.yaml'), 'utf8');
    const published = new Set(
      replicas.match(/\blinger-(planned|consumers|shortfalls|floor|history(-\d)?)\b/g),
    );
    expect(published.size).toBe(12);
    for (const name of published)
      expect([name, allows(rules, 'get', '', 'configmaps', name)]).toEqual([name, true]);
    expect(allows(rules, 'list', '', 'configmaps', readHelperObject().name)).toBe(true);
    for (const resource of ['mutatingadmissionpolicies', 'mutatingadmissionpolicybindings'])
      expect(allows(rules, 'get', 'admissionregistration.k8s.io', resource, 'linger-floor')).toBe(true);
  });

  it('linger-view lets people list the policies that may take hooks or cut graces', async () => {
    const rules = await rulesOf('linger-view');
    const listed: string[] = [];
    const list = ({ path }: { path: string }) => {
      listed.push(path);
      // Without webhooks, none is known not to be there.
      const isPolicy = !path.endsWith('/mutatingwebhookconfigurations');
      return Promise.resolve(
        isPolicy ? [{ metadata: { name: 'any' }, spec: { mutations: 'lifecycle' } }] : [],
      );
    };
    const reader = { list, json: () => Promise.reject(new Error('no')) } as unknown as ApiReader;
    await changersOf({ sent: {}, returned: {}, namespace: 'shop', taken: 'hook' }, reader);
    for (const plural of ['mutatingadmissionpolicybindings', 'clusterpolicies', 'modifyset'])
      expect(listed.some((path) => path.endsWith(`/${plural}`))).toBe(true);
    const denied = listed.filter((path) => {
      const [, , group = '', , plural = ''] = path.split('/');
      return !allows(rules, 'list', group, plural);
    });
    expect(denied).toEqual([]);
  });

  it.each(files)('%s: no wildcard, and Secrets by name', async (file) => {
    const text = await readFile(join(ROOT, 'deploy', file), 'utf8');
    expect(text.replaceAll(/#.*$/gm, '')).not.toContain('*');
    for (const document of parseAllDocuments(text)) {
      const { kind, rules = [] } = document.toJS() as {
        kind: string;
        rules?: { resources: string[]; resourceNames?: string[] }[];
      };
      for (const { resources, resourceNames } of rules.filter((rule) => rule.resources.includes('secrets')))
        expect([kind, resources, resourceNames]).toEqual(['Role', ['secrets'], ['linger-certificates']]);
    }
  });
});
