import {
  type HookReading,
  type LifecycleHandler,
  labelOf,
  leastSecondsOf,
  memberAt,
  plainSleep,
  readHook,
  readingInWords,
  textOf,
} from '../api/index.ts';
import {
  type Container,
  endsByItself,
  isWindows,
  labelsOf,
  nativeSidecars,
  type Pod,
  probeGraceOf,
  servingContainers,
} from './pod.ts';
import type { EffectivePolicy } from './policy-values.ts';
import { type Note, note } from './reasons.ts';

export interface Target {
  readonly container: Container;
  /**
   * How long the author's preStop hook sleeps, in seconds: 0 without a hook, infinite where Linger must not change the hook.
   */
  readonly sleeps: number;
}

/**
 * The containers that carry Linger's wait. Value: the seconds of the author's own sleep where Linger has lengthened that;
 * undefined for a hook of Linger's own.
 */
export type Carriers = ReadonlyMap<string, number | undefined>;
export const NO_CARRIERS: Carriers = new Map();

/**
 * The ordinary containers that the policy names (all, where it names none). Containers that exit by themselves are left out:
 * a native sleep would outlive them. Native sidecars are init containers and so never among them: the kubelet sends their
 * SIGTERM only when the ordinary ones have ended. Source: KEP-753.
 * @param standing the containers that already carry a wait: they stay targets, whatever the policy says
 */
export function targetsOf(pod: Pod, policy: EffectivePolicy, standing: Carriers): readonly Target[] {
  const names = policy.containers.value;
  const named = names.length === 0 ? undefined : new Set(names);
  const targets: Target[] = [];
  for (const container of pod.spec.containers) {
    const { name } = container;
    if (standing.has(name)) targets.push({ container, sleeps: standing.get(name) ?? 0 });
    else if (named?.has(name) !== false && !endsByItself(pod, container))
      targets.push({ container, sleeps: sleepOf(container, policy) });
  }
  return targets;
}

export function preStopOf({ lifecycle }: Container): LifecycleHandler | undefined {
  return lifecycle?.preStop ?? undefined;
}

function sleepOf(container: Container, policy: EffectivePolicy): number {
  const handler = preStopOf(container);
  if (handler === undefined) return 0;
  const sleep = policy.existingHook.value === 'Extend' ? plainSleep(handler) : undefined;
  return sleep?.seconds ?? Number.POSITIVE_INFINITY;
}

export function shortestOf(sleeps: readonly number[]): number | undefined {
  const own = sleeps.filter((seconds) => seconds > 0 && seconds !== Number.POSITIVE_INFINITY);
  return own.length === 0 ? undefined : Math.min(...own);
}

/**
 * The targets that this wait changes: those without a hook, and authors' sleeps if the shortest of them is shorter than the
 * wait (or equally short, beside a container without a hook). All sleeps rise by the same number of seconds, so that their
 * order stays.
 */
export function changedBy(targets: readonly Target[], wait: number): readonly Target[] {
  const hasBare = targets.some(({ sleeps }) => sleeps === 0);
  const shortest = shortestOf(targets.map(({ sleeps }) => sleeps)) ?? Number.POSITIVE_INFINITY;
  const extends_ = hasBare ? shortest <= wait : shortest < wait;
  return targets.filter(
    ({ sleeps }) => sleeps !== Number.POSITIVE_INFINITY && (sleeps === 0 ? wait > 0 : extends_),
  );
}

/**
 * Whether every target keeps its author's hook, because Linger must not change it or because it sleeps for the whole wait
 * already.
 */
export function isAllKept(targets: readonly Target[], wait: number): boolean {
  return targets.every(({ sleeps }) => sleeps > 0) && changedBy(targets, wait).length === 0;
}

