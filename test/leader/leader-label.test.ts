import { afterEach, describe, expect, it } from 'vitest';
import { PodLabels } from '../../src/cluster/index.ts';
import { labelLeader } from '../../src/leader/leader-label.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { pause } from '../../src/timing/index.ts';
import { OwnPods } from '../cluster/own-pods.ts';

const REPLICA = { 'app.kubernetes.io/name': 'linger' };
const LEADS = { ...REPLICA, 'linger.dev/leader': 'true' };
const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0)) close();
});

/** Three replicas; `web-1` is to lead. Time passes as fast as it can. */
async function start(labels: Record<string, Record<string, string>>) {
  const own = await OwnPods.start();
  for (const [name, each] of Object.entries(labels)) own.add(name, each);
  const leading = new AbortController();
  const logs: string[] = [];
  let now = 0;
  const pods = new PodLabels({ connection: own.connection, namespace: 'linger', requestMs: 5_000 });
  open.push(() => {
    leading.abort();
    own.close();
  });
  const lead = { signal: leading.signal, holds: () => !leading.signal.aborted };
  const ended = labelLeader(lead, {
    pods,
    identity: 'web-1',
    logger: createLogger('info', {
      write: (line) => void logs.push((JSON.parse(line) as { msg: string }).msg),
    }),
    clock: () => now,
    random: () => 0.5,
    pause: (milliseconds, signal) => {
      now += milliseconds;
      return pause(1, signal);
    },
  });
  const until = async (what: () => boolean) => {
    while (!what()) await pause(2, new AbortController().signal);
  };
  return { own, until, ended, end: () => leading.abort(), logs };
}

const labelled = (own: OwnPods) =>
  [...own.pods.keys()].filter((name) => own.labels(name)?.['linger.dev/leader'] === 'true');

describe('the leader’s label', () => {
  it('is on its pod and on no other, while it leads', async () => {
    const { own, until, ended, end } = await start({
      'web-1': { ...REPLICA },
      'web-2': { ...LEADS },
      'web-3': { ...REPLICA },
    });
    await until(() => labelled(own).join() === 'web-1');
    end();
    await ended;
    expect(labelled(own)).toEqual([]);
    expect(own.patches.toSorted()).toEqual([
      'web-1 linger.dev/leader=',
      'web-1 linger.dev/leader=true',
      'web-2 linger.dev/leader=',
    ]);
  });

  it('is put back where it was taken off', async () => {
    const { own, until } = await start({ 'web-1': { ...REPLICA } });
    await until(() => labelled(own).length === 1);
    delete own.labels('web-1')!['linger.dev/leader'];
    await until(() => labelled(own).length === 1);
  });

  it('is not taken from a pod of another lead that is on it already', async () => {
    const { own, until, ended, end } = await start({ 'web-1': { ...REPLICA }, 'web-2': { ...REPLICA } });
    await until(() => labelled(own).length === 1);
    own.labels('web-2')!['linger.dev/leader'] = 'true';
    delete own.labels('web-1')!['linger.dev/leader'];
    end();
    await ended;
    expect(labelled(own).filter((name) => name === 'web-1')).toEqual([]);
  });

  it('is tried again where it fails, which is said once, and when it is over', async () => {
    const { own, until, logs } = await start({ 'web-1': { ...REPLICA } });
    own.failing = 500;
    await until(() => logs.length > 0);
    await pause(20, new AbortController().signal);
    expect(logs).toHaveLength(1);
    own.failing = undefined;
    await until(() => labelled(own).length === 1);
    await until(() => logs.length > 1);
    expect(logs).toEqual([
      'labelling the leader’s pod failed; retrying, reports may not reach it',
      'leader label set again',
    ]);
  });

  it('has no place where this replica is no pod of the namespace', async () => {
    const { own, until, logs } = await start({ 'web-2': { ...REPLICA } });
    await until(() => logs.length > 0);
    expect(logs).toEqual(['own pod not found; the Service linger-reports has no endpoint']);
    expect(own.patches).toEqual([]);
  });
});
