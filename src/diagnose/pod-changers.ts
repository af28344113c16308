import {
  ANNOTATION,
  isRecord,
  isSelected,
  isString,
  jsonIn,
  type Labels,
  listOf,
  memberAt,
  NO_LABELS,
  recordsAt,
} from '../api/index.ts';
import type { RawObject } from '../cluster/index.ts';
import type { ApiReader, Json } from './api-reader.ts';

/** What others take from a pod that Linger has changed. */
export type Taken = 'hook' | 'grace';

/** The names by which policies and patches mean it. */
const MEANT: Readonly<Record<Taken, RegExp>> = {
  hook: /lifecycle|preStop/,
  grace: /terminationGracePeriodSeconds/,
};

const MUTATING_POLICY = 'MutatingAdmissionPolicy';

const inEachVersion = (group: string, plural: string) =>
  ['v1', 'v1beta1', 'v1alpha1'].map((version) => `/apis/${group}/${version}/${plural}`);

/** How the names of the webhooks begin that act for a kind; undefined: the API server itself does. */
type ActsBy = string | undefined;

/** Kinds whose objects change pods, and where they may be served; a cluster may serve none of them. */
const POLICY_KINDS: readonly (readonly [kind: string, by: ActsBy, ...paths: readonly string[]])[] = [
  [MUTATING_POLICY, undefined, ...inEachVersion('admissionregistration.k8s.io', 'mutatingadmissionpolicies')],
  ['ClusterPolicy', 'mutate.kyverno.svc', '/apis/kyverno.io/v1/clusterpolicies'],
  ['Policy', 'mutate.kyverno.svc', '/apis/kyverno.io/v1/policies'],
  ['MutatingPolicy', 'mpol.', ...inEachVersion('policies.kyverno.io', 'mutatingpolicies')],
  [
    'NamespacedMutatingPolicy',
    'nmpol.',
    ...inEachVersion('policies.kyverno.io', 'namespacedmutatingpolicies'),
  ],
  ['Assign', 'mutation.gatekeeper.sh', '/apis/mutations.gatekeeper.sh/v1/assign'],
  ['ModifySet', 'mutation.gatekeeper.sh', '/apis/mutations.gatekeeper.sh/v1/modifyset'],
];

/** Older versions of Kyverno write on each pod which of its rules changed what: `rule.policy.kyverno.io: replaced /spec/…`. */
const KYVERNO_PATCHES = 'policies.kyverno.io/last-applied-patches';
const WEBHOOKS = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';
const LINGER_WEBHOOK = 'pods.linger.dev';
const MOST = 500;

interface Trial {
  /** As it was sent, and as it came back from admission. */
  readonly sent: unknown;
  readonly returned: unknown;
  readonly namespace: string;
  readonly taken: Taken;
}

type Listed = RawObject & Json;

/**
 * What took the hook or cut the grace of a pod, by a dry run: the rules that the pod itself names; else the policies that
 * name the field; else the webhook whose own answer to this pod says so; else all webhooks that are called for it. What may not be
 * listed or asked is left out. Empty: not known. Undefined: only what is asked before Linger and not again; it undoes nothing,
 * since Linger goes by what it leaves.
 */
export async function changersOf(trial: Trial, reader: ApiReader): Promise<readonly string[] | undefined> {
  const meant = MEANT[trial.taken];
  const patches = memberAt(trial.returned, ['metadata', 'annotations', KYVERNO_PATCHES]);
  const rules = isString(patches) ? patches.split('\n').filter((line) => meant.test(line)) : [];
  if (rules.length > 0) return rules.map((line) => `Kyverno ${line.split(': ')[0]}`);
  const list = (path: string) =>
    reader.list({ path, project: (raw: RawObject) => raw as Listed }, MOST).catch(() => []);
  const webhooks = webhooksIn(await list(WEBHOOKS));
  const labels = labelsOf(await reader.json(`/api/v1/namespaces/${trial.namespace}`).catch(() => undefined));
  const policies = await policiesNaming(trial, labels, webhooks, list);
  const later = [...policies].filter(([, followsLinger]) => followsLinger).map(([name]) => name);
  if (later.length > 0) return later;
  const earlier = policies.size > 0;
  const called = webhooks.filter(({ webhook }) => isCalledFor(webhook, labels, trial.sent));
  const following = called.filter(({ followsLinger }) => followsLinger);
  const takers: OtherWebhook[] = [];
  for (const each of earlier || following.length === 0 ? following : called)
    if (await takes(each.webhook, trial, reader)) takers.push(each);
  const undoing = takers.filter(({ followsLinger }) => followsLinger);
  const isExplained = earlier || takers.length > 0 || (called.length > 0 && following.length === 0);
  if (undoing.length === 0 && isExplained) return undefined;
  return [...new Set((undoing.length > 0 ? undoing : following).map(({ name }) => name))];
}

