import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { decide, type Pod, patchFor } from '../../src/core/decision/index.ts';
import { generatedPods } from '../core/decision/arbitrary-pod.ts';
import { type GoldenCase, loadGoldenCases } from '../core/decision/golden-cases.ts';
import { HOLD_MOUNTS, heldSnapshot, tokenIn } from '../core/decision/sample-hold.ts';
import { pass } from '../core/decision/sample-pass.ts';
import { type JsonObject, type PodObject, patched, podOf, server } from '../core/decision/sample-pod.ts';
import { clusterPolicy } from '../core/decision/sample-snapshot.ts';
import { noSleepZero, RESTRICTED, sentTo } from './support/manifests.ts';
import { openStage, type Stage } from './support/stage.ts';

const SEED = 20_261_121;
const COUNT = 200;
/** Requests that are under way at once. */
const PARALLEL = 10;

const HELD = { hook: 'Hold', pods: 'All', overrides: { pods: false } };

interface Answer {
  readonly pod: JsonObject;
  readonly status: number;
  readonly message: string;
}

describe('a real API server accepts', () => {
  let stage: Stage;
  /** Where the API server does not ask Linger. */
  let unasked = '';
  let asked = '';

  beforeAll(async () => {
    stage = await openStage();
    unasked = await stage.cluster.namespace('accepted-unasked', { 'linger.dev/inject': 'false' });
    asked = await stage.cluster.namespace('accepted');
  });

  afterAll(() => stage?.close());

  async function send(pod: JsonObject, namespace: string): Promise<Answer> {
    const { status, body } = await stage.cluster.tryCreate<{ message?: string }>(sentTo(namespace, pod), {
      dryRun: true,
    });
    return { pod, status, message: body.message ?? '' };
  }

  async function sendAll(pods: readonly JsonObject[], namespace: string): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (let from = 0; from < pods.length; from += PARALLEL) {
      answers.push(
        ...(await Promise.all(pods.slice(from, from + PARALLEL).map((pod) => send(pod, namespace)))),
      );
    }
    return answers;
  }

  const acceptable = <T extends object>(pods: readonly T[]) =>
    pods.filter((each) => noSleepZero(each, stage.cluster) === undefined);

  const refusals = (answers: readonly Answer[]) =>
    answers
      .filter(({ status }) => status !== 201)
      .map(({ pod, message }) => `${message}\n${JSON.stringify(pod)}`);

  describe('each golden patch', () => {
    it.for(loadGoldenCases())('$name', async ({ pod, request, snapshot }: GoldenCase, { skip }) => {
      const why = noSleepZero(pod, stage.cluster);
      if (why !== undefined) return skip(why);
      expect(refusals([await send(pod, unasked)]), 'the pod as its author wrote it').toEqual([]);
      const operations = patchFor(pod as unknown as Pod, decide(request, snapshot));
      expect(refusals([await send(patched(pod, operations), unasked)]), 'the patched pod').toEqual([]);
    });
  });

  it(`each of ${COUNT} generated pods, when Linger is asked about it`, async () => {
    const pods = acceptable(generatedPods(SEED, COUNT));
    expect(refusals(await sendAll(pods, unasked)), 'as generated: if not, the generator is wrong').toEqual(
      [],
    );
    const before = (await stage.linger.decisions(asked)).length;
    const answers = await sendAll(pods, asked);
    const decisions = (await stage.linger.decisions(asked)).slice(before);
    console.log(tally(answers, decisions));
    expect(refusals(answers), 'with Linger').toEqual([]);
    // Otherwise this proves little.
    expect(decisions.filter(({ outcome }) => outcome === 'inject').length).toBeGreaterThan(COUNT / 10);
  });

  describe('pods that are held', () => {
    const image = 'registry.example/linger-hold:1';
    const SNAPSHOTS = [
      ['ConfigMap', heldSnapshot([clusterPolicy(HELD)])],
      [
        'Image',
        heldSnapshot([clusterPolicy({ ...HELD, hold: { delivery: 'Image' } })], { supply: { image } }),
      ],
    ] as const;

    it.each(SNAPSHOTS)(
      'by %s: each of the generated pods, also after its grace was cut',
      async (_, snapshot) => {
        const held = acceptable(generatedPods(SEED, COUNT)).map((each) => pass(each, snapshot).result);
        const cut = held.map((each) => {
          const clamped = structuredClone(each);
          clamped.spec.terminationGracePeriodSeconds = Math.ceil(
            Number(each.spec.terminationGracePeriodSeconds) / 2,
          );
          return pass(clamped, snapshot).result;
        });
        const count = held.filter((each) => tokenIn(each) !== undefined).length;
        expect(count).toBeGreaterThan(COUNT / 10);
        expect(refusals(await sendAll(held, unasked))).toEqual([]);
        // A sleep of its author's may be longer than the grace now, for which Linger is not answerable.
        const authors = (each: PodObject) =>
          each.spec.containers.some(({ lifecycle }) => JSON.stringify(lifecycle ?? {}).includes('"sleep":{'));
        const sent = cut.filter((each) => tokenIn(each) !== undefined && !authors(each));
        expect(sent.length).toBeGreaterThan(COUNT / 20);
        expect(refusals(await sendAll(sent, unasked))).toEqual([]);
      },
    );

    it.for(SNAPSHOTS)(
      'by %s, under Pod Security baseline and restricted, with nothing dropped',
      async ([delivery, snapshot], { skip }) => {
        const { minor } = stage.cluster;
        if (delivery === 'Image' && minor < 35)
          return skip(`Kubernetes 1.${minor} drops image volumes, which are served by default from 1.35 on`);
        for (const level of ['baseline', 'restricted']) {
          const namespace = await stage.cluster.namespace(`accepted-${level}`, {
            'linger.dev/inject': 'false',
            'pod-security.kubernetes.io/enforce': level,
          });
          const { result: passed } = pass(podOf(server('app', RESTRICTED)), snapshot);
          // Or the API server adds a volume and its mount.
          const result: typeof passed = {
            ...passed,
            spec: { ...passed.spec, automountServiceAccountToken: false },
          };
          const { status, body } = await stage.cluster.tryCreate<PodObject & { message?: string }>(
            sentTo(namespace, result),
            { dryRun: true },
          );
          expect(status, body.message).toBe(201);
          expect(body.spec.volumes).toMatchObject(result.spec.volumes as object[]);
          expect(body.spec.containers[0]).toMatchObject(result.spec.containers[0] ?? {});
          expect(result.spec.containers[0]).toHaveProperty('volumeMounts', HOLD_MOUNTS);
        }
      },
    );
  });

  function tally(
    answers: readonly Answer[],
    decisions: readonly { outcome: string; reason: string }[],
  ): string {
    const counts = new Map<string, number>([['not asked', answers.length - decisions.length]]);
    for (const { outcome, reason } of decisions) {
      const key = reason === '' ? outcome : reason;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const lines = [...counts].map(([key, count]) => `${String(count).padStart(5)}  ${key}`);
    return `${answers.length} generated pods\n${lines.toSorted().toReversed().join('\n')}`;
  }
});