/** Notes that apply to any outcome: container names that do not exist, containers that end. */
export function targetNotes(pod: Pod, policy: EffectivePolicy): readonly Note[] {
  const { value: named, origin } = policy.containers;
  const notes: Note[] = [];
  if (named.length > 0) {
    const present = new Set(pod.spec.containers.map(({ name }) => name));
    const unknown = named.filter((name) => !present.has(name));
    const text = `${origin} names ${listed(unknown)}, which the pod does not have`;
    if (unknown.length > 0) notes.push(note('UnknownContainer', text));
  }
  const ending = pod.spec.containers.filter((each) => endsByItself(pod, each)).map(({ name }) => name);
  if (ending.length > 0) {
    const text = `${listed(ending)}: no wait, since the restart policy is not Always and a sleep would outlive what has exited`;
    notes.push(note('ContainerEnds', text));
  }
  return notes;
}

/**
 * How one container terminates. Notes and findings are all derived from the table of these rows. All times in seconds; those
 * of hooks may have fractions.
 */
export interface ContainerWait {
  readonly container: Container;
  /**
   * A native sidecar: its hook runs at second 0 like all others, its SIGTERM comes when the ordinary containers have
   * ended.
   */
  readonly sidecar: boolean;
  /** It exits by itself, so it serves no traffic of its own. */
  readonly ends: boolean;
  /** Its author's own hook; undefined: it has none. */
  readonly own: HookReading | undefined;
  /** Linger's wait, given now or by an earlier pass; undefined: none. */
  readonly wait: number | undefined;
  /** How long SIGTERM is delayed in total, by whichever hook; see {@link leastSecondsOf} for the lower bound. */
  readonly held: HookReading;
  /** The pod's grace after all changes. */
  readonly grace: number;
}

const NOT_HELD: HookReading = { kind: 'exact', seconds: 0 };

/**
 * @param pod without Linger's hooks
 * @param given by container: Linger's wait
 */
export function containerTable(
  pod: Pod,
  grace: number,
  given: ReadonlyMap<string, number>,
): readonly ContainerWait[] {
  const row = (container: Container, sidecar: boolean): ContainerWait => {
    const handler = preStopOf(container);
    const own = handler && (unlessMissing(pod, container, handler) ?? readHook(handler));
    const wait = sidecar ? undefined : given.get(container.name);
    const held: HookReading = wait === undefined ? (own ?? NOT_HELD) : { kind: 'exact', seconds: wait };
    return { container, sidecar, ends: !sidecar && endsByItself(pod, container), own, wait, held, grace };
  };
  return [
    ...pod.spec.containers.map((each) => row(each, false)),
    ...nativeSidecars(pod).map((each) => row(each, true)),
  ];
}

/** Programs that Windows images do not have, and shells, which they may have. */
const UNIX_SLEEP = /(^|\/)sleep$/;
const UNIX_SHELL = /(^|\/)(ba|da|a|z|k)?sh$/;
/**
 * Images without a shell: Google’s distroless ones, also from mirrors but not the debug variants, and Chainguard’s static
 * ones.
 */
const WITHOUT_SHELL =
  /^gcr\.io\/distroless\/(?!.*debug)|\/distroless\/(static|base|cc|java|nodejs)(?!.*debug)|^cgr\.dev\/chainguard\/static(?!.*dev)/;

/**
 * Linger does not rely on such a program in its own hooks, so it does not in an author's either: where the image lacks it,
 * the hook fails at once.
 */
function unlessMissing(pod: Pod, { image }: Container, handler: LifecycleHandler): HookReading | undefined {
  const command = memberAt(handler, ['exec', 'command']);
  const program = Array.isArray(command) ? textOf(command[0]) : '';
  const fails = (why: string): HookReading => ({
    kind: 'exact',
    seconds: 0,
    why: `it fails at once: ${why}`,
  });
  if (isWindows(pod)) {
    if (UNIX_SLEEP.test(program)) return fails('no image for Windows has the program sleep');
    return UNIX_SHELL.test(program) ? { kind: 'unknown' } : undefined;
  }
  const isBare = typeof image === 'string' && WITHOUT_SHELL.test(image);
  const isMissing = isBare && (UNIX_SLEEP.test(program) || UNIX_SHELL.test(program));
  return isMissing ? fails(`the image has no ${program}`) : undefined;
}

