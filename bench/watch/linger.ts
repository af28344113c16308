import { parseArgs } from 'node:util';
import { inClusterConnection } from '../../src/cluster/connection.ts';
import { newSnapshotHolder } from '../../src/core/decision/cluster-snapshot.ts';
import { followCluster } from '../../src/informers/follow.ts';
import { Measurement } from '../../src/measurement/measurement.ts';

// What `linger serve` does to know its cluster: the same list-watches, snapshot and measurement, put together the same way.
// Without the webhook, the metrics and the publishing.

const { values: flags } = parseArgs({
  options: {
    port: { type: 'string', default: '' },
    'service-account': { type: 'string', default: '' },
    events: { type: 'string', default: '' },
  },
});
const connection = await inClusterConnection({
  host: '127.0.0.1',
  port: flags.port,
  directory: flags['service-account'],
});
const ending = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => ending.abort());

const clock = () => performance.now();
const snapshot = newSnapshotHolder('Enforce');
const measurement = new Measurement({ clock, epochSeconds: () => Date.now() / 1000 });
const samples = { EndpointSlice: 0, Endpoints: 0 };
measurement.onSample(({ stage }) => {
  samples[stage] += 1;
});
const fail = (error: Error) => {
  throw error;
};
const { watches, ended } = followCluster(
  connection,
  {
    onSnapshot: (event) => snapshot.apply(event),
    onEvent: (event) => measurement.apply(event),
    onFailure: (what, { message }) => console.error(`${what}: ${message}`),
    onCurrent: () => undefined,
    onHandlerError: (_, error) => fail(error),
  },
  { signal: ending.signal, clock, random: Math.random },
);

/** Far shorter than anything that is measured, and next to nothing of a processor. */
const LOOK_MS = 5;

const total = (of: (watch: (typeof watches)['pods']) => number) =>
  Object.values(watches).reduce((sum, watch) => sum + of(watch), 0);
await until(() => Object.values(watches).every(({ lists }) => lists > 0));
report('synced', { objects: total(({ objects }) => objects) });
let milestone = 0;
for (const more of flags.events.split(',')) {
  milestone += Number(more);
  await until(() => total(({ events }) => events) >= milestone);
  report('done', {
    slices: samples.EndpointSlice,
    endpoints: samples.Endpoints,
    discarded: Object.values(measurement.discarded).reduce((sum, count) => sum + count, 0),
  });
}
await ended;

function until(holds: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      if (!holds()) return;
      clearInterval(timer);
      resolve();
    }, LOOK_MS);
  });
}

/** One line for each thing that the benchmark waits for. */
function report(at: string, values: Record<string, number>): void {
  process.stdout.write(`${JSON.stringify({ at, ...values })}\n`);
}