/** The policies that change the field for this pod, and whether each is, or may be, asked about what Linger has done. */
async function policiesNaming(
  trial: Trial,
  labels: Labels,
  webhooks: readonly OtherWebhook[],
  list: (path: string) => Promise<readonly Listed[]>,
): Promise<ReadonlyMap<string, boolean>> {
  const found = new Map<string, boolean>();
  const meant = MEANT[trial.taken];
  for (const [kind, by, ...paths] of POLICY_KINDS) {
    const acting = by === undefined ? [] : webhooks.filter(({ webhook }) => startsWith(webhook.name, by));
    const isLater = acting.length === 0 || acting.some((each) => each.followsLinger);
    for (const path of paths) {
      const naming = (await list(path)).filter(
        ({ metadata, spec }) =>
          [undefined, trial.namespace].includes(metadata.namespace) &&
          meant.test(JSON.stringify(mutationsOf(spec, trial, labels))),
      );
      if (by !== undefined) for (const { metadata } of naming) found.set(`${kind} ${metadata.name}`, isLater);
      // The API server's own come before all webhooks; without a binding, they do nothing.
      else
        for (const { metadata, spec } of await boundOf(naming, path, list))
          found.set(`${kind} ${metadata.name}`, isAskedAgain(spec));
    }
  }
  return found;
}

/** @param path of the policies */
async function boundOf(
  policies: readonly Listed[],
  path: string,
  list: (path: string) => Promise<readonly Listed[]>,
): Promise<readonly Listed[]> {
  const bindings = policies.length === 0 ? [] : await list(path.replace(/ies$/, 'ybindings'));
  const bound = new Set(bindings.map(({ spec }) => memberAt(spec, ['policyName'])));
  return policies.filter(({ metadata }) => bound.has(metadata.name));
}

interface OtherWebhook {
  /** Of its configuration. */
  readonly name: string;
  readonly webhook: Json;
  /** Whether it is, or may be, asked about what Linger has done. */
  readonly followsLinger: boolean;
}

/** All but Linger's own. */
function webhooksIn(configurations: readonly Listed[]): readonly OtherWebhook[] {
  const has = ({ webhooks }: Listed) => recordsAt(webhooks).some(({ name }) => name === LINGER_WEBHOOK);
  const own = configurations.find(has)?.metadata.name ?? 'linger';
  return configurations.flatMap(({ metadata, webhooks }) =>
    recordsAt(webhooks)
      .filter(({ name }) => name !== LINGER_WEBHOOK)
      .map((webhook) => ({
        name: `MutatingWebhookConfiguration ${metadata.name}`,
        webhook,
        // In the order of their configurations' names; see pod-webhooks.ts.
        followsLinger: metadata.name > own || isAskedAgain(webhook),
      })),
  );
}

const isAskedAgain = (of: unknown) => memberAt(of, ['reinvocationPolicy']) === 'IfNeeded';
const startsWith = (name: unknown, start: string) => isString(name) && name.startsWith(start);

/** What a policy changes of this pod: the rules of Kyverno's older kinds may also validate or generate. */
function mutationsOf(spec: unknown, { namespace, sent }: Trial, labels: Labels): unknown {
  const rules = memberAt(spec, ['rules']);
  if (rules !== undefined)
    return recordsAt(rules)
      .filter(
        (rule) => !sparesPlans(rule.exclude, rule.preconditions) && isForNamespace(rule.match, namespace),
      )
      .map(({ mutate }) => mutate ?? {});
  const { matchConstraints, matchConditions, match } = isRecord(spec) ? spec : {};
  const isSpared =
    sparesPlans(matchConditions) ||
    !isForNamespace(match, namespace) ||
    (isRecord(matchConstraints) && !isSelected(matchConstraints, labels, labelsOf(sent)));
  return isSpared ? {} : (spec ?? {});
}