/**
 * The kubelet grants at least this many seconds after the hook. Source: pkg/kubelet/kuberuntime
 * (minimumGracePeriodInSeconds).
 */
const LEAST_GRACE = 2;

/**
 * Whether the hook uses up the grace, so that the application is killed as soon as it gets SIGTERM. The hook of a native
 * sidecar does not delay the application; it counts only if the API server rejects it.
 */
export function eatsGrace(row: ContainerWait): boolean {
  const least = leastSecondsOf(row.held);
  return row.sidecar ? isRejected(row) : least > 0 && least > row.grace - LEAST_GRACE;
}

/** Source: KEP-3960. */
function isRejected({ container, held, grace }: ContainerWait): boolean {
  return preStopOf(container)?.sleep !== undefined && leastSecondsOf(held) > grace;
}

/** Seconds. No pod has such a grace, so a longer sleep is meant never to end. */
const A_DAY = 86_400;

/** The consequence of a hook that uses up the grace, and the fix. */
export function eatenInWords(row: ContainerWait): string {
  const { container, held, grace } = row;
  const effect = isRejected(row)
    ? 'the API server rejects the pod'
    : `the application is killed ${LEAST_GRACE}s after SIGTERM`;
  const cure =
    leastSecondsOf(held) >= A_DAY
      ? 'let the hook end, or remove it, as no grace is long enough'
      : 'raise terminationGracePeriodSeconds by the length of the hook';
  return `container ${quoted(container.name)}: its own hook ${readingInWords(held)}, and the grace is ${grace}s, so ${effect}; ${cure}`;
}

/** Whether SIGTERM certainly arrives before `wait` seconds have passed. */
export function waitsLess({ held, sidecar, ends }: ContainerWait, wait: number): boolean {
  return !sidecar && !ends && held.kind === 'exact' && held.seconds < wait;
}

/**
 * The shortest guaranteed delay of SIGTERM among containers that get traffic but no wait from Linger; undefined: none is
 * below `wait`.
 * @param named the only containers with traffic, as the policy says; empty: all
 */
export function leastOf(table: readonly ContainerWait[], wait: number, named: readonly string[]) {
  const isNamed = ({ name }: Container) => named.length === 0 || named.includes(name);
  const others = table.filter((row) => row.wait === undefined && !row.sidecar && !row.ends);
  const serving = others.filter(({ container }) => isNamed(container));
  const least = Math.floor(Math.min(...serving.map(({ held }) => leastSecondsOf(held))));
  return least < wait ? least : undefined;
}

/**
 * Notes on the pod with all changes applied.
 * @param wait of the plan; undefined: the pod gets none
 * @param longest the longest that Linger delays SIGTERM
 */
export function tableNotes(
  table: readonly ContainerWait[],
  wait: number | undefined,
  longest: number,
): readonly Note[] {
  const notes: Note[] = [];
  const partial: string[] = [];
  for (const row of table) {
    const { container, own, sidecar, wait: given } = row;
    const subject = () => `container ${quoted(container.name)}`;
    if (sidecar && own !== undefined && own.kind !== 'exact')
      notes.push(note('SidecarHook', sidecarText(container)));
    else if (given !== undefined && own !== undefined)
      notes.push(
        note('HookExtended', `${subject()}: its sleep of ${leastSecondsOf(own)}s becomes ${given}s`),
      );
    else if (!sidecar && own !== undefined)
      notes.push(
        note('ExistingHookKept', `${subject()} keeps its own preStop hook, which ${readingInWords(own)}`),
      );
    if (given === undefined && eatsGrace(row)) notes.push(note('GraceEaten', eatenInWords(row)));
    const probeGrace = given === undefined ? Number.POSITIVE_INFINITY : probeGraceOf(container);
    if (probeGrace < longest) {
      const text = `${subject()}: a failing probe gives it ${probeGrace}s, less than the wait of ${longest}s`;
      notes.push(note('ProbeGraceShort', text));
    }
    if (wait !== undefined && given === undefined && waitsLess(row, wait)) partial.push(container.name);
  }
  if (partial.length > 0) {
    const text = `${listed(partial)}: no wait of ${wait}s; SIGTERM may come sooner than in the others`;
    notes.push(note('PartialWait', text));
  }
  return notes;
}

