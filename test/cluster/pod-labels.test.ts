import { expect, it, onTestFinished } from 'vitest';
import { PodLabels } from '../../src/cluster/pod-labels.ts';
import { OwnPods } from './own-pods.ts';

const LABEL = 'linger.dev/canary';
const { signal } = new AbortController();

async function open() {
  const own = await OwnPods.start();
  const { connection } = own;
  const labels = new PodLabels({ connection, namespace: 'linger', requestMs: 5_000 });
  onTestFinished(() => own.close());
  return { own, labels };
}

it('lists the pods that a selector selects, with what is known of each', async () => {
  const { own, labels } = await open();
  own.add('web-1', { [LABEL]: 'on', app: 'linger' }, '10.0.0.1');
  own.add('web-2', { [LABEL]: 'on' }, undefined, false);
  own.add('web-3', { [LABEL]: 'on' }, '10.0.0.3').metadata.deletionTimestamp = '2026-01-01T00:00:00Z';
  own.add('web-4', { [LABEL]: 'off' }, '10.0.0.4');
  const listed = await labels.list(`${LABEL}=on`, signal);
  expect(listed.map(({ name, address, ready }) => ({ name, address, ready }))).toEqual([
    { name: 'web-1', address: '10.0.0.1', ready: true },
    { name: 'web-2', address: undefined, ready: false },
    { name: 'web-3', address: '10.0.0.3', ready: false },
  ]);
  expect(listed[0]).toMatchObject({ uid: 'uid-web-1', labels: { [LABEL]: 'on', app: 'linger' } });
});

it.each([
  { was: 'on', from: 'on', to: 'off', becomes: 'off' },
  { was: 'on', from: 'on', to: undefined, becomes: undefined },
  { was: undefined, from: undefined, to: 'on', becomes: 'on' },
  { was: 'off', from: undefined, to: 'on', becomes: 'on' },
])('$was, from $from to $to: $becomes', async ({ was, from, to, becomes }) => {
  const { own, labels } = await open();
  const pod = own.add('web-1', { app: 'linger', ...(was === undefined ? {} : { [LABEL]: was }) });
  await labels.change({ pod: pod.metadata, label: LABEL, from, to }, signal);
  expect(own.labels('web-1')).toEqual({
    app: 'linger',
    ...(becomes === undefined ? {} : { [LABEL]: becomes }),
  });
});

it.each([
  { what: 'the label has another value', pod: { name: 'web-1', uid: 'uid-web-1' }, reason: 'Refused' },
  { what: 'another pod has the name', pod: { name: 'web-1', uid: 'of another' }, reason: 'Refused' },
  { what: 'the pod is gone', pod: { name: 'web-9', uid: 'uid-web-9' }, reason: 'NotFound' },
])('where $what, nothing is changed: $reason', async ({ pod, reason }) => {
  const { own, labels } = await open();
  own.add('web-1', { [LABEL]: reason === 'Refused' && pod.uid === 'of another' ? 'on' : 'off' });
  const change = labels.change({ pod, label: LABEL, from: 'on', to: 'gone' }, signal);
  await expect(change).rejects.toMatchObject({ reason });
  expect(own.patches).toEqual([]);
});
