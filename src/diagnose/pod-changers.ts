import {
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

/** Kinds whose objects change pods, and where they may be served; a cluster may serve none of them. */
const POLICY_KINDS: readonly (readonly [kind: string, ...paths: readonly string[]])[] = [
  [MUTATING_POLICY, ...inEachVersion('admissionregistration.k8s.io', 'mutatingadmissionpolicies')],
  ['ClusterPolicy', '/apis/kyverno.io/v1/clusterpolicies'],
  ['Policy', '/apis/kyverno.io/v1/policies'],
  ['MutatingPolicy', ...inEachVersion('policies.kyverno.io', 'mutatingpolicies')],
  ['NamespacedMutatingPolicy', ...inEachVersion('policies.kyverno.io', 'namespacedmutatingpolicies')],
  ['Assign', '/apis/mutations.gatekeeper.sh/v1/assign'],
  ['ModifySet', '/apis/mutations.gatekeeper.sh/v1/modifyset'],
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
 * listed or asked is left out. Empty: not known.
 */
export async function changersOf(trial: Trial, reader: ApiReader): Promise<readonly string[]> {
  const meant = MEANT[trial.taken];
  const patches = memberAt(trial.returned, ['metadata', 'annotations', KYVERNO_PATCHES]);
  const rules = isString(patches) ? patches.split('\n').filter((line) => meant.test(line)) : [];
  if (rules.length > 0) return rules.map((line) => `Kyverno ${line.split(': ')[0]}`);
  const list = (path: string) =>
    reader.list({ path, project: (raw: RawObject) => raw as Listed }, MOST).catch(() => []);
  const policies = new Set<string>();
  for (const [kind, ...paths] of POLICY_KINDS)
    for (const path of paths) {
      const naming = (await list(path)).filter(
        ({ metadata, spec }) =>
          [undefined, trial.namespace].includes(metadata.namespace) &&
          meant.test(JSON.stringify(mutationsOf(spec))),
      );
      // Without a binding, it does nothing.
      const bindings =
        kind === MUTATING_POLICY && naming.length > 0 ? await list(path.replace(/ies$/, 'ybindings')) : [];
      const bound = new Set(bindings.map(({ spec }) => memberAt(spec, ['policyName'])));
      for (const { metadata } of naming)
        if (kind !== MUTATING_POLICY || bound.has(metadata.name)) policies.add(`${kind} ${metadata.name}`);
    }
  if (policies.size > 0) return [...policies];
  const namespace = await reader.json(`/api/v1/namespaces/${trial.namespace}`).catch(() => undefined);
  const called = (await list(WEBHOOKS)).flatMap(({ metadata, webhooks }) =>
    recordsAt(webhooks)
      .filter((each) => each.name !== LINGER_WEBHOOK && isCalledFor(each, labelsOf(namespace), trial.sent))
      .map((webhook) => ({ name: `MutatingWebhookConfiguration ${metadata.name}`, webhook })),
  );
  const admitted: string[] = [];
  for (const { name, webhook } of called) if (await takes(webhook, trial, reader)) admitted.push(name);
  return [...new Set(admitted.length > 0 ? admitted : called.map(({ name }) => name))];
}

/** The part of a policy that changes objects: the rules of Kyverno's older kinds may also validate or generate. */
function mutationsOf(spec: unknown): unknown {
  const rules = memberAt(spec, ['rules']);
  return rules === undefined ? (spec ?? {}) : recordsAt(rules).map(({ mutate }) => mutate ?? {});
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
