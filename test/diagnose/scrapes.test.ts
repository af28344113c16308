import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  activityOf,
  type ControllerActivity,
  controllerFlags,
  DEFAULT_FLAGS,
  readControllerScrape,
} from '../../src/diagnose/controller-metrics.ts';
import { diagnose } from '../../src/diagnose/rules.ts';
import { facts } from './sample-facts.ts';

const DATA = join(import.meta.dirname, '..', 'testdata', 'controller-manager');
const text = (name: string) => readFileSync(join(DATA, `${name}.prom`), 'utf8');
const NAMES = ['calm', 'throttled', 'storm', 'one-worker'] as const;

/** What two scrapes say, 10 s apart. */
function between(before: string, after: string): ControllerActivity {
  return activityOf(
    { scrape: readControllerScrape(before), at: 100 },
    { scrape: readControllerScrape(after), at: 110 },
  );
}

const recorded = (name: (typeof NAMES)[number]) => between(text(`${name}-1`), text(`${name}-2`));

/** Everything but the metrics is unknown. */
function findingsOf(controller: ControllerActivity, flags = '') {
  return diagnose(
    facts({
      controller,
      flags: flags === '' ? DEFAULT_FLAGS : controllerFlags([flags]),
      leader: undefined,
      priority: undefined,
      lag: undefined,
      cluster: undefined,
    }),
  );
}

const codes = (controller: ControllerActivity, flags = '') =>
  findingsOf(controller, flags).map(({ code }) => code);

describe('scrapes of a real controller-manager', () => {
  it.each([
    ['calm', '', ['NothingWrong']],
    ['throttled', '--kube-api-qps=5 --kube-api-burst=5', ['ClientThrottled', 'WriteStorm']],
    ['storm', '', ['ClientThrottled', 'WriteStorm']],
    [
      'one-worker',
      '--kube-api-qps=1000 --concurrent-endpoint-syncs=1 --concurrent-service-endpoint-syncs=1',
      ['TooFewWorkers'],
    ],
  ] as const)('%s', (name, flags, expected) => {
    expect(codes(recorded(name), flags)).toEqual(expected);
  });

  it('throttled: what they say of each queue and of the writes', () => {
    const { queues, limiter, server, version, leading, seconds } = recorded('throttled');
    expect([version, leading, seconds]).toEqual(['v1.36.3', undefined, 10]);
    expect(queues.map(({ name, depthBefore, depth, done }) => [name, depthBefore, depth, done])).toEqual([
      ['endpoint_slice', 575, 557, 51],
      ['endpoint', 557, 506, 51],
      ['endpoint_slice_mirroring', 0, 0, 51],
    ]);
    expect(queues[0]?.busyWorkers).toBeCloseTo(5.1, 1);
    expect([limiter?.count, server?.count]).toEqual([102, 102]);
    expect(limiter?.sum).toBeCloseTo(101.06, 2);
    expect(server?.sum).toBeCloseTo(0.88, 2);
  });

  it('one scrape: a deep queue, and since its start it has waited for the limiter', () => {
    const scrape = readControllerScrape(text('throttled-2'));
    expect(codes(activityOf(undefined, { scrape, at: 0 }))).toEqual(['ClientThrottled', 'WriteStorm']);
  });
});

describe('counters that were reset', () => {
  it.each([
    ['fewer adds than before', between(text('storm-2'), text('storm-1'))],
    ['another process', between(text('calm-1'), text('storm-1'))],
    [
      'another process that has done more',
      between(
        text('calm-1'),
        text('calm-2').replace(/^process_start_time_seconds .*$/m, 'process_start_time_seconds 1'),
      ),
    ],
  ])('%s: there are no rates, and it is said', (_what, activity) => {
    expect([activity.restarted, activity.seconds]).toEqual([true, undefined]);
    expect(codes(activity)).toContain('LeaderChanged');
  });

  it('a process start that differs only slightly is the same', () => {
    const slewed = text('calm-2').replace(
      /^process_start_time_seconds (.*)$/m,
      (_, start) => `process_start_time_seconds ${Number(start) + 0.4}`,
    );
    expect(between(text('calm-1'), slewed).restarted).toBe(false);
  });

  it('two scrapes of one instant have no rates either', () => {
    const scrape = readControllerScrape(text('calm-1'));
    expect(activityOf({ scrape, at: 7 }, { scrape, at: 7 })).toMatchObject({
      restarted: false,
      seconds: undefined,
    });
  });
});

