import { type Json, messageOf } from '../cluster/index.ts';
import {
  count,
  FLOOR,
  fewOf,
  isRecord,
  isString,
  memberAt,
  type Overview,
  recordsAt,
  span,
} from '../core/api/index.ts';
import { atLeast, FLOOR_VERSIONS, parseVersion, unreadableFloorLines } from '../core/decision/index.ts';
import { MalformedExposition, parseExposition } from '../telemetry/index.ts';
import { type Inquiry, type Judgement, ok, problemsOr, type Seen, unknown, warning } from './checks.ts';
import installed from './installed.json' with { type: 'json' };
import { anyOwnWebhook } from './pod-webhooks.ts';
import { missingForFloor } from './rights.ts';

const POLICIES = '/apis/admissionregistration.k8s.io/v1';
const BY_KUSTOMIZE = 'in kustomize, components: [floor]';
const APPLY = 'helm upgrade, or apply the kustomization that has components: [floor].';

type FloorState = NonNullable<Overview['floor']>;

interface FloorObjects extends FloorState {
  readonly policy: Json | undefined;
  readonly binding: Json | undefined;
  readonly configMap: Json | undefined;
}

/** @throws KubeFailure */
export async function floorState(inquiry: Inquiry): Promise<FloorState> {
  const { bound, validUntil, changed } = await floorObjects(inquiry);
  return { bound, validUntil, changed };
}

async function floorObjects(inquiry: Inquiry): Promise<FloorObjects> {
  const { namespace } = inquiry.options;
  const policy = await inquiry.find(`${POLICIES}/mutatingadmissionpolicies/${FLOOR.policy}`);
  const binding = await inquiry.find(`${POLICIES}/mutatingadmissionpolicybindings/${FLOOR.policy}`);
  const none = { policy, binding, configMap: undefined, bound: false, validUntil: null, changed: [] };
  if (policy === undefined || binding === undefined) return none;
  const reads = (member: string) => memberAt(binding, ['spec', 'paramRef', member]);
  if (memberAt(binding, ['spec', 'policyName']) !== FLOOR.policy) return none;
  if (reads('name') !== FLOOR.configMap || reads('namespace') !== namespace) return none;
  const configMap = await inquiry.find(`/api/v1/namespaces/${namespace}/configmaps/${FLOOR.configMap}`);
  const until = memberAt(configMap, ['data', FLOOR.validUntil]);
  const time = isString(until) ? Date.parse(until) / 1000 : Number.NaN;
  const webhook = await anyOwnWebhook(inquiry).catch(() => undefined);
  const changed = [
    ...differencesOfPolicy(policy, webhook),
    ...differencesOfBinding(binding, namespace).map((path) => `${path} of its binding`),
  ];
  return { ...none, configMap, bound: true, validUntil: Number.isNaN(time) ? null : time, changed };
}

/** Whether this API server supports a floor, how it is enabled, and whether this account may install it. */
export async function floorBefore(inquiry: Inquiry): Promise<Seen> {
  const { gitVersion } = await inquiry.json('/version');
  const version = parseVersion(String(gitVersion));
  // The check ApiServer reports this.
  if (version === undefined) return [];
  const support = supportOf(String(gitVersion), version);
  // On older versions, it is installed only on request.
  if (!atLeast(version, FLOOR_VERSIONS.recommended)) return support;
  const missing = await missingForFloor(inquiry);
  if (missing.length === 0) return support;
  return [
    support,
    warning(
      `your account lacks permissions that an installation with the floor needs: ${missing.join(', ')}`,
      'Install as cluster-admin, or without the floor: in the chart, floor: false.',
    ),
  ];
}

function supportOf(gitVersion: string, version: NonNullable<ReturnType<typeof parseVersion>>): Judgement {
  const { oldest, recommended } = FLOOR_VERSIONS;
  if (!atLeast(version, oldest))
    return ok(
      `not possible: the API server runs ${gitVersion}, and MutatingAdmissionPolicies are stable from ${oldest.major}.${oldest.minor} on. While Linger is down, pods are created without a hook`,
    );
  const gives = `on ${gitVersion} the API server can give pods a wait while Linger is down`;
  return ok(
    atLeast(version, recommended)
      ? `${gives}: on in the chart (floor: auto); ${BY_KUSTOMIZE}`
      : `${gives}, at some 3 ms for each pod before ${recommended.major}.${recommended.minor}: off in the chart (floor: auto) unless floor: true; ${BY_KUSTOMIZE}`,
  );
}

const WRITES = 'The leader writes it within a minute: see the line Leader, and “floor” in its log.';

