import { describe, expect, it } from 'vitest';
import type { Answer } from '../../src/measurement/requests/probe.ts';
import { FlipModel, HUNG, type ModelConsumer, type ModelOptions, REFUSED } from './model-flip.ts';

const STRANGER: Answer = {
  reason: 'NotLinger',
  message: 'is answered by a stranger',
  turnedAway: false,
};
const REDIRECT: Answer = { reason: 'BadAnswer', message: 'is redirected (302)', turnedAway: false };
const ANOTHER_LINGER: Answer = { identity: 'a'.repeat(32) };

const consumer = (change: Partial<ModelConsumer> = {}): ModelConsumer => ({
  name: 'edge',
  lagMs: 3_000,
  ...change,
});

async function run(options: Partial<ModelOptions> & { readonly consumers: readonly ModelConsumer[] }) {
  const model = new FlipModel(options);
  const outcome = await model.run();
  return { model, outcome, of: (name: string) => outcome.consumers.get(name) ?? {} };
}

describe('a flip', () => {
  it.each([
    { lagMs: 0, addsMs: 0, fellows: 1 },
    { lagMs: 300, addsMs: 4_000, fellows: 2 },
    { lagMs: 12_000, addsMs: 50, fellows: 1 },
    { lagMs: 3_000, addsMs: 9_000, fellows: 0 },
    { lagMs: 150_000, addsMs: 60_000, fellows: 3 },
  ])('times a removal after $lagMs ms and an addition after $addsMs, with $fellows others', async (each) => {
    const { outcome, of, model } = await run({ fellows: each.fellows, consumers: [consumer(each)] });
    expect(outcome.result).toBe('Measured');
    const { removal, addition, trouble } = of('edge');
    expect(trouble).toBeUndefined();
    // Requests meet each of four replicas seldom: one flip is less exact than the mean of many.
    expect(Math.abs(removal! - each.lagMs / 1000)).toBeLessThan(0.15);
    expect(Math.abs(addition! - each.addsMs / 1000)).toBeLessThan(0.35);
    expect(model.patches).toEqual(['off', 'on']);
  });

  it('counts from when the slice shows it, not from the label', async () => {
    const { of } = await run({ controlPlaneMs: 20_000, consumers: [consumer({ lagMs: 1_000 })] });
    expect(Math.abs(of('edge').removal! - 1)).toBeLessThan(0.15);
  });

  it('times several consumers at once, each by itself', async () => {
    const lags = [0, 2_000, 9_000];
    const { of } = await run({ consumers: lags.map((lagMs) => consumer({ name: `c${lagMs}`, lagMs })) });
    for (const lagMs of lags) expect(Math.abs(of(`c${lagMs}`).removal! - lagMs / 1000)).toBeLessThan(0.15);
  });

  it('counts from when the slices of its own Service show it', async () => {
    const dns = consumer({ name: 'dns', service: 'linger-canary-dns', lagMs: 6_000 });
    const { of } = await run({ dnsSliceMs: 4_000, consumers: [consumer({ lagMs: 6_000 }), dns] });
    expect(Math.abs(of('edge').removal! - 6)).toBeLessThan(0.15);
    expect(Math.abs(of('dns').removal! - 2)).toBeLessThan(0.15);
  });

  it('counts for how long clients may keep the last answer', async () => {
    const { of } = await run({ consumers: [consumer({ lagMs: 1_000, heldMs: 30_000 })] });
    const { removal } = of('edge');
    // The last answer with the replica came up to some attempts before it was gone.
    expect(removal).toBeGreaterThan(30.6);
    expect(removal).toBeLessThan(31.05);
  });

  it('takes so many connections: what is seen before, what makes sure, and the way back', async () => {
    const { outcome } = await run({ consumers: [consumer({ lagMs: 100 })] });
    // About 18 before, 4 until it has followed, 40 to make sure, and 18 after; chance has its part.
    expect(outcome.attempts).toBeLessThan(150);
  });
});

