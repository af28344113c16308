import {
  fewOf,
  HOLD_HELPER,
  HOLD_MOUNT,
  HOLD_VOLUME,
  HOOKS,
  isAbsentOr,
  isRecord,
  isString,
  isStringMap,
  type LifecycleHandler,
  memberAt,
  nonTexts,
  readableHook,
  readHook,
  runsHelper,
} from '../api/index.ts';
import {
  type Container,
  constraintsOf,
  entriesOf,
  isReadableList,
  isWindows,
  type KillingProbe,
  type Lifecycle,
  type OwnerReference,
  type Pod,
  type PodMetadata,
  type PodSpec,
  type ReadinessProbe,
  shortTextIn,
} from './pod.ts';

/** A member of a pod that decisions read. */
export interface Member {
  /**
   * The type that it must have unless it is absent or null. Without: it is read unchecked, because validating it is the API
   * server's job.
   */
  readonly must?: readonly [is: (value: unknown) => boolean, expected: string];
  /** It must be there. */
  readonly isRequired?: true;
  /** Which members are read of it, or of each entry of a list. Without: all. */
  readonly members?: Members;
  /**
   * What the copy for large reviews keeps of it; undefined: nothing. By default it keeps `members`, or everything if there
   * are none. Absent or null values stay so.
   */
  keep?(value: unknown): unknown;
  /** A node constraint. The copy for large reviews keeps it only if the pod's constraints are short enough to be read. */
  readonly isConstraint?: true;
}

export type Members = Readonly<Record<string, Member>>;
/** The rows of a type: one for each of its members. */
type RowsOf<T> = Readonly<Record<keyof T, Member>>;

/** As much of a text as can matter; for other values, only whether they are truthy. */
const shortText = (value: unknown) => (isString(value) ? shortTextIn(value) : Boolean(value));
const TEXT: Member = { keep: shortText };
const FLAG: Member = { keep: (value) => value === true };
const NUMBER: Member = { keep: (value) => (typeof value === 'number' ? value : undefined) };
/** Only whether it is present matters. */
const PRESENCE: Member = { keep: (value) => (value ? {} : undefined) };
const TEXT_MAP = [isStringMap, 'a map of strings'] as const;
const OBJECT = [isRecord, 'an object'] as const;

const OWNER = { kind: {}, name: {}, controller: {} } satisfies RowsOf<OwnerReference>;

const METADATA = {
  labels: { must: TEXT_MAP },
  annotations: { must: TEXT_MAP },
  ownerReferences: {
    must: [isOwnerList, 'a list of owners'],
    members: OWNER,
    keep: (value) =>
      keptOf(
        OWNER,
        entriesOf(value)
          .filter((owner) => memberAt(owner, ['controller']) === true)
          .slice(0, 1),
      ),
  },
} satisfies RowsOf<PodMetadata>;

const PROFILE: Members = { type: { keep: (value) => (value === 'Localhost' ? value : undefined) } };
const SECURITY: Members = {
  seccompProfile: { members: PROFILE },
  appArmorProfile: { members: PROFILE },
  // Its presence marks a pod for Windows, but so does `spec.os`, which is kept.
  windowsOptions: { keep: () => undefined },
};

const VOLUME: Members = {
  name: TEXT,
  image: { members: { reference: { keep: (value) => (isString(value) ? shortTextIn(value) : undefined) } } },
  configMap: {
    members: {
      name: TEXT,
      optional: FLAG,
      defaultMode: NUMBER,
      items: {
        members: { path: TEXT },
        keep: (value) => keptOf({ path: TEXT }, entriesOf(value).slice(0, 1)),
      },
    },
  },
};

const MOUNT: Members = {
  name: TEXT,
  mountPath: TEXT,
  readOnly: FLAG,
  subPath: PRESENCE,
  subPathExpr: PRESENCE,
};
const DEVICE: Members = { devicePath: TEXT };

/** Whether a mount or device has the name of Linger's volume or its mount path; no others matter. */
function isNear(entry: unknown): boolean {
  const paths = ['mountPath', 'devicePath'].map((member) => shortTextIn(memberAt(entry, [member])));
  return isOwnName(entry) || paths.some((path) => path.includes(HOLD_MOUNT));
}

function isOwnName(entry: unknown): boolean {
  return memberAt(entry, ['name']) === HOLD_VOLUME;
}

