import * as z from 'zod';
import { discoveryConsumerSpec } from './discovery-consumer.ts';
import { LingerError } from './errors.ts';
import { namespaceName, objectName } from './fields.ts';
import { isRecord } from './json.ts';
import { API_VERSION, GROUP } from './names.ts';
import { clusterTerminationPolicySpec, terminationPolicySpec } from './termination-policy.ts';

function envelope<K extends string, S extends z.ZodType, M extends z.ZodType>(kind: K, spec: S, metadata: M) {
  return z.strictObject({
    apiVersion: z.literal(API_VERSION),
    kind: z.literal(kind),
    metadata,
    spec,
    // Linger itself writes it, and `kubectl get -o yaml` prints it; ignored here.
    status: z.unknown().optional(),
  });
}

const clusterScoped = z.looseObject({
  name: objectName,
  namespace: z.undefined({ error: 'this kind is cluster-scoped: remove the namespace' }).optional(),
});
const namespaced = z.looseObject({ name: objectName, namespace: namespaceName });

/** One schema for each kind of the API group, which both validates files and types the code. */
export const DOCUMENT_SCHEMAS = {
  ClusterTerminationPolicy: envelope('ClusterTerminationPolicy', clusterTerminationPolicySpec, clusterScoped),
  TerminationPolicy: envelope('TerminationPolicy', terminationPolicySpec, namespaced),
  DiscoveryConsumer: envelope('DiscoveryConsumer', discoveryConsumerSpec, clusterScoped),
} as const;

export type LingerKind = keyof typeof DOCUMENT_SCHEMAS;
export type ClusterTerminationPolicy = z.output<(typeof DOCUMENT_SCHEMAS)['ClusterTerminationPolicy']>;
export type TerminationPolicy = z.output<(typeof DOCUMENT_SCHEMAS)['TerminationPolicy']>;
export type DiscoveryConsumer = z.output<(typeof DOCUMENT_SCHEMAS)['DiscoveryConsumer']>;
export type LingerDocument = ClusterTerminationPolicy | TerminationPolicy | DiscoveryConsumer;

/** Whether an object claims to belong to Linger's API group, in any version and kind. */
export function isLingerObject(object: { readonly apiVersion?: unknown }): boolean {
  return typeof object.apiVersion === 'string' && object.apiVersion.split('/')[0] === GROUP;
}

/**
 * Reads one object of the linger.dev group.
 * @param where what the message begins with, such as `base.yaml document 2`
 * @throws LingerError `policy-invalid`, naming each field that is wrong and what was expected
 */
export function parseDocument(object: { readonly [key: string]: unknown }, where: string): LingerDocument {
  const { apiVersion, kind } = object;
  const invalid = (what: string, path: readonly PropertyKey[] = []) =>
    new LingerError('policy-invalid', `${where}: ${what}`, { path });
  if (apiVersion !== API_VERSION) {
    throw invalid(`apiVersion: expected ${API_VERSION}, got ${show(apiVersion)}`);
  }
  if (typeof kind !== 'string' || !Object.hasOwn(DOCUMENT_SCHEMAS, kind)) {
    const known = Object.keys(DOCUMENT_SCHEMAS).join(', ');
    throw invalid(`kind: expected one of ${known}, got ${show(kind)}`);
  }
  const forbidden = pathOfPrototypeKey(object, []);
  if (forbidden !== undefined) throw invalid(`${kind}: ${forbidden}: no key may have this name; remove it`);
  const result = DOCUMENT_SCHEMAS[kind as LingerKind].safeParse(object);
  if (result.success) return result.data;
  const { issues } = result.error;
  throw invalid(`${kind}: ${issues.map((issue) => describe(issue, object)).join('; ')}`, pathOf(issues[0]));
}

const HIGHEST_PRIORITY = 1_000_000;

/**
 * A replacement for a policy that cannot be read but may have been restrictive: the pods that it may select are kept in
 * Audit, and those of its restrictions that can be read apply.
 * @param spec as it was written
 */
export function cautiousPolicy(
  kind: 'ClusterTerminationPolicy' | 'TerminationPolicy',
  { name, namespace }: { readonly name: string; readonly namespace: string },
  spec: unknown,
): ClusterTerminationPolicy | TerminationPolicy {
  const { podSelector, namespaceSelector, ceiling, overrides } = isRecord(spec) ? spec : {};
  // Read one by one: a selector that cannot be read selects everything.
  const read = (member: object) => (clusterTerminationPolicySpec.safeParse(member).success ? member : {});
  const { ceiling: ofWait = {} }: { ceiling?: object } =
    isRecord(ceiling) && 'wait' in ceiling ? read({ ceiling: { wait: ceiling.wait } }) : {};
  const isNamespaced = kind === 'TerminationPolicy';
  return DOCUMENT_SCHEMAS[kind].parse({
    apiVersion: API_VERSION,
    kind,
    metadata: isNamespaced ? { name, namespace } : { name },
    spec: {
      ...read({ podSelector }),
      ...(isNamespaced
        ? { mode: 'Audit', priority: HIGHEST_PRIORITY }
        : { ...read({ namespaceSelector }), ...read({ overrides }), ceiling: { ...ofWait, mode: 'Audit' } }),
    },
  });
}

/** Whether a policy, as far as it can be read, sets anything that can only be meant to restrict. */
export function speaksOfRestraint(spec: unknown): boolean {
  if (!isRecord(spec)) return false;
  const { mode, ceiling, overrides } = spec;
  return (mode !== undefined && mode !== 'Enforce') || ceiling !== undefined || overrides !== undefined;
}

function pathOf(issue: z.core.$ZodIssue | undefined): readonly PropertyKey[] {
  const [unknown] = issue?.code === 'unrecognized_keys' ? issue.keys : [];
  return [...(issue?.path ?? []), ...(unknown === undefined ? [] : [unknown])];
}

function describe(issue: z.core.$ZodIssue, object: unknown): string {
  const path = issue.path.join('.');
  if (issue.code === 'unrecognized_keys') {
    const fields = issue.keys.map((key) => (path === '' ? key : `${path}.${key}`));
    return `${fields.join(', ')}: unknown field; check its spelling and place, or remove it`;
  }
  // zod wraps the problem of a key into another issue.
  const message = issue.code === 'invalid_key' ? (issue.issues[0]?.message ?? issue.message) : issue.message;
  const value = valueAt(object, issue.path);
  const isSecret = issue.path.includes('headers') && issue.path.at(-1) !== 'name';
  const got = isSecret ? 'something else (not shown, as it may be a secret)' : show(value);
  return `${path === '' ? 'document' : path}: ${message}${value === undefined ? ' (it is missing)' : `, got ${got}`}`;
}

/**
 * The path of a `__proto__` member, if there is one. Copying an object silently drops such a member, and a selector that has
 * lost its only label would select everything.
 */
function pathOfPrototypeKey(value: unknown, path: readonly string[]): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, member] of Object.entries(value)) {
    const here = [...path, key];
    const found = key === '__proto__' ? here.join('.') : pathOfPrototypeKey(member, here);
    if (found !== undefined) return found;
  }
  return undefined;
}

function valueAt(object: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (value as Record<PropertyKey, unknown> | null | undefined)?.[key],
    object,
  );
}

/** Renders a value for a message. Messages are logged, so headers, and users and passwords in URLs, are left out. */
function show(value: unknown): string {
  const shown = JSON.stringify(value, (member, each) => (member === 'headers' ? '...' : each)) ?? 'nothing';
  const text = shown.replaceAll(/\/\/[^/\s"]*@/g, '//...@');
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
