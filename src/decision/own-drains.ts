import { labelOf, memberAt } from '../api/index.ts';
import { preStopOf } from './containers.ts';
import { type Container, labelsOf, type Pod, servingContainers } from './pod.ts';

/** A kind of workload that drains by itself when its termination begins, so that a wait would undo or delay that. */
interface OwnDrain {
  readonly workload: string;
  /** As the end of "a wait would …". */
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

/** Why the pod is one that drains by itself, as a sentence; undefined: it is none that is known. */
export function ownDrainOf(pod: Pod): string | undefined {
  const known = OWN_DRAINS.find(({ isKnownBy }) => isKnownBy(pod));
  return known && `this is ${known.workload}, which drains by itself: a wait would ${known.harm}`;
}

function hasContainer(pod: Pod, name: string): boolean {
  return servingContainers(pod).some((each) => each.name === name);
}

/** Whether the hook of some container calls such a path. */
function calls(pod: Pod, path: RegExp): boolean {
  return pod.spec.containers.some((container) => path.test(calledPath(container)));
}

function calledPath(container: Container): string {
  return String(memberAt(preStopOf(container), ['httpGet', 'path']) ?? '');
}