describe('what is not exported', () => {
  const without = (pattern: RegExp, of: string) =>
    of
      .split('\n')
      .filter((line) => !pattern.test(line))
      .join('\n');
  const pair = (name: string, pattern: RegExp) =>
    between(without(pattern, text(`${name}-1`)), without(pattern, text(`${name}-2`)));

  it('a provider that exports work queues only: the rate tells', () => {
    const activity = pair('throttled', /rest_client|process_/);
    expect([activity.limiter, activity.server, activity.answers]).toEqual([undefined, undefined, undefined]);
    expect(codes(activity, '--kube-api-qps=5')).toEqual(['ClientThrottled', 'WriteStorm', 'MetricsMissing']);
  });

  it('a version without the slices’ own metrics', () => {
    const activity = pair('storm', /endpoint_slice_controller/);
    expect([activity.failedSyncs, activity.changes]).toEqual([undefined, undefined]);
    expect(codes(activity)).toEqual(['ClientThrottled', 'WriteStorm']);
  });

  it('a version that writes no Endpoints has two queues', () => {
    expect(pair('storm', /name="endpoint"/).queues.map(({ name }) => name)).toEqual([
      'endpoint_slice',
      'endpoint_slice_mirroring',
    ]);
  });

  it('the newer name of a counter', () => {
    const renamed = (of: string) =>
      of.replaceAll('endpoint_slice_controller_changes{', 'endpoint_slice_controller_changes_total{');
    expect(between(renamed(text('storm-1')), renamed(text('storm-2'))).changes).toBe(
      recorded('storm').changes,
    );
  });

  it('writes that there were none of yet count from 0', () => {
    const quiet = without(/rest_client_r.*verb="PUT"/, text('storm-1'));
    expect(between(quiet, text('storm-2')).limiter?.count).toBeGreaterThan(
      recorded('storm').limiter?.count ?? 0,
    );
  });

  it.each([
    ['1', true],
    ['0', false],
  ])('who leads: %s', (value, leading) => {
    const more = `leader_election_master_status{name="other"} 1\nleader_election_master_status{name="kube-controller-manager"} ${value}\n`;
    const scrape = readControllerScrape(text('calm-1') + more);
    expect(activityOf(undefined, { scrape, at: 0 }).leading).toBe(leading);
  });

  it('whatever is left out, NaN, infinite or negative, no rule stumbles, and no text says so', () => {
    const lines = NAMES.map((name) =>
      [text(`${name}-1`), text(`${name}-2`)].map((each) => each.trimEnd().split('\n')),
    );
    const harm = fc.constantFrom('drop', 'NaN', '+Inf', '-Inf', '-1', '1e300');
    const spoilt = (of: readonly string[], harms: readonly (readonly [number, string])[]) => {
      const left = [...of];
      for (const [at, how] of harms) {
        const line = left[at % left.length] ?? '';
        if (line.startsWith('#')) continue;
        left[at % left.length] = how === 'drop' ? '' : line.replace(/ \S+$/, ` ${how}`);
      }
      return left.join('\n');
    };
    const harms = fc.array(fc.tuple(fc.nat(10_000), harm), { maxLength: 200 });
    fc.assert(
      fc.property(fc.constantFrom(...lines), harms, harms, ([before = [], after = []], some, others) => {
        const found = findingsOf(between(spoilt(before, some), spoilt(after, others)));
        expect(found.length).toBeGreaterThan(0);
        const said = found
          .flatMap(({ text: words, evidence, cure }) => [words, ...evidence, ...cure])
          .join('\n');
        expect(said).not.toMatch(/NaN|undefined|Infinity|null/);
      }),
    );
  });
});
