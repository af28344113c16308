import fastJsonPatch, { type Operation } from 'fast-json-patch';
import { type ApiReader, asFailure, type Json, type RawObject } from '../cluster/index.ts';
import {
  ANNOTATION,
  FLOOR,
  fitsPattern,
  isCalledForPods,
  isRecord,
  isSelected,
  isString,
  jsonIn,
  type Labels,
  listOf,
  memberAt,
  NAMESPACE_NAME_LABEL,
  NO_LABELS,
  recordsAt,
} from '../core/api/index.ts';
import type { ListedObject } from './checks.ts';

/** What something else removes from a pod that Linger has changed. */
export type Taken = 'hook' | 'grace';

/**
 * The names by which policies and patches refer to it. Some labels contain the word too, such as `lifecycle: spot` and
 * `example.com/lifecycle`.
 */
const MEANT: Readonly<Record<Taken, RegExp>> = {
  hook: /(?<![a-z]\/|~1|[-\w])(lifecycle|preStop)(?![-\w]|\\?["']?\s*:\s*\\?["'])/,
  grace: /terminationGracePeriodSeconds/,
};

const inEachVersion = (group: string, plural: string) =>
  ['v1', 'v1beta1', 'v1alpha1'].map((version) => `/apis/${group}/${version}/${plural}`);

/**
 * Kinds whose objects change pods; the prefix of the names of webhooks that apply them (undefined: the API server does it
 * itself); and where they may be served. A cluster may serve none of them.
 */
const POLICY_KINDS: readonly (readonly [
  kind: string,
  by: string | undefined,
  ...paths: readonly string[],
])[] = [
  [
    'MutatingAdmissionPolicy',
    undefined,
    ...inEachVersion('admissionregistration.k8s.io', 'mutatingadmissionpolicies'),
  ],
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

/** Older versions of Kyverno record on each pod which rule changed what: `rule.policy.kyverno.io: replaced /spec/…`. */
const KYVERNO_PATCHES = 'policies.kyverno.io/last-applied-patches';
const WEBHOOKS = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';
const LINGER_WEBHOOK = 'pods.linger.dev';
const MOST = 500;

interface Trial {
  /** The pod as sent, and as returned by admission. */
  readonly sent: unknown;
  readonly returned: unknown;
  readonly namespace: string;
  readonly taken: Taken;
}

/**
 * Whether a pod has lost what was sent: its grace, or the hook of its first container. That container may no longer be the
 * first, because Istio may insert its own before it.
 */
export function hasLost(pod: unknown, { sent, taken }: Pick<Trial, 'sent' | 'taken'>): boolean {
  const graceOf = (of: unknown) => Number(memberAt(of, ['spec', 'terminationGracePeriodSeconds']));
  if (taken === 'grace') return !(graceOf(pod) >= graceOf(sent));
  const [first] = recordsAt(sent, 'spec', 'containers');
  const same = recordsAt(pod, 'spec', 'containers').find(({ name }) => name === first?.name);
  const hookOf = (container: unknown) => JSON.stringify(memberAt(container, ['lifecycle', 'preStop']));
  return hookOf(same) !== hookOf(first);
}

/**
 * Finds what removed the hook or cut the grace of a pod, by a dry run: the rules that the pod itself names; otherwise the
 * policies that mention the field, and the webhooks whose own answer for this pod confirms it; otherwise the webhooks that
 * are called for the pod and did not answer. Objects that may not be listed are left out. Empty: not known. Undefined: only
 * something that is called before Linger and not again, which undoes nothing, because Linger adapts to what it leaves.
 */
export async function changersOf(trial: Trial, reader: ApiReader): Promise<readonly string[] | undefined> {
  const patches = memberAt(trial.returned, ['metadata', 'annotations', KYVERNO_PATCHES]);
  const rules = (isString(patches) ? patches.split('\n') : []).map((line) => line.split(': '));
  const named = rules.filter(([, patch = '']) => MEANT[trial.taken].test(patch));
  if (named.length > 0) return named.map(([rule]) => `Kyverno ${rule}`);
  const place = await reader.json(`/api/v1/namespaces/${trial.namespace}`).catch(() => undefined);
  const list = (path: string) =>
    reader.list({ path, project: (raw: RawObject) => raw as ListedObject }, MOST).catch(() => []);
  const labels = { [NAMESPACE_NAME_LABEL]: trial.namespace, ...labelsOf(place) };
  const inquest: Inquest = { ...trial, labels, list, reader };
  const called = webhooksIn(await list(WEBHOOKS))?.filter(
    ({ webhook }) =>
      isCalledForPods(webhook) && takesPod(webhook, inquest) && !sparesPlans(webhook.matchConditions),
  );
  const policies = await policiesNaming(inquest, called);
  const later = policies.filter(({ followsLinger }) => followsLinger);
  const others = (called ?? []).filter((each) => !later.some(({ acting }) => acting.includes(each)));
  const following = others.filter(({ followsLinger }) => followsLinger);
  const takers: Changer[] = [...policies];
  const silent: Changer[] = [];
  for (const each of policies.length > 0 || following.length === 0 ? following : others) {
    const taken = await takes(each.webhook, inquest);
    if (taken !== false) (taken ? takers : silent).push(each);
  }
  const undoing = takers.filter(({ followsLinger }) => followsLinger);
  if (undoing.length === 0 && (takers.length > 0 || (others.length > 0 && following.length === 0)))
    return undefined;
  const isSure = undoing.some(({ conditional }) => !conditional);
  const suspects = isSure ? undoing : [...undoing, ...silent.filter(({ followsLinger }) => followsLinger)];
  return [...new Set(suspects.map(({ name }) => name))];
}

interface Inquest extends Trial {
  /** The labels of the namespace. */
  readonly labels: Labels;
  readonly list: (path: string) => Promise<readonly ListedObject[]>;
  readonly reader: ApiReader;
}

interface Changer {
  readonly name: string;
  /** Whether it is called, or may be called, after Linger has changed the pod. */
  readonly followsLinger: boolean;
  /** Whether it has matchConditions, which only the API server can evaluate. */
  readonly conditional: boolean;
}

/** Named after its configuration. */
type OtherWebhook = Changer & { readonly webhook: Json };
/** With the webhooks through which it is applied. */
type NamingPolicy = Changer & { readonly acting: readonly OtherWebhook[] };

const isConditional = (of: unknown) => listOf(memberAt(of, ['matchConditions'])).length > 0;

/** The policies that change the field for this pod. @param called undefined: not known */
async function policiesNaming(
  inquest: Inquest,
  called: readonly OtherWebhook[] | undefined,
): Promise<readonly NamingPolicy[]> {
  const found: NamingPolicy[] = [];
  for (const [kind, by, ...paths] of POLICY_KINDS) {
    const acting = (called ?? []).filter(({ webhook }) => by !== undefined && startsWith(webhook.name, by));
    // If the engine is gone, or is not called here, policies that it has left behind do nothing.
    if (by !== undefined && called !== undefined && acting.length === 0) continue;
    for (const path of paths) {
      const naming = (await inquest.list(path)).filter(
        ({ metadata, spec }) =>
          // The floor does not change pods that have a plan.
          !(by === undefined && metadata.name === FLOOR.policy) &&
          [undefined, inquest.namespace].includes(metadata.namespace) &&
          MEANT[inquest.taken].test(JSON.stringify(mutationsOf(spec, inquest))),
      );
      for (const { metadata, spec } of by === undefined ? await boundOf(naming, path, inquest) : naming) {
        const name = `${kind} ${metadata.name}`;
        // Policies of the API server itself are applied before all webhooks.
        const followsLinger =
          by === undefined
            ? isAskedAgain(spec)
            : acting.length === 0 || acting.some((each) => each.followsLinger);
        found.push({ name, followsLinger, conditional: isConditional(spec), acting });
      }
    }
  }
  return found;
}

/** A policy has no effect without a binding that matches this pod and has its parameters. @param path of the policies */
async function boundOf(policies: readonly ListedObject[], path: string, inquest: Inquest) {
  const bindings = policies.length === 0 ? [] : await inquest.list(path.replace(/ies$/, 'ybindings'));
  const bound: ListedObject[] = [];
  for (const policy of policies)
    for (const { spec } of bindings) {
      const { policyName, matchResources, paramRef } = isRecord(spec) ? spec : {};
      if (policyName !== policy.metadata.name || !takesPod(matchResources, inquest)) continue;
      if (await hasParameters(memberAt(policy.spec, ['paramKind']), paramRef, inquest)) bound.push(policy);
    }
  return bound;
}

/** If the named parameters do not exist, the policy is skipped, or (with `Deny`) rejects the pod. */
async function hasParameters(paramKind: unknown, paramRef: unknown, inquest: Inquest): Promise<boolean> {
  if (!isRecord(paramKind) || !isRecord(paramRef) || !isString(paramRef.name)) return true;
  const { apiVersion, kind } = paramKind;
  const root = `${String(apiVersion).includes('/') ? '/apis' : '/api'}/${String(apiVersion)}`;
  const { namespace = inquest.namespace, name } = paramRef;
  try {
    const { resources } = await inquest.reader.json(root);
    const served = recordsAt(resources).find((each) => each.kind === kind);
    const place = served?.namespaced === true ? `/namespaces/${String(namespace)}` : '';
    await inquest.reader.json(`${root}${place}/${String(served?.name)}/${name}`);
    return true;
  } catch (thrown) {
    return asFailure(thrown).reason !== 'NotServed';
  }
}

/** All webhooks except Linger's own. Undefined: there are none, or they may not be listed. */
function webhooksIn(configurations: readonly ListedObject[]): readonly OtherWebhook[] | undefined {
  if (configurations.length === 0) return undefined;
  const has = ({ webhooks }: ListedObject) => recordsAt(webhooks).some(({ name }) => name === LINGER_WEBHOOK);
  const own = configurations.find(has)?.metadata.name ?? 'linger';
  return configurations.flatMap(({ metadata, webhooks }) =>
    recordsAt(webhooks)
      .filter(({ name }) => name !== LINGER_WEBHOOK)
      .map((webhook) => ({
        name: `MutatingWebhookConfiguration ${metadata.name}`,
        webhook,
        // In the order of their configurations' names; see pod-webhooks.ts.
        followsLinger: metadata.name > own || isAskedAgain(webhook),
        conditional: isConditional(webhook),
      })),
  );
}

const isAskedAgain = (of: unknown) => memberAt(of, ['reinvocationPolicy']) === 'IfNeeded';
const startsWith = (name: unknown, start: string) => isString(name) && name.startsWith(start);

/**
 * What a policy changes in this pod. Rules of Kyverno's older kinds may also validate, generate, or change existing objects.
 */
function mutationsOf(spec: unknown, inquest: Inquest): unknown {
  // Excludes policies that Kyverno applies only to existing objects.
  const isAsked = [['admission'], ['evaluation', 'admission', 'enabled']].every(
    (switched) => memberAt(spec, switched) !== false,
  );
  if (!isAsked) return {};
  const rules = memberAt(spec, ['rules']);
  if (rules !== undefined)
    return recordsAt(rules)
      .filter((rule) => !sparesPlans(rule.exclude, rule.preconditions) && isFor(rule.match, inquest))
      .filter(({ exclude }) => !recordsAt(exclude, 'any').some((part) => excludes(part, inquest)))
      .filter(({ mutate }) => memberAt(mutate, ['targets']) === undefined)
      .map(({ mutate }) => mutate ?? {});
  const { matchConstraints, matchConditions, match, applyTo, ...does } = isRecord(spec) ? spec : {};
  const isSpared =
    sparesPlans(matchConditions) ||
    !isFor(match, inquest) ||
    !isFor({ kinds: applyTo }, inquest) ||
    !takesPod(matchConstraints, inquest);
  return isSpared ? {} : does;
}

/** Whether a rule excludes this pod, judged only by what {@link isFor} knows. */
function excludes({ resources, ...more }: Json, inquest: Inquest): boolean {
  if (!isRecord(resources) || Object.keys(more).length > 0) return false;
  const isKnown = (name: string) => /^(kinds|namespaces|namespaceSelector|selector|operations)$/.test(name);
  return Object.keys(resources).every(isKnown) && isFor(resources, inquest);
}

/** Recognises the exclusion of pods with a plan in the form in which the documentation recommends it. */
const sparesPlans = (...conditions: readonly unknown[]) =>
  JSON.stringify(conditions).includes(ANNOTATION.plan);

/**
 * Whether the match clause of Kyverno (any of several, all of several, or a single one) or Gatekeeper covers the pod. No
 * kinds means all kinds, and no namespaces all namespaces.
 */
function isFor(match: unknown, { namespace, labels, sent }: Inquest): boolean {
  const takesIn = (part: unknown) => {
    const of = memberAt(part, ['resources']) ?? part;
    const { kinds, namespaces, excludedNamespaces, labelSelector, selector, ...more } = isRecord(of)
      ? of
      : {};
    const operations = listOf(memberAt(of, ['operations']));
    const kindNames = listOf(kinds).flatMap((each) => (isRecord(each) ? listOf(each.kinds) : [each]));
    return (
      (kindNames.length === 0 || kindNames.some((each) => /(^|\/)(Pod|\*)$/.test(String(each)))) &&
      (operations.length === 0 || operations.includes('CREATE')) &&
      (listOf(namespaces).length === 0 || fitsPattern(namespaces, namespace)) &&
      !fitsPattern(excludedNamespaces, namespace) &&
      isSelected({ ...more, objectSelector: labelSelector ?? selector }, labels, labelsOf(sent))
    );
  };
  const [any, all] = [recordsAt(match, 'any'), recordsAt(match, 'all')];
  return any.length > 0 ? any.some(takesIn) : (all.length > 0 ? all : [match]).every(takesIn);
}

/** Whether the match clause of an API server policy or its binding covers the pod. No rules means all. */
function takesPod(match: unknown, { labels, sent }: Inquest): boolean {
  const { resourceRules: rules, excludeResourceRules, ...selectors } = isRecord(match) ? match : {};
  const excluded = recordsAt(excludeResourceRules).filter((rule) => listOf(rule.resourceNames).length === 0);
  const isIncluded = listOf(rules).length === 0 || isCalledForPods({ rules });
  return isIncluded && !isCalledForPods({ rules: excluded }) && isSelected(selectors, labels, labelsOf(sent));
}

function labelsOf(object: unknown): Labels {
  const labels = memberAt(object, ['metadata', 'labels']);
  return isRecord(labels) ? (labels as Labels) : NO_LABELS;
}

/** Values of sideEffects with which a dry run has no effect. */
const HARMLESS = new Set(['None', 'NoneOnDryRun']);

/**
 * Calls the webhook itself through the API server's proxy, which requires the right to create services/proxy. Undefined: no
 * answer.
 */
async function takes(webhook: Json, inquest: Inquest): Promise<boolean | undefined> {
  const { sent, namespace, reader } = inquest;
  const { service } = isRecord(webhook.clientConfig) ? webhook.clientConfig : {};
  if (!isRecord(service) || !HARMLESS.has(String(webhook.sideEffects))) return undefined;
  const { namespace: place, name, path = '', port = 443 } = service;
  const kind = { group: '', version: 'v1', kind: 'Pod' };
  const resource = { group: '', version: 'v1', resource: 'pods' };
  const options = { apiVersion: 'meta.k8s.io/v1', kind: 'CreateOptions', dryRun: ['All'] };
  const review = {
    apiVersion: 'admission.k8s.io/v1',
    kind: 'AdmissionReview',
    request: {
      uid: 'linger-check',
      operation: 'CREATE',
      userInfo: { username: 'linger-check' },
      kind,
      resource,
      requestKind: kind,
      requestResource: resource,
      namespace,
      object: sent,
      oldObject: null,
      dryRun: true,
      options,
    },
  };
  const proxied = `/api/v1/namespaces/${String(place)}/services/https:${String(name)}:${String(port)}/proxy${String(path)}`;
  const answer = await reader.post(proxied, review).catch(() => undefined);
  const response = memberAt(answer?.answer, ['response']);
  if (!isRecord(response)) return undefined;
  if (!isString(response.patch)) return false;
  try {
    const operations = jsonIn(Buffer.from(response.patch, 'base64').toString()) as Operation[];
    return hasLost(fastJsonPatch.applyPatch(fastJsonPatch.deepClone(sent), operations).newDocument, inquest);
  } catch {
    return undefined;
  }
}
