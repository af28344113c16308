import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { appContainer, pod, preStop, silentContainer } from './support/manifests.ts';
import { addContainer, clampGrace, graceOf, Neighbour, type NeighbourOptions } from './support/neighbour.ts';
import { createPod, type Outcome, planOf, summaryOf } from './support/outcome.ts';
import { clusterPolicy, policyFile } from './support/policies.ts';
import { openStage, type Stage } from './support/stage.ts';
import { isReady } from './support/termination.ts';

/** What stays of a plan whose hooks were taken back: so that another pass does not put them in again. */
const WITHDRAWN = { wait: 0, containers: [] };

/** Under the built-in policy: wait 30, grace 30 + 30. */
describe('beside another mutating webhook', () => {
  let stage: Stage;

  beforeAll(async () => {
    stage = await openStage();
  });

  afterAll(() => stage?.close());

  /** A pod created with a neighbour in place, and kept until `look` has seen it. */
  async function beside(
    neighbour: Omit<NeighbourOptions, 'namespace'>,
    look: (outcome: Outcome, namespace: string) => Promise<void> | void,
    written: Parameters<typeof pod>[2] = {},
  ): Promise<void> {
    const namespace = await stage.cluster.namespace('neighbours');
    const other = await Neighbour.start(stage.cluster, { ...neighbour, namespace });
    try {
      await look(await createPod(stage, pod(namespace, 'app', written)), namespace);
    } finally {
      await other.stop();
    }
  }

  // The containers of a pod share its ports.
  const added = addContainer(silentContainer('mesh', { env: [{ name: 'PORT', value: '8090' }] }));

  it('that comes later and adds a container: it gets its hook too, and there is one plan', async () => {
    await beside({ name: 'z-mesh-injector', mutate: added }, async (outcome, namespace) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 30, mesh sleep 30; grace 60');
      expect(planOf(outcome.pod)).toMatchObject({
        wait: 30,
        grace: 60,
        baseGrace: 30,
        containers: ['app', 'mesh'],
      });
      await stage.cluster.waitFor(pod(namespace, 'app', {}), isReady);
    });
  });

  it('that comes earlier and adds a container: both get their hooks in one pass', async () => {
    await beside({ name: 'a-mesh-injector', mutate: added }, (outcome) => {
      // Asked again all the same: the API server's own plugins mount the token into the added container only now.
      expect(summaryOf(outcome)).toBe(
        'Injected, then AlreadyInjected: app sleep 30, mesh sleep 30; grace 60',
      );
    });
  });

  it('that puts a container in front: no hook lands on the wrong one', async () => {
    const first = { op: 'add', path: '/spec/containers/0', value: appContainer('front', {}, 8090) } as const;
    const mutate: NeighbourOptions['mutate'] = ({ spec }) =>
      spec.containers[0]?.name === 'front' ? [] : [first];
    await beside({ name: 'z-mesh-injector', mutate }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: front sleep 30, app sleep 30; grace 60');
    });
  });

  it('that only looks: Linger is not asked again', async () => {
    await beside({ name: 'z-onlooker', mutate: () => [] }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected: app sleep 30; grace 60');
    });
  });

  it('that changes something else: the second answer changes nothing', async () => {
    const label = [{ op: 'add', path: '/metadata/labels', value: { team: 'shop' } }] as const;
    await beside({ name: 'z-labeller', mutate: () => label }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then AlreadyInjected: app sleep 30; grace 60');
    });
  });

  it('that clamps the grace to 50: the wait shrinks, and the pod is accepted', async () => {
    await beside({ name: 'z-policy-engine', mutate: clampGrace(50) }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 20; grace 50');
      expect(planOf(outcome.pod)).toMatchObject({ wait: 20, grace: 50, baseGrace: 30 });
    });
  });

  it('that comes earlier, is asked again and clamps the grace to 50: the same', async () => {
    const again = { name: 'a-policy-engine', reinvocationPolicy: 'IfNeeded' } as const;
    await beside({ ...again, mutate: clampGrace(50) }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 20; grace 50');
    });
  });

  /** As a rule of Kyverno's, whose webhooks are asked again. */
  const setting = { name: 'a-policy-engine', reinvocationPolicy: 'IfNeeded' } as const;

  it('that comes earlier, is asked again and sets the grace to 20: the wait shrinks to what it leaves', async () => {
    await beside({ ...setting, mutate: graceOf(20) }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 2; grace 20');
      expect(planOf(outcome.pod)).toMatchObject({ wait: 2, grace: 20, baseGrace: 20 });
    });
  });

  it('that sets the grace to 20, but not of pods with a plan: the wait is added to it', async () => {
    const mutate: NeighbourOptions['mutate'] = (object) =>
      planOf(object) === undefined ? graceOf(20)(object) : [];
    await beside({ ...setting, mutate }, (outcome) => {
      expect(summaryOf(outcome)).toMatch(/^Injected(, then AlreadyInjected)?: app sleep 30; grace 50$/);
      expect(planOf(outcome.pod)).toMatchObject({ wait: 30, grace: 50, baseGrace: 20 });
    });
  });

  it('that clamps the grace to 5: the hook is taken back, and the pod is accepted', async () => {
    await beside({ name: 'z-policy-engine', mutate: clampGrace(5) }, ({ pod: stored, decisions }) => {
      expect(summaryOf({ pod: stored, decisions })).toBe('Injected, then NoRoom: app -; grace 5');
      expect(planOf(stored)).toMatchObject(WITHDRAWN);
    });
  });

  it('that sets the grace to 0: the hook is taken back, and the pod is accepted', async () => {
    await beside({ name: 'z-policy-engine', mutate: graceOf(0) }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then ZeroGrace: app -; grace 0');
      expect(planOf(outcome.pod)).toMatchObject(WITHDRAWN);
    });
  });

  it('that clamps the grace and adds a container: both are seen to', async () => {
    const mutate: NeighbourOptions['mutate'] = (object) => [...added(object), ...clampGrace(50)(object)];
    await beside({ name: 'z-policy-engine', mutate }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 20, mesh sleep 20; grace 50');
    });
  });

  /** A pod with a helper beside the application: both carry Linger's hook when the neighbour sees it. */
  const helped = { containers: [appContainer('app'), silentContainer('helper')] };

  it('that clamps the grace to 20 and removes one of two hooks: the pod is accepted', async () => {
    const drop = [{ op: 'remove', path: '/spec/containers/1/lifecycle' }] as const;
    const mutate: NeighbourOptions['mutate'] = (object) => [
      ...clampGrace(20)(object),
      ...(object.spec.containers[1]?.lifecycle === undefined ? [] : drop),
    ];
    const expected = 'Injected, then Injected: app sleep 2, helper sleep 2; grace 20';
    await beside(
      { name: 'z-policy-engine', mutate },
      (outcome) => expect(summaryOf(outcome)).toBe(expected),
      helped,
    );
  });

  it('that clamps the grace to 20 and replaces one of two hooks: the pod is accepted', async () => {
    const own = { preStop: { exec: { command: ['sh', '-c', 'true'] } } };
    const replace = [{ op: 'add', path: '/spec/containers/1/lifecycle', value: own }] as const;
    const mutate: NeighbourOptions['mutate'] = (object) => [
      ...clampGrace(20)(object),
      ...(object.spec.containers.length > 1 ? replace : []),
    ];
    const expected = 'Injected, then Injected: app sleep 2, helper ["sh","-c","true"]; grace 20';
    await beside(
      { name: 'z-policy-engine', mutate },
      (outcome) => expect(summaryOf(outcome)).toBe(expected),
      helped,
    );
  });

  it('that clamps the grace to 5 under a sleep that was lengthened: the author’s own comes back', async () => {
    await stage.linger.setPolicies(policyFile(clusterPolicy('base', { existingHook: 'Extend' })));
    const spec = { containers: [appContainer('app', preStop({ sleep: { seconds: 2 } }))] };
    const clamping = { name: 'z-policy-engine', mutate: clampGrace(5) };
    const expected = 'Injected, then NoRoom: app sleep 2; grace 5';
    await beside(clamping, (outcome) => expect(summaryOf(outcome)).toBe(expected), spec);
  });

  it('that removes the hook: it is put back, and the grace is raised once', async () => {
    const remove = [{ op: 'remove', path: '/spec/containers/0/lifecycle' }] as const;
    const mutate: NeighbourOptions['mutate'] = ({ spec }) =>
      spec.containers[0]?.lifecycle === undefined ? [] : remove;
    await beside({ name: 'z-hook-remover', mutate }, (outcome) => {
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 30; grace 60');
    });
  });
});