describe('a consumer that cannot be timed', () => {
  it.each([
    { what: 'hangs', answer: 'hang' as const, reason: 'Unreachable', says: 'gets no answer within 2 s' },
    { what: 'refuses', answer: REFUSED, reason: 'Unreachable', says: 'is refused a connection' },
    { what: 'redirects', answer: REDIRECT, reason: 'BadAnswer', says: 'is redirected (302)' },
    {
      what: 'is somebody else',
      answer: STRANGER,
      reason: 'NotLinger',
      says: 'is answered by a stranger',
    },
    {
      what: 'leads to another Linger',
      answer: ANOTHER_LINGER,
      reason: 'NotLinger',
      says: 'is answered by a Linger that is not one of these replicas: another installation, or a cache',
    },
  ])('one that $what: $reason, and nothing is changed in the cluster', async ({ answer, reason, says }) => {
    const { outcome, of, model } = await run({ consumers: [consumer({ fault: () => answer })] });
    expect(outcome.result).toBe('NotSeen');
    expect(of('edge')).toEqual({ trouble: { reason, message: `The probe ${says}.` } });
    expect(model.patches).toEqual([]);
  });

  it('one that leads to other replicas only: BadAnswer', async () => {
    const fault = () => ({ identity: `${'f'.repeat(31)}0` });
    const { of } = await run({ consumers: [consumer({ fault })] });
    expect(of('edge').trouble).toMatchObject({ reason: 'BadAnswer' });
  });

  it('delays and spoils nothing for the others', async () => {
    const { of } = await run({
      consumers: [consumer({ name: 'hangs', fault: () => 'hang' }), consumer({ name: 'well', lagMs: 1_000 })],
    });
    expect(Math.abs(of('well').removal! - 1)).toBeLessThan(0.15);
    expect(of('hangs').removal).toBeUndefined();
  });

  it.each([
    { what: 'dies', answer: REFUSED },
    { what: 'begins to hang', answer: 'hang' as const },
    { what: 'is replaced by somebody else', answer: STRANGER },
  ])('one that $what while the replica is out: no sample', async ({ answer }) => {
    const fault = ({ on }: FlipModel) => (on ? undefined : answer);
    const { outcome, of, model } = await run({ consumers: [consumer({ fault })] });
    expect(outcome.result).toBe('NotSeen');
    expect(of('edge')).toEqual({ trouble: expect.anything() });
    expect(model.patches).toEqual(['off', 'on']);
  });

  it('one that never leads to the replica again: no sample, whatever it looked like', async () => {
    const { of } = await run({ consumers: [consumer({ addsMs: 1e9 })] });
    expect(of('edge')).toEqual({ trouble: expect.objectContaining({ reason: 'BadAnswer' }) });
  });

  it('one that still leads to it after 3 minutes: Implausible', async () => {
    const { of, model } = await run({ consumers: [consumer({ lagMs: 1e9, addsMs: 0 })] });
    expect(of('edge')).toEqual({
      trouble: {
        reason: 'Implausible',
        message:
          'The probe is still answered by the removed replica after 3 min: it keeps endpoints for longer than that, or answers from a cache.',
      },
    });
    expect(model.on).toBe(true);
  });

  it('one that flaps is timed by what it answers between', async () => {
    let asked = 0;
    // Three seconds well, one second away.
    const fault = () => (asked++ % 160 > 120 ? REFUSED : undefined);
    const { of } = await run({ consumers: [consumer({ lagMs: 10_300, fault })] });
    const { removal } = of('edge');
    expect(removal).toBeGreaterThan(10.3 - 1.2);
    expect(removal).toBeLessThan(10.5);
  });

  it('one that is silent when it follows: no sample, as it may have followed at any time of that', async () => {
    let outAt: number | undefined;
    // It follows after 5 s, and answers nothing from 0.5 s until 8 s after the replica was taken out.
    const fault = ({ on, time: { now } }: FlipModel) => {
      if (!on) outAt ??= now;
      const since = outAt === undefined ? 0 : now - outAt;
      return since > 500 && since < 8_000 ? ('hang' as const) : undefined;
    };
    const { of } = await run({ consumers: [consumer({ lagMs: 5_000, fault })] });
    expect(of('edge')).toEqual({ trouble: expect.objectContaining({ reason: 'BadAnswer' }) });
  });

  it('a third of the attempts that hang bias nothing', async () => {
    let asked = 0;
    const fault = () => (asked++ % 3 === 0 ? 'hang' : undefined);
    const { of } = await run({ consumers: [consumer({ lagMs: 5_000, fault })] });
    expect(Math.abs(of('edge').removal! - 5)).toBeLessThan(0.25);
  });
});

