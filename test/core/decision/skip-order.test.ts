import { describe, expect, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import type { Decision } from '../../../src/core/decision/plan.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { OVERRIDABLE, SKIP_REASONS, type SkipReason } from '../../../src/core/decision/reasons.ts';
import { samplePlan } from './sample-plan.ts';
import {
  creationOf,
  exec,
  type JsonObject,
  ownedBy,
  type PodObject,
  pod,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { type Circumstances, clusterPolicy, OLD_FLEET, snapshotOf } from './sample-snapshot.ts';

interface Draft {
  operation: string;
  pod: PodObject;
  spec: JsonObject;
  circumstances: Circumstances;
}

/** What brings each reason about, so that two can be brought about at once. */
const CAUSES: { readonly [R in Exclude<SkipReason, 'InternalError'>]: (draft: Draft) => void } = {
  NotPodCreate: (draft) => {
    draft.operation = 'UPDATE';
  },
  InvalidPod: ({ pod: object }) => {
    object.kind = 'Node';
  },
  TooLarge: (draft) => annotate(draft, 'note', 'x'.repeat(256 * 1024)),
  MirrorPod: (draft) => annotate(draft, 'kubernetes.io/config.mirror', 'abc'),
  OptedOut: (draft) => annotate(draft, 'linger.dev/inject', 'false'),
  ModeOff: ({ spec }) => {
    spec.mode = 'Off';
  },
  AlreadyInjected: (draft) => {
    annotate(draft, 'linger.dev/plan', samplePlan());
    draft.pod.spec.terminationGracePeriodSeconds = 60;
    Object.assign(draft.pod.spec.containers[0] as JsonObject, preStop(sleep(30)));
  },
  Job: (draft) => Object.assign(draft.pod.metadata, ownedBy('Job')),
  RestartPolicy: ({ pod: object }) => {
    object.spec.restartPolicy = 'Never';
  },
  DaemonSet: (draft) => Object.assign(draft.pod.metadata, ownedBy('DaemonSet')),
  ExcludedKind: (draft) => {
    draft.spec.exclude = ['StatefulSet'];
    Object.assign(draft.pod.metadata, ownedBy('StatefulSet'));
  },
  ZeroGrace: ({ pod: object }) => {
    object.spec.terminationGracePeriodSeconds = 0;
  },
  NotServing: ({ pod: object }) => {
    for (const each of object.spec.containers) delete each.ports;
  },
  DrainsItself: ({ pod: object }) => {
    object.metadata.labels = { app: 'web', 'serving.knative.dev/revision': 'web-00001' };
  },
  NoContainer: ({ spec }) => {
    spec.containers = ['absent'];
  },
  ExistingHook: ({ pod: object }) => {
    Object.assign(object.spec.containers[0] as JsonObject, preStop(exec('/drain')));
  },
  NoHook: (draft) => {
    draft.spec.hook = 'Sleep';
    draft.circumstances = { ...draft.circumstances, fleet: OLD_FLEET };
  },
  NoWait: ({ spec }) => {
    spec.wait = { from: 'Fixed', fixed: '0s' };
  },
  NoRoom: ({ pod: object, spec }) => {
    object.spec.terminationGracePeriodSeconds = 9;
    spec.grace = { max: '9s' };
  },
};

function annotate({ pod: { metadata } }: Draft, key: string, value: string): void {
  metadata.annotations = { ...(metadata.annotations as JsonObject | undefined), [key]: value };
}

/** Causes that write the same member of the pod, so that they cannot hold at once. */
const INCOMPATIBLE: readonly (readonly SkipReason[])[] = [
  ['Job', 'DaemonSet', 'ExcludedKind'],
  ['AlreadyInjected', 'ZeroGrace', 'NoRoom'],
  ['AlreadyInjected', 'ExistingHook'],
];

const reasons = (Object.keys(SKIP_REASONS) as SkipReason[]).filter(
  (reason) => reason !== 'InternalError',
) as (keyof typeof CAUSES)[];
const PAIRS = reasons
  .flatMap((first, index) => reasons.slice(index + 1).map((second) => [first, second] as const))
  .filter((pair) => !INCOMPATIBLE.some((group) => pair.every((reason) => group.includes(reason))));

test.each(reasons)('%s skips a pod, which stays as it is', (reason) => {
  const draft = draftOf(reason);
  const decision = decisionOn(draft);
  expect(decision).toMatchObject({ outcome: 'skip', reason });
  expect(patchFor(draft.pod as unknown as Pod, decision)).toEqual([]);
});

describe('linger.dev/inject: "true"', () => {
  // OptedOut is its opposite.
  test.each(reasons.filter((reason) => reason !== 'OptedOut'))('and %s', (reason) => {
    const draft = draftOf(reason);
    annotate(draft, 'linger.dev/inject', 'true');
    const expected = OVERRIDABLE.has(reason) ? { outcome: 'inject' } : { outcome: 'skip', reason };
    expect(decisionOn(draft)).toMatchObject(expected);
  });

  test('overrides all of them at once', () => {
    const both = draftOf('NotServing', 'DaemonSet', 'DrainsItself');
    annotate(both, 'linger.dev/inject', 'true');
    expect(decisionOn(both)).toMatchObject({ outcome: 'inject' });
  });
});

/** The causes of these, the last first. */
function draftOf(...causes: readonly (keyof typeof CAUSES)[]): Draft {
  const draft: Draft = {
    operation: 'CREATE',
    pod: pod(),
    spec: {},
    circumstances: { servicesComplete: true },
  };
  for (const cause of causes.toReversed()) CAUSES[cause](draft);
  return draft;
}

function decisionOn({ pod: object, operation, spec, circumstances }: Draft): Decision {
  return decide(creationOf(object, { operation }), snapshotOf([clusterPolicy(spec)], circumstances));
}

describe('where two reasons hold, the first in the catalogue’s order is reported', () => {
  test.each(PAIRS)('%s before %s', (first, second) => {
    expect(decisionOn(draftOf(first, second))).toMatchObject({ outcome: 'skip', reason: first });
  });

  const longEnough = pod({
    containers: [server('app', preStop(sleep(60)))],
    terminationGracePeriodSeconds: 90,
  });
  test.each<[string, JsonObject, Circumstances]>([
    ['NoHook', { existingHook: 'Extend', hook: 'Sleep' }, { fleet: OLD_FLEET }],
    ['NoWait', { existingHook: 'Extend', wait: { from: 'Fixed', fixed: '0s' } }, {}],
  ])('ExistingHook before %s, where Extend finds a hook that is long enough', (_, spec, circumstances) => {
    const decision = decide(creationOf(longEnough), snapshotOf([clusterPolicy(spec)], circumstances));
    expect(decision).toMatchObject({ outcome: 'skip', reason: 'ExistingHook' });
  });
});
