import { describe, expect, it } from 'vitest';
import { createMetrics } from '../../src/telemetry/index.ts';
import { AdmissionMetrics } from '../../src/webhook/admission-metrics.ts';
import { annotated, container, type JsonObject, pod, podOf } from '../core/decision/sample-pod.ts';
import { clusterPolicy, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { bodyOf } from './reviews.ts';
import { startWebhook, type Webhook } from './webhook.ts';

/** Everything but what the process itself is like: series → value, zeros left out. */
async function counted({ metrics }: Webhook): Promise<Record<string, number>> {
  const text = await metrics.registry.metrics();
  const lines = text
    .split('\n')
    .filter((line) => line.startsWith('linger_') && !line.startsWith('linger_build_info'));
  const series = lines.map(
    (line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))] as const,
  );
  return Object.fromEntries(
    series.filter(([name, value]) => value !== 0 && !/_bucket\{|_seconds_sum/.test(name)),
  );
}

async function afterPosting(...bodies: string[]): Promise<Record<string, number>> {
  const webhook = await startWebhook();
  for (const body of bodies) await webhook.post(body);
  return counted(webhook);
}

const answered = (count: number) => ({
  'linger_http_responses_total{code="200"}': count,
  linger_admission_duration_seconds_count: count,
});

describe('each decision is counted exactly once', () => {
  it('an injection, with its wait', async () => {
    expect(await afterPosting(bodyOf())).toEqual({
      ...answered(1),
      'linger_decisions_total{outcome="inject",reason=""}': 1,
      'linger_planned_wait_seconds_count{outcome="inject"}': 1,
    });
  });

  it('a note, by its code', async () => {
    const series = await afterPosting(bodyOf(podOf(container('quiet'))));
    expect(series['linger_notes_total{code="ServicesUnknown"}']).toBe(1);
  });

  it('skips, by their reasons', async () => {
    const zeroGrace = bodyOf(pod({ terminationGracePeriodSeconds: 0 }));
    expect(
      await afterPosting(zeroGrace, zeroGrace, bodyOf(annotated({ 'linger.dev/inject': 'false' }))),
    ).toEqual({
      ...answered(3),
      'linger_decisions_total{outcome="skip",reason="ZeroGrace"}': 2,
      'linger_decisions_total{outcome="skip",reason="OptedOut"}': 1,
    });
  });

  it('an audited plan, as such', async () => {
    const webhook = await startWebhook({ snapshot: snapshotOf([clusterPolicy({ mode: 'Audit' })]) });
    await webhook.post(bodyOf());
    expect(await counted(webhook)).toEqual({
      ...answered(1),
      'linger_decisions_total{outcome="audit",reason=""}': 1,
      'linger_planned_wait_seconds_count{outcome="audit"}': 1,
    });
  });

  it('many at once, on many connections', async () => {
    const webhook = await startWebhook();
    const zeroGrace = bodyOf(pod({ terminationGracePeriodSeconds: 0 }));
    const bodies = Array.from({ length: 60 }, (_, index) => (index % 3 === 0 ? zeroGrace : bodyOf()));
    await Promise.all(bodies.map((body) => webhook.post(body)));
    expect(await counted(webhook)).toMatchObject({
      ...answered(60),
      'linger_decisions_total{outcome="skip",reason="ZeroGrace"}': 20,
      'linger_decisions_total{outcome="inject",reason=""}': 40,
    });
  });
});

describe('annotations that do not parse', () => {
  it.each(['inject', 'mode', 'wait', 'hook', 'containers', 'existing-hook'])(
    'linger.dev/%s is counted',
    async (name) => {
      const series = await afterPosting(bodyOf(annotated({ [`linger.dev/${name}`]: ',' })));
      expect(series).toMatchObject({
        [`linger_invalid_annotations_total{annotation="linger.dev/${name}"}`]: 1,
        'linger_notes_total{code="InvalidAnnotation"}': 1,
        // An unreadable inject or mode keeps the pod in Audit.
        [`linger_decisions_total{outcome="${name === 'inject' || name === 'mode' ? 'audit' : 'inject'}",reason=""}`]: 1,
      });
    },
  );

  it('unknown names create no series', async () => {
    const unknown: JsonObject = {};
    for (let index = 0; index < 50; index++) unknown[`linger.dev/unknown-${index}`] = 'x';
    const series = await afterPosting(bodyOf(annotated(unknown)));
    expect(Object.keys(series).filter((name) => name.includes('unknown'))).toEqual([]);
    // However many there are: each note would stay in memory until it is counted.
    expect(series['linger_notes_total{code="UnknownAnnotation"}']).toBe(1);
  });
});

describe('what is not counted as a decision', () => {
  it('a dry run: only that it was answered', async () => {
    const invalid = annotated({ 'linger.dev/wait': 'soon' });
    expect(await afterPosting(bodyOf(pod(), { dryRun: true }), bodyOf(invalid, { dryRun: true }))).toEqual(
      answered(2),
    );
  });

  it('refused requests: by their status', async () => {
    const webhook = await startWebhook();
    await webhook.post('{');
    await webhook.request('GET', '/mutate');
    await webhook.request('POST', '/other');
    await webhook.post(bodyOf(), { 'Content-Encoding': 'gzip' });
    expect(await counted(webhook)).toEqual({
      'linger_http_responses_total{code="400"}': 1,
      'linger_http_responses_total{code="405"}': 1,
      'linger_http_responses_total{code="404"}': 1,
      'linger_http_responses_total{code="415"}': 1,
    });
  });
});

describe('linger_admission_duration_seconds', () => {
  it('has buckets finer than the API server’s finest (5 ms)', async () => {
    const webhook = await startWebhook();
    await webhook.post(bodyOf());
    const text = await webhook.metrics.registry.metrics();
    const bounds = [...text.matchAll(/^linger_admission_duration_seconds_bucket\{le="([^"+]+)"/gm)].map(
      ([, le]) => Number(le),
    );
    expect(bounds.filter((bound) => bound < 0.005).length).toBeGreaterThanOrEqual(3);
    expect(bounds).toEqual(bounds.toSorted((a, b) => a - b));
  });
});

it('the decisions of the last hour are counted by outcome and reason, and then forgotten', () => {
  let now = 0;
  const metrics = new AdmissionMetrics(createMetrics('1').registry, () => now);
  metrics.decided({ outcome: 'inject', reason: '', notes: [] });
  now = 30 * 60_000;
  for (const reason of ['ZeroGrace', 'ZeroGrace', 'OptedOut'])
    metrics.decided({ outcome: 'skip', reason, notes: [] });
  expect(metrics.recent()).toEqual({
    outcomes: { inject: 1, skip: 3 },
    skips: { ZeroGrace: 2, OptedOut: 1 },
    seconds: 1_800,
  });
  now = 61 * 60_000;
  expect(metrics.recent().outcomes).toEqual({ skip: 3 });
  now = 91 * 60_000;
  expect(metrics.recent()).toEqual({ outcomes: {}, skips: {}, seconds: 3_600 });
});