describe('a replica that is lost', () => {
  const LOST: readonly (readonly [string, happen: (model: FlipModel) => void, withinMs: number])[] = [
    ['is deleted, as in a rollout', (model) => model.deletePod(), 100],
    ['is deleted by force', (model) => model.deletePod(0), 100],
    ['is killed, and its container started again', (model) => model.kill(), 550],
    ['becomes unready', (model) => model.readiness(false), 100],
    [
      'becomes unready for 3 s',
      (model) => {
        model.readiness(false);
        model.at(3_000, () => model.readiness(true));
      },
      100,
    ],
    ['is gone with its node', (model) => model.loseNode(), 2_550],
    ['stands still for 5 s', (model) => model.freeze(5_000), 2_550],
  ];
  const WHEN: readonly (readonly [string, number])[] = [
    ['before it is taken out', 200],
    ['just before', 440],
    ['while it is out and met', 2_000],
    ['while it is out and not met any more', 6_000],
    ['while it is back and not met yet', 9_000],
    ['while it is met again', 11_750],
  ];
  const cases = LOST.flatMap(([what, happen, withinMs]) =>
    WHEN.map(([when, at]) => ({ what, when, happen, withinMs, at })),
  );

  it.each(cases)('$what $when: the flip ends, and nothing of it counts', async (each) => {
    const { happen, withinMs, at } = each;
    const { outcome, model } = await run({
      consumers: [consumer({ lagMs: 5_000 }), consumer({ name: 'dns', lagMs: 500, heldMs: 5_000 })],
      faults: (faulty) => faulty.at(at, () => happen(faulty)),
    });
    expect(outcome).toMatchObject({ result: 'ReplicaLost', consumers: new Map(), problem: undefined });
    expect(model.endedAt - at).toBeLessThan(withinMs);
    // What is gone cannot be put back.
    if (each.what !== 'is deleted by force') expect(model.on).toBe(true);
  });

  it.each(
    [0.5, 1, 1.5, 2, 2.2, 2.4, 2.6, 3].flatMap((forS) => WHEN.map(([when, at]) => ({ forS, when, at }))),
  )('stands still for $forS s $when: no sample, or a true one', async ({ forS, at }) => {
    const { of } = await run({
      consumers: [consumer({ lagMs: 5_000 })],
      faults: (model) => model.at(at, () => model.freeze(forS * 1000)),
    });
    expect(Math.abs((of('edge').removal ?? 5) - 5)).toBeLessThan(0.3);
  });

  it('is lost while its label is changed: no trouble of the API server’s', async () => {
    const { outcome } = await run({
      controlPlaneMs: 5_000,
      consumers: [consumer()],
      faults: (model) => model.at(300, () => model.deletePod(0)),
    });
    expect(outcome).toMatchObject({ result: 'ReplicaLost', consumers: new Map(), problem: undefined });
  });
});

it('a replica that comes while the leader is alone tells no less than one that was there', async () => {
  const { outcome, of } = await run({
    fellows: 0,
    consumers: [consumer()],
    faults: (model) => model.at(1_000, () => model.newcomers.push('e'.repeat(32))),
  });
  expect(outcome.result).toBe('Measured');
  expect(Math.abs(of('edge').removal! - 3)).toBeLessThan(0.15);
});