/** A list of which only some entries matter. The others are blanked, so that indices stay the same. */
function listWith(members: Members, matters: (entry: unknown) => boolean): Member {
  return {
    members,
    keep: (value) => {
      const list = keptOf(members, value);
      return Array.isArray(list) ? list.map((each) => (matters(each) ? each : {})) : list;
    },
  };
}

function constraint(row: Member): Member {
  return { ...row, isConstraint: true };
}

const TERMS: Members = { nodeSelectorTerms: {} };
const AFFINITY: Members = {
  nodeAffinity: { members: { requiredDuringSchedulingIgnoredDuringExecution: { members: TERMS } } },
};

const SPEC = {
  terminationGracePeriodSeconds: { must: [Number.isInteger, 'whole seconds'] },
  restartPolicy: { must: [isString, 'a string'], keep: shortText },
  nodeSelector: constraint({ must: TEXT_MAP }),
  os: constraint({ must: OBJECT, members: { name: {} } }),
  nodeName: constraint({}),
  affinity: constraint({ members: AFFINITY }),
  hostNetwork: FLAG,
  runtimeClassName: TEXT,
  securityContext: { members: SECURITY },
  volumes: listWith(VOLUME, isOwnName),
} satisfies Omit<RowsOf<PodSpec>, 'containers' | 'initContainers'>;

const CONTAINER = {
  name: { must: [isString, 'a string'], isRequired: true },
  image: TEXT,
  restartPolicy: TEXT,
  ports: {
    must: [Array.isArray, 'a list'],
    keep: (value) =>
      entriesOf(value)
        .slice(0, 1)
        .map(() => ({})),
  },
  readinessProbe: {
    must: OBJECT,
    members: { periodSeconds: NUMBER, exec: PRESENCE } satisfies RowsOf<ReadinessProbe>,
  },
  livenessProbe: {
    must: OBJECT,
    members: { terminationGracePeriodSeconds: NUMBER } satisfies RowsOf<KillingProbe>,
  },
  startupProbe: {
    must: OBJECT,
    members: { terminationGracePeriodSeconds: NUMBER } satisfies RowsOf<KillingProbe>,
  },
  lifecycle: {
    must: OBJECT,
    members: { preStop: { must: OBJECT }, postStart: {} } satisfies RowsOf<Lifecycle>,
    keep: essentialsOfLifecycle,
  },
  volumeMounts: listWith(MOUNT, isNear),
  volumeDevices: listWith(DEVICE, isNear),
  securityContext: { members: SECURITY },
} satisfies RowsOf<Container>;

/**
 * All members of a pod that decisions read, with their checks and what large reviews keep of them. A member of the types in
 * `pod.ts` without a row here does not compile; one that is read by its path without a row fails a test.
 */
export const POD_MEMBERS = {
  kind: {},
  apiVersion: {},
  metadata: { must: OBJECT, members: METADATA },
  spec: {
    members: { ...SPEC, containers: { members: CONTAINER }, initContainers: { members: CONTAINER } },
  },
} satisfies Members;

/**
 * A copy of what decisions read of a pod within {@link POD_LIMITS}, small enough to be passed between threads. It leads to
 * the same decision as the whole pod.
 */
export function essentialsOf(pod: Pod): Pod {
  const essentials = keptOf(POD_MEMBERS, pod, constraintsOf(pod) !== '') as Pod;
  return isWindows(pod)
    ? { ...essentials, spec: { ...essentials.spec, os: { name: 'windows' } } }
    : essentials;
}

/** Anything other than an object or a list that can be read is reduced to whether it is truthy. */
function keptOf(members: Members, value: unknown, isConstrained = false): unknown {
  if (isReadableList(value)) return value.map((each) => keptOf(members, each, isConstrained));
  if (!isRecord(value)) return Boolean(value);
  const kept: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(members)) {
    const part = keptPart(member, value[name], isConstrained);
    // Absent members stay absent: for an undefined one, the patch would say `replace` instead of `add`.
    if (part !== undefined) kept[name] = part;
  }
  return kept;
}

function keptPart({ members, keep, isConstraint }: Member, value: unknown, isConstrained: boolean): unknown {
  if (value === undefined || value === null) return value;
  if (isConstraint && !isConstrained) return undefined;
  if (keep) return keep(value);
  return members ? keptOf(members, value, isConstrained) : value;
}