/** Whether the floor works, so that pods get a wait from the API server while Linger is down. */
export async function floor(inquiry: Inquiry): Promise<Seen> {
  const { namespace, now } = inquiry.options;
  const { policy, binding, configMap, bound, validUntil, changed } = await floorObjects(inquiry);
  if (policy === undefined && binding === undefined) {
    const { gitVersion } = await inquiry.json('/version');
    const version = parseVersion(String(gitVersion));
    if (version === undefined) return [];
    const absent = ok(`not installed; ${supportOf(String(gitVersion), version).text}`);
    // The ConfigMap alone says nothing, because the leader writes it even without the policy.
    const past = atLeast(version, FLOOR_VERSIONS.oldest) ? await evaluationsOf(inquiry) : '';
    const times = isString(past) ? 0 : past.all;
    if (times === 0) return absent;
    return warning(
      `MutatingAdmissionPolicy ${FLOOR.policy} and its binding are gone, after ${count(times, 'evaluation')} on this API server: while Linger is down, pods are created without a hook`,
      `${APPLY} If they were removed on purpose, this line ends with the next restart of the API server.`,
    );
  }
  const lacking = (problem: string) =>
    warning(`${problem}: while Linger is down, pods are created without a hook`, APPLY);
  if (policy === undefined) return lacking(`${FLOOR.policy} has a binding and no MutatingAdmissionPolicy`);
  if (binding === undefined) return lacking(`MutatingAdmissionPolicy ${FLOOR.policy} is not bound`);
  const map = `ConfigMap ${namespace}/${FLOOR.configMap}`;
  if (!bound)
    return warning(
      `the binding of ${FLOOR.policy} does not lead to ${map}, but to ${JSON.stringify(memberAt(binding, ['spec', 'paramRef']) ?? null)} for ${String(memberAt(binding, ['spec', 'policyName']))}`,
      `${APPLY} With kustomize in a namespace of another name, patch its spec.paramRef.namespace.`,
    );
  if (configMap === undefined)
    return warning(`there is no ${map}: while Linger is down, pods are created without a hook`, WRITES);
  if (validUntil === null)
    return warning(
      `${map} does not say until when it is valid: while Linger is down, pods are created without a hook`,
      WRITES,
    );
  const until = new Date(validUntil * 1000).toISOString();
  const dropped = Number(memberAt(configMap, ['data', FLOOR.dropped]) ?? 0);
  const data = memberAt(configMap, ['data']);
  const unreadable = unreadableFloorLines(isRecord(data) ? data : {});
  const { judgement, text } = await evaluations(inquiry);
  const standing = problemsOr(
    [
      changed.length > 0 &&
        warning(
          `MutatingAdmissionPolicy ${FLOOR.policy} is not as this version of Linger installs it: ${fewOf(changed)}. While Linger is down, pods may get another wait or none`,
          `Undo the edit, or end the upgrade: ${APPLY}`,
        ),
      unreadable.length > 0 &&
        warning(
          `${map} has lines that cannot be read: ${fewOf(unreadable)}. While Linger is down, pods of these namespaces (${FLOOR.newNamespaces}: of all others) are created without a hook`,
          WRITES,
        ),
      validUntil < now &&
        warning(
          `${map} is out of date since ${until}: while Linger is down, pods get at least wait.initial`,
          'The leader renews it every half hour: see the line Leader, and “floor” in its log.',
        ),
      dropped > 0 &&
        warning(
          `${map} has no room for ${count(dropped, 'namespace')}: while Linger is down, their pods and those of new namespaces are created without a hook`,
          'Let more namespaces have the same policies: those that equal new ones take no room.',
        ),
    ],
    ok(`bound, and ${map} is up to date for ${span(validUntil - now)}, until ${until}${text}`),
  );
  return [standing, judgement ?? []].flat();
}

const SELECTORS = ['namespaceSelector', 'objectSelector'] as const;

/**
 * The paths at which the policy differs from the installed one. Its selectors should be those of the webhook, if these are
 * known.
 */