/** As the documentation tells operators to write it. */
const sparesPlans = (...conditions: readonly unknown[]) =>
  JSON.stringify(conditions).includes(ANNOTATION.plan);

/** By the `namespaces` of what Kyverno (any of several, or one) and Gatekeeper match: none is all. */
function isForNamespace(match: unknown, namespace: string): boolean {
  const filters = [...recordsAt(match, 'any'), ...recordsAt(match, 'all')];
  const parts = filters.length > 0 ? filters : [match];
  return parts.some((part) => {
    const names = listOf(memberAt(part, ['resources', 'namespaces']) ?? memberAt(part, ['namespaces']));
    return names.length === 0 || names.some((name) => String(name).includes('*') || name === namespace);
  });
}

/** Whether a webhook's rules include the creation of pods. */
export function isCalledForPods({ rules }: Json): boolean {
  const has = (list: unknown, ...words: string[]) => words.some((word) => listOf(list).includes(word));
  return recordsAt(rules).some(
    ({ apiGroups, resources, operations, scope }) =>
      has(apiGroups, '', '*') &&
      has(resources, 'pods', '*', '*/*') &&
      has(operations, 'CREATE', '*') &&
      scope !== 'Cluster',
  );
}

function isCalledFor(webhook: Json, namespace: Labels, pod: unknown): boolean {
  return isCalledForPods(webhook) && isSelected(webhook, namespace, labelsOf(pod));
}

function labelsOf(object: unknown): Labels {
  const labels = memberAt(object, ['metadata', 'labels']);
  return isRecord(labels) ? (labels as Labels) : NO_LABELS;
}

/** Those that answer a dry run without doing anything. */
const HARMLESS = new Set(['None', 'NoneOnDryRun']);

/** Asks the webhook itself, through the API server's proxy: that takes the right to create services/proxy. */
async function takes(webhook: Json, { sent, namespace, taken }: Trial, reader: ApiReader): Promise<boolean> {
  const { service } = isRecord(webhook.clientConfig) ? webhook.clientConfig : {};
  if (!isRecord(service) || !HARMLESS.has(String(webhook.sideEffects))) return false;
  const { namespace: place, name, path = '', port = 443 } = service;
  const review = {
    apiVersion: 'admission.k8s.io/v1',
    kind: 'AdmissionReview',
    request: {
      uid: 'linger-check',
      kind: { group: '', version: 'v1', kind: 'Pod' },
      resource: { group: '', version: 'v1', resource: 'pods' },
      requestKind: { group: '', version: 'v1', kind: 'Pod' },
      requestResource: { group: '', version: 'v1', resource: 'pods' },
      namespace,
      operation: 'CREATE',
      userInfo: { username: 'linger-check' },
      object: sent,
      oldObject: null,
      dryRun: true,
      options: { apiVersion: 'meta.k8s.io/v1', kind: 'CreateOptions', dryRun: ['All'] },
    },
  };
  const proxied = `/api/v1/namespaces/${String(place)}/services/https:${String(name)}:${String(port)}/proxy${String(path)}`;
  const answer = await reader.post(proxied, review).catch(() => undefined);
  const patch = memberAt(answer?.answer, ['response', 'patch']);
  const operations = isString(patch) ? jsonIn(Buffer.from(patch, 'base64').toString()) : undefined;
  return recordsAt(operations).some((operation) => changes(operation, taken));
}

/** A patch may replace the field or anything that it lies in. */
function changes({ op, path, value }: Json, taken: Taken): boolean {
  if (!isString(path) || op === 'test') return false;
  if (
    taken === 'grace'
      ? path === '/spec/terminationGracePeriodSeconds'
      : /\/(lifecycle|preStop)(\/|$)/.test(path)
  )
    return true;
  return /^(\/spec(\/containers(\/\d+)?)?)?$/.test(path) && op === 'replace' && !keeps(value, taken);
}

/** Whether a new value still has what Linger set; the trial's own hook is a `sleep`. */
function keeps(value: unknown, taken: Taken): boolean {
  return MEANT[taken].test(JSON.stringify(value ?? null));
}