/** Keeps whether the lifecycle has other members: if so, removing the preStop hook does not remove the lifecycle. */
function essentialsOfLifecycle(lifecycle: unknown): Lifecycle {
  const { preStop, ...others } = lifecycle as Lifecycle;
  const kept = preStop && recognisable(preStop);
  const hasOthers = Object.keys(others).length > 0;
  return { ...(hasOthers && { postStart: {} }), ...(preStop !== undefined && { preStop: kept }) };
}

/**
 * Keeps each kind of handler: where another webhook has merged one into a hook of Linger's, both must still be recognised.
 */
function recognisable(handler: LifecycleHandler): LifecycleHandler {
  const kinds = Object.entries(handler).map(([kind, value]) => {
    const alone = { [kind]: value };
    if (HOOKS.Hold.recognise(alone) !== undefined) return alone;
    return runsHelper(alone) ? { exec: { command: [HOLD_HELPER] } } : readableHook(alone);
  });
  return Object.assign({}, ...kinds) as LifecycleHandler;
}

interface Check {
  readonly members: readonly string[];
  readonly is: (value: unknown) => boolean;
  readonly must: Member['must'];
  readonly problem: string;
}

/** The checks for these members and, recursively, for members below them. */
function checksOf(rows: Members, above: readonly string[] = []): readonly Check[] {
  return Object.entries(rows).flatMap(([name, { must, isRequired, members: own = {} }]): readonly Check[] => {
    const members = [...above, name];
    const below = checksOf(own, members);
    if (must === undefined) return below;
    const [is, expected] = must;
    const isRight = isRequired ? is : (value: unknown) => isAbsentOr(is, value);
    return [{ members, is: isRight, must, problem: `${members.join('.')}: expected ${expected}` }, ...below];
  });
}

const POD_CHECKS = checksOf({ metadata: POD_MEMBERS.metadata, spec: { members: SPEC } });
const CONTAINER_CHECKS = checksOf(CONTAINER);

/**
 * Checks the members that the decision reads, and only those: all else is the API server's to judge.
 * @returns what is wrong, as `path: expected …`, or undefined when the object can be read as a {@link Pod}
 */
export function podProblemOf(object: unknown): string | undefined {
  if (!isRecord(object)) return 'object: expected a Pod';
  const { kind, apiVersion, spec } = object;
  if ((kind ?? 'Pod') !== 'Pod' || (apiVersion ?? 'v1') !== 'v1') return 'kind: expected v1 Pod';
  const wrong = POD_CHECKS.find(({ members, is }) => !is(memberAt(object, members)));
  if (wrong !== undefined) {
    const members = nonTexts(memberAt(object, wrong.members));
    const isMap = wrong.must === TEXT_MAP && members.length > 0;
    return isMap ? `${wrong.problem}, got ${fewOf(members)}` : wrong.problem;
  }
  if (!isRecord(spec)) return 'spec: expected an object';
  if (!Array.isArray(spec.containers)) return 'spec.containers: expected a list';
  const initContainers = spec.initContainers ?? [];
  if (!Array.isArray(initContainers)) return 'spec.initContainers: expected a list of containers';
  return problemIn('spec.containers', spec.containers) ?? problemIn('spec.initContainers', initContainers);
}

function problemIn(path: string, containers: readonly unknown[]): string | undefined {
  for (const [index, container] of containers.entries()) {
    const problem = containerProblemOf(container);
    if (problem !== undefined) return `${path}[${index}]${problem}`;
    const handler = (container as Container).lifecycle?.preStop;
    const reading = handler ? readHook(handler) : undefined;
    if (reading?.kind === 'broken') return `${path}[${index}].lifecycle.preStop: ${reading.why}`;
  }
  return undefined;
}

/** @returns undefined for a {@link Container}, as far as it is read */
function containerProblemOf(value: unknown): string | undefined {
  if (!isRecord(value)) return ': expected a container';
  const wrong = CONTAINER_CHECKS.find(({ members, is }) => !is(memberAt(value, members)));
  return wrong && `.${wrong.problem}`;
}

function isOwnerList(value: unknown): value is readonly OwnerReference[] {
  const isOwner = (each: unknown) => isRecord(each) && isString(each.kind) && isString(each.name);
  return Array.isArray(value) && value.every(isOwner);
}