function sidecarText(container: Container): string {
  const handler = preStopOf(container) ?? {};
  const path = memberAt(handler, ['httpGet', 'path']);
  const what = typeof path === 'string' ? ` (httpGet ${path.slice(0, LONGEST_NAME)})` : '';
  return `native sidecar ${quoted(container.name)}: its own preStop hook${what} runs at second 0, beside the wait, so what it does (such as draining) begins while the pod still gets requests`;
}

const MOST_LISTED = 3;
const LONGEST_NAME = 63;

/** `container "a"`, `containers "a", "b" and 5 more`: an annotation may name thousands. */
export function listed(names: readonly string[]): string {
  const shown = names.slice(0, MOST_LISTED).map(quoted).join(', ');
  const more = names.length > MOST_LISTED ? ` and ${names.length - MOST_LISTED} more` : '';
  return `${names.length === 1 ? 'container' : 'containers'} ${shown}${more}`;
}

export function quoted(name: string): string {
  return `"${name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}...` : name}"`;
}

/** A kind of workload that drains by itself when its termination begins, so that a wait would disrupt or delay its drain. */
interface OwnDrain {
  readonly workload: string;
  /** The effect of a wait, as the end of the sentence "a wait would …". */
  readonly harm: string;
  isKnownBy(pod: Pod): boolean;
}

const OWN_DRAINS: readonly OwnDrain[] = [
  {
    workload: 'a Knative revision',
    // queue-proxy cancels the drain when its own SIGTERM does not follow user-container's /wait-for-drain within a
    // second. Source: knative.dev/serving pkg/queue/sharedmain and pkg/queue/drain.
    harm: 'cancel the drain of queue-proxy, and the application would stop after a second',
    isKnownBy: (pod) =>
      labelOf(labelsOf(pod), 'serving.knative.dev/revision') !== undefined ||
      (hasContainer(pod, 'queue-proxy') && calls(pod, /^\/wait-for-drain$/)),
  },
  {
    workload: 'an Envoy with a shutdown manager (Contour, Envoy Gateway)',
    // Envoy's hook holds its SIGTERM until the manager has seen its connections go; the manager begins at second 0.
    // Source: projectcontour/contour cmd/contour/shutdownmanager.go, envoyproxy/gateway internal/cmd/envoy.
    harm: 'add to a drain that begins at second 0 and ends when the last connection has gone',
    isKnownBy: (pod) =>
      hasContainer(pod, 'shutdown-manager') && hasContainer(pod, 'envoy') && calls(pod, /^\/shutdown/),
  },
  {
    workload: 'a game server of Agones',
    // Its clients have its address from an allocation, and its SDK server ends it with its session.
    harm: 'only delay its end: players find it by an allocation, and not through endpoints',
    isKnownBy: (pod) => labelOf(labelsOf(pod), 'agones.dev/gameserver') !== undefined,
  },
];

/** Why the pod needs no wait because it drains by itself, as a sentence; undefined: it is not known to. */
export function ownDrainOf(pod: Pod): string | undefined {
  const known = OWN_DRAINS.find(({ isKnownBy }) => isKnownBy(pod));
  return known && `this is ${known.workload}, which drains by itself: a wait would ${known.harm}`;
}

function hasContainer(pod: Pod, name: string): boolean {
  return servingContainers(pod).some((each) => each.name === name);
}

/** Whether a preStop hook of some container calls such a path. */
function calls(pod: Pod, path: RegExp): boolean {
  return pod.spec.containers.some((container) => path.test(calledPath(container)));
}

function calledPath(container: Container): string {
  return textOf(memberAt(preStopOf(container), ['httpGet', 'path']));
}
