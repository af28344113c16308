import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Settings } from '../../src/cli/commands.ts';
import { answersOfRecording, Live } from '../../src/cli/dashboard.ts';
import type { Surroundings } from '../../src/cli/terminal.ts';
import {
  apiRoot,
  consumersView,
  lagReport,
  nowReport,
  readRecording,
  timelineView,
  whatIfReport,
  workloadsReport,
} from '../../src/dashboard/index.ts';
import { RECORDING_FILE } from '../../src/dashboard/recording.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { BUILT } from './built.ts';
import { startDashboard } from './dashboards.ts';
import { linger } from './linger.ts';

const atEnd = onTestFinished as AtEnd;

const SETTINGS = {
  namespace: undefined,
  lingerNamespace: undefined,
  policies: undefined,
} as Settings<'dashboard'>;
const SURROUNDINGS = {
  kube: { kubeconfigs: [], homeKubeconfig: undefined, service: {}, variables: {} },
  version: '0.0.0',
  progress: () => undefined,
  warn: () => undefined,
} as unknown as Surroundings;

/** Ends the process at the first connection to anywhere else. */
const LOOPBACK_ONLY = `--import=data:text/javascript,${encodeURIComponent(`
  import net from 'node:net';
  const { connect } = net.Socket.prototype;
  net.Socket.prototype.connect = function (...args) {
    const [{ host, path } = {}] = args.flat();
    if (path === undefined && host !== '127.0.0.1') { console.error('connects to', args); process.exit(99); }
    return connect.apply(this, args);
  };
`)}`;

describe('linger dashboard --demo', () => {
  it('shows every view of the recording, with no cluster and no network beyond loopback', {
    timeout: 60_000,
  }, async () => {
    const env = { HOME: '/nonexistent', KUBECONFIG: '/nonexistent/kubeconfig', NODE_OPTIONS: LOOPBACK_ONLY };
    const { get, child } = await startDashboard(['--demo'], atEnd, env);
    const { recording, views, source } = apiRoot.parse((await get('')).body);
    const { of, from, lasts } = await readRecording();
    expect({ recording, source }).toEqual({ recording: { of, from, lasts }, source: null });
    expect(views).toHaveLength(6);
    const within = (asOf: number) => {
      expect(asOf).toBeGreaterThan(from - 3_600);
      expect(asOf).toBeLessThan(from + lasts + 60);
    };
    const unseen: string[] = [];
    const workloads = workloadsReport.parse((await get('/workloads')).body);
    const consumers = consumersView.parse((await get('/consumers')).body);
    const timeline = timelineView.parse((await get('/timeline')).body);
    const lag = lagReport.parse((await get('/lag')).body);
    const now = nowReport.parse((await get('/now')).body);
    for (const each of [workloads, consumers, lag, now]) unseen.push(...each.unseen);
    for (const { asOf } of [workloads, consumers, timeline, lag, now]) within(asOf);
    // Where a view reads something new: npm run record:demo.
    expect(unseen).toEqual([]);
    whatIfReport.parse((await get('/what-if?hook=Hold')).body);
    expect(workloads.summary.verdicts.unprotected).toBeGreaterThan(0);
    expect(consumers.consumers.map(({ name }) => name)).toContain('edge');
    expect(timeline.terminations.map(({ afterSigterm }) => afterSigterm)).toContain('sent');
    expect(lag.samples).toBeGreaterThan(0);
    // Time runs.
    const since = async () => nowReport.parse((await get('/now')).body);
    await expect.poll(async () => (await since()).watched.since, { timeout: 20_000 }).not.toBeNull();
    expect((await since()).asOf).toBeGreaterThan(now.asOf);
    expect(child.exitCode).toBeNull();
  });

  it('begins again when it has ended, and tells the pages', { timeout: 60_000 }, async () => {
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const recording = { ...(await readRecording()), lasts: 3 };
    const live = new Live(ending.signal);
    const told = new Set<string>();
    live.follow((topic) => told.add(topic));
    const { now } = await answersOfRecording(recording, SETTINGS, SURROUNDINGS, live, ending.signal);
    if (now === undefined) throw new Error('no view Now');
    const times = [(await now()).asOf];
    await expect
      .poll(
        async () => {
          times.push((await now()).asOf);
          return times.some((at, index) => at < (times[index - 1] ?? 0));
        },
        { timeout: 50_000, interval: 500 },
      )
      .toBe(true);
    expect([...told]).toEqual(expect.arrayContaining(['now', 'workloads', 'timeline', 'lag', 'consumers']));
  });

  it('the recording has what it is there to show', async () => {
    const { answers, watches, lasts } = await readRecording();
    const held = Object.entries(answers).filter(([key]) => key.endsWith('/proxy/holds'));
    expect(held.some(([, all]) => all.some(([, , , body]) => body.includes('"gw-')))).toBe(true);
    expect(lasts).toBeGreaterThanOrEqual(240);
    expect(Object.keys(watches)).toHaveLength(4);
    expect(Object.keys(answers).filter((key) => key.includes('/secrets'))).toEqual([]);
    const found = JSON.stringify({ answers, watches }).match(/managedFields|machineID|PRIVATE KEY/g);
    expect(found).toBeNull();
  });

  it('is small, and in the package', async () => {
    const { size } = await stat(join(BUILT, RECORDING_FILE));
    expect(size).toBeLessThanOrEqual(300 * 1024);
  });

  it.each([
    ['-f', '.'],
    ['--kubeconfig', 'x'],
    ['--context', 'x'],
  ])('not with %s', async (...more) => {
    const { code, stderr } = await linger(['dashboard', '--demo', '--port', '0', '--no-open', ...more]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--demo: shows a recording')]);
  });
});
