import { describe, expect, it, onTestFinished } from 'vitest';
import { NO_DOCUMENTS, newSnapshotHolder } from '../../src/core/decision/index.ts';
import { type Consumer, consumerOf } from '../../src/core/lag/index.ts';
import { sortDocuments } from '../../src/core/manifest/index.ts';
import { ConsumerViews, Measurement, measureConsumers } from '../../src/measurement/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { consumer } from '../core/decision/sample-snapshot.ts';
import { waitUntil } from '../testbed/waiting.ts';

const NOW = 20_000 * 86_400;
const EDGE = consumerOf('edge', { measure: { reports: {} } });
const soon = (what: string, look: () => boolean) =>
  waitUntil(what, look, { intervalMs: 20, timeoutMs: 30_000 });
const OTHER = consumerOf('other', { measure: { reports: {} } });

/** A replica that has taken over a leader's measurements of `edge`, and does not know yet which consumers there are. */
async function takingOver() {
  const clocks = { clock: () => 0, epochSeconds: () => NOW };
  const before = new Measurement(clocks);
  before.consumers.keep([EDGE]);
  for (let each = 0; each < 300; each += 1)
    before.consumers.record({ consumer: 'edge', direction: 'removal', lag: 4 });
  const measurement = new Measurement(clocks);
  for (const part of before.consumers.estimator.parts(NOW))
    measurement.consumers.estimator.restorePart(JSON.parse(part.text(1e6)), NOW);
  measurement.adopt(await before.next(before.table, NOW));

  const snapshot = newSnapshotHolder('Enforce');
  snapshot.apply({ kind: 'documents', documents: NO_DOCUMENTS });
  const declared = { isKnown: false };
  const lines: { msg: string; consumers?: string }[] = [];
  const gone: string[][] = [];
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const views = new ConsumerViews(measurement.consumers);
  const measuring = measureConsumers({
    snapshot,
    measurement,
    declared: { known: () => declared.isKnown, objects: () => [] },
    views,
    metrics: {
      removal: () => undefined,
      present: (consumers) => void gone.push(consumers.map(({ name }) => name)),
    },
    logger: createLogger('info', { write: (line) => void lines.push(JSON.parse(line)) }),
    epochSeconds: clocks.epochSeconds,
  });
  void measuring.run?.(ending.signal);
  const rows = async () => [...(await measurement.next(measurement.table, NOW + 600)).consumers.keys()];
  /** Says which consumers the cluster has, and waits until that is known to all. */
  const read = async (...consumers: Consumer[]) => {
    snapshot.apply({ kind: 'consumers', consumers });
    declared.isKnown = true;
    await soon('them to be kept', () => gone.length > 0);
  };
  return { snapshot, measurement, measuring, views, lines, gone, read, rows };
}

describe('a leader that has just taken over', () => {
  it('forgets nothing that was measured before it knows which consumers there are', async () => {
    const { measurement, read, rows, gone } = await takingOver();
    expect(await rows()).toEqual(['edge']);
    expect(measurement.consumers.measured('edge', 'removal')?.samples).toBe(300);
    expect(gone).toEqual([]);
    await read(EDGE);
    expect(await rows()).toEqual(['edge']);
    expect(measurement.consumers.measured('edge', 'removal')?.samples).toBe(300);
  });

  it('forgets those that there are not, once it knows', async () => {
    const { measurement, read, rows, gone } = await takingOver();
    await read(OTHER);
    expect(await rows()).toEqual([]);
    expect(measurement.consumers.measured('edge', 'removal')).toBeUndefined();
    expect(gone).toEqual([['cluster-ip', 'cluster-dns', 'other']]);
  });

  it('measures those that it knows of already', async () => {
    const { measurement } = await takingOver();
    measurement.consumers.record({ consumer: 'cluster-ip', direction: 'removal', lag: 1 });
    expect(measurement.consumers.measured('cluster-ip', 'removal')?.samples).toBe(1);
  });
});

it('consumers of files that the cluster’s hide are named', async () => {
  const { snapshot, read, lines } = await takingOver();
  const documents = sortDocuments([{ value: consumer({}, 'edge'), where: 'file' }]);
  snapshot.apply({ kind: 'documents', documents });
  await read(EDGE);
  const warned = lines.filter(({ msg }) => msg.includes('overridden'));
  expect(warned.map(({ consumers }) => consumers)).toEqual(['edge']);
});

it('what is shown is brought up to date while the lead lasts, and forgotten with it', async () => {
  const { measuring, views, read } = await takingOver();
  await read(EDGE);
  expect(views.all).toEqual([]);
  const lead = new AbortController();
  void measuring.lead?.({ signal: lead.signal, holds: () => !lead.signal.aborted });
  await soon('the views', () => views.all.length > 0);
  expect(views.all.map(({ name, removals }) => [name, removals?.samples])).toEqual([
    ['cluster-ip', undefined],
    ['cluster-dns', undefined],
    ['edge', 300],
  ]);
  lead.abort();
  expect(views.all).toEqual([]);
});

it('a history that is restored after the lead has begun shows at once', async () => {
  const { measurement, measuring, views, read } = await takingOver();
  const before = [...measurement.consumers.estimator.parts(NOW)].map((part) => part.text(1e6));
  await read(OTHER);
  await read(EDGE);
  const lead = new AbortController();
  onTestFinished(() => lead.abort());
  void measuring.lead?.({ signal: lead.signal, holds: () => true });
  const samples = () => views.all.find(({ name }) => name === 'edge')?.removals?.samples;
  await soon('a view', () => views.all.length > 0);
  expect(samples()).toBeUndefined();
  for (const text of before) measurement.restorePart(JSON.parse(text), NOW);
  await soon('its samples', () => samples() === 300);
});