describe('while attempts hang for two seconds as the replica leaves', () => {
  const hung = () => {
    const between = ({ time: { now } }: FlipModel) => now > 1_200 && now < 3_200;
    return consumer({ lagMs: 1_000, fault: (model) => (between(model) ? 'hang' : undefined) });
  };

  it('the consumer cannot be timed', async () => {
    const { outcome, of } = await run({ fellows: 0, consumers: [hung()] });
    expect(outcome.result).toBe('NotSeen');
    expect(of('edge').trouble?.message).toContain('reaches the removed replica too rarely');
  });

  it('and a replica that has just started comes into the Service, nothing is said of the consumer', async () => {
    const faults = (model: FlipModel) => model.at(1_200, () => model.listAnother());
    const { outcome, of } = await run({ fellows: 0, consumers: [hung()], faults });
    expect(outcome.result).toBe('Interrupted');
    expect(of('edge')).toEqual({});
  });
});

describe('a watch that is being resumed', () => {
  const stream = (type: 'StreamBroken' | 'StreamCurrent') => (model: FlipModel) =>
    model.endpoints.observe({ type, at: model.time.now, stream: 'EndpointSlice' });

  it.each([
    { when: 'since before the replica is taken out', brokenAt: 100, patches: [] },
    { when: 'since before it is put back', brokenAt: 2_000, patches: ['off', 'on'] },
  ])('$when would show it too late: no sample', async ({ brokenAt, patches }) => {
    const faults = (model: FlipModel) => model.at(brokenAt, () => stream('StreamBroken')(model));
    const { outcome, of, model } = await run({ consumers: [consumer()], faults });
    expect([outcome.result, of('edge'), model.patches]).toEqual(['Interrupted', {}, patches]);
  });

  it('and is current again in time disturbs nothing', async () => {
    const faults = (model: FlipModel) => {
      for (const [at, type] of [
        [100, 'StreamBroken'],
        [200, 'StreamCurrent'],
        [2_000, 'StreamBroken'],
        [2_500, 'StreamCurrent'],
      ] as const)
        model.at(at, () => stream(type)(model));
    };
    const { outcome } = await run({ consumers: [consumer()], faults });
    expect(outcome.result).toBe('Measured');
  });
});

describe('whatever happens, the label is put back', () => {
  it.each([
    {
      what: 'the lead ends while it is out',
      faults: (model: FlipModel) => model.at(3_000, () => model.ending.abort()),
      result: 'Ended',
    },
    {
      what: 'the lead ends while it is back',
      faults: (model: FlipModel) => model.at(8_000, () => model.ending.abort()),
      result: 'Ended',
    },
    {
      what: 'the control plane does not follow',
      controlPlaneMs: 40_000,
      result: 'Late',
    },
    {
      what: 'the watch is interrupted',
      controlPlaneMs: 5_000,
      faults: (model: FlipModel) =>
        model.at(4_000, () =>
          model.endpoints.observe({ type: 'StreamBroken', at: 4_000, stream: 'EndpointSlice' }),
        ),
      result: 'Interrupted',
    },
    {
      what: 'the process stands still',
      faults: (model: FlipModel) => model.at(3_000, () => model.process.stopFor(1_000)),
      result: 'Interrupted',
    },
  ])('$what: $result, and no sample', async ({ faults, controlPlaneMs = 40, result }) => {
    const { outcome, model, of } = await run({
      controlPlaneMs,
      ...(faults === undefined ? {} : { faults }),
      consumers: [consumer({ lagMs: 5_000 })],
    });
    expect(outcome.result).toBe(result);
    expect(of('edge')).toEqual({});
    expect(model.patches).toEqual(['off', 'on']);
  });

  it('where the API server refuses the change: Refused, with its words', async () => {
    const faults = (model: FlipModel) => {
      model.refuses = new Error('403: forbidden');
    };
    const { outcome } = await run({ faults, consumers: [consumer()] });
    expect(outcome).toMatchObject({ result: 'Refused', problem: '403: forbidden' });
  });

  it('who has lost the lead changes nothing', async () => {
    const faults = (model: FlipModel) => {
      model.holds = false;
    };
    const { outcome, model } = await run({ faults, consumers: [consumer()] });
    expect(outcome.result).toBe('Ended');
    expect(model.patches).toEqual([]);
  });
});

it('an answer that hung is none', () => expect(HUNG).toMatchObject({ turnedAway: false }));