function differencesOfPolicy(policy: Json, webhook: Json | undefined): readonly string[] {
  const expected = installed.floorSpecs.policy;
  const constraints = memberAt(policy, ['spec', 'matchConstraints']);
  const selectors = SELECTORS.filter((selector) => {
    if (webhook === undefined) return false;
    const own = requirementsOf(memberAt(constraints, [selector]));
    const called = requirementsOf(webhook[selector]);
    // Some providers add requirements to every webhook; the policy does not need them.
    const needed = requirementsOf(expected.matchConstraints[selector]).filter((each) =>
      called.includes(each),
    );
    return needed.some((each) => !own.includes(each)) || own.some((each) => !called.includes(each));
  });
  const unselected = { namespaceSelector: undefined, objectSelector: undefined };
  const stored = {
    ...(isRecord(policy.spec) && policy.spec),
    matchConstraints: { ...(isRecord(constraints) && constraints), ...unselected },
  };
  const applied = { ...expected, matchConstraints: { ...expected.matchConstraints, ...unselected } };
  return [
    ...differences(applied, stored, 'spec'),
    ...selectors.map((selector) => `spec.matchConstraints.${selector} (the webhook has another)`),
  ];
}

function differencesOfBinding(binding: Json, namespace: string): readonly string[] {
  const expected = installed.floorSpecs.binding;
  const paramRef = { ...expected.paramRef, namespace };
  return differences({ ...expected, paramRef }, memberAt(binding, ['spec']), 'spec');
}

/** The requirements of a label selector, each as text. */
function requirementsOf(selector: unknown): readonly string[] {
  const labels = memberAt(selector, ['matchLabels']);
  const expressions = recordsAt(selector, 'matchExpressions');
  return [
    ...Object.entries(isRecord(labels) ? labels : {}).map((each) => JSON.stringify(each)),
    ...expressions.map(({ key, operator, values }) => JSON.stringify([key, operator, values])),
  ];
}

/** The paths at which an object differs from what was applied, except for what the API server fills in. */
function differences(applied: unknown, stored: unknown, path: string): readonly string[] {
  if (isRecord(stored) && (applied === undefined || isRecord(applied))) {
    const keys = new Set([...Object.keys(applied ?? {}), ...Object.keys(stored)]);
    return [...keys].flatMap((key) => differences(applied?.[key], stored[key], `${path}.${key}`));
  }
  if (Array.isArray(stored) && Array.isArray(applied) && stored.length === applied.length)
    return applied.flatMap((each: unknown, at) => {
      const name = memberAt(each, ['name']);
      return differences(each, stored[at], `${path}[${isString(name) ? name : at}]`);
    });
  if (applied === undefined && (path.endsWith('.matchPolicy') ? stored === 'Equivalent' : isEmpty(stored)))
    return [];
  return applied === stored ? [] : [path];
}

function isEmpty(value: unknown): boolean {
  return value === null || (Array.isArray(value) && value.length === 0);
}

const CHECKS_TOTAL = 'apiserver_mutating_admission_policy_check_total';

interface Evaluations {
  readonly all: number;
  readonly failed: number;
  /** `out_of_budget 1` */
  readonly kinds: string;
}

/** How often the answering API server has evaluated the policy since its start; a string: why that cannot be read. */
async function evaluationsOf(inquiry: Inquiry): Promise<Evaluations | string> {
  let samples: ReturnType<typeof parseExposition>;
  try {
    samples = parseExposition(await inquiry.text('/metrics'), new Set([CHECKS_TOTAL]));
  } catch (thrown) {
    return thrown instanceof MalformedExposition ? thrown.message : messageOf(thrown);
  }
  const own = (samples.get(CHECKS_TOTAL) ?? []).filter(({ labels }) => labels.get('policy') === FLOOR.policy);
  const sum = (of: typeof own) => of.reduce((total, { value }) => total + value, 0);
  const failed = own.filter(({ labels, value }) => labels.get('error_type') !== 'no_error' && value > 0);
  const kinds = failed.map(({ labels, value }) => `${labels.get('error_type')} ${value}`).join(', ');
  return { all: sum(own), failed: sum(failed), kinds };
}

async function evaluations(
  inquiry: Inquiry,
): Promise<{ readonly judgement?: Judgement; readonly text: string }> {
  const found = await evaluationsOf(inquiry);
  if (isString(found))
    return {
      judgement: unknown(
        `whether the API server can evaluate ${FLOOR.policy} could not be checked: ${found}`,
        'Use an account that may get /metrics, or see the alert LingerFloorFails.',
      ),
      text: '',
    };
  const all = count(found.all, 'evaluation');
  if (found.failed === 0) return { text: `; ${all} on this API server, none failed` };
  return {
    judgement: warning(
      `of ${all} of ${FLOOR.policy} on this API server since it started, ${found.failed} failed (${found.kinds}): it gave these pods no wait`,
      `If the number grows: kubectl delete mutatingadmissionpolicybinding,mutatingadmissionpolicy ${FLOOR.policy}. Nothing else depends on it.`,
    ),
    text: '',
  };
}
