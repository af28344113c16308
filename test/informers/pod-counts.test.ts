import { describe, expect, it } from 'vitest';
import type { ResourceEvent } from '../../src/cluster/index.ts';
import type { PodMetadata } from '../../src/core/lag/index.ts';
import { PodCounts } from '../../src/informers/pods.ts';

/** Less than three pods of {@link event} weigh. */
const MOST = 4_000;

function event(namespace: string, name: string, more: Partial<PodMetadata> = {}): ResourceEvent<PodMetadata> {
  const identity = { namespace, name, uid: `${namespace}/${name}` };
  const none = { heartbeat: undefined, deletionTimestamp: undefined, deletionGracePeriodSeconds: undefined };
  const labels = { app: `${namespace}/${name}`.padEnd(1_100, 'x') };
  return { type: 'added', listed: true, at: 0, identity, object: { ...identity, ...none, labels, ...more } };
}

const gone = (namespace: string, name: string): ResourceEvent<PodMetadata> => {
  const { identity } = event(namespace, name);
  return { type: 'deleted', relist: true, at: 0, identity };
};

function applied(pods: PodCounts, change: ResourceEvent<PodMetadata>) {
  const kept = pods.apply(change);
  return kept.type === 'deleted' ? undefined : kept.object;
}

describe('what pods take', () => {
  it('pods with the same labels and plan share them', () => {
    const pods = new PodCounts(MOST);
    const labels = () => ({ app: 'web' });
    const first = applied(pods, event('shop', 'a', { labels: labels(), plan: '{}' }));
    const second = applied(pods, event('shop', 'b', { labels: labels(), plan: '{}' }));
    expect(second?.labels).toBe(first?.labels);
    expect([...pods.groups()]).toMatchObject([{ count: 2, labels: labels(), plan: '{}', unread: false }]);
  });

  it('a namespace that takes all it can get leaves half to the others', () => {
    const pods = new PodCounts(MOST);
    for (let index = 0; index < 100; index += 1) pods.apply(event('attacker', `pod-${index}`));
    expect(pods.unread).toEqual(new Map([['attacker', 99]]));
    expect(applied(pods, event('shop', 'web'))).toMatchObject({ labels: { app: expect.any(String) } });
    expect(pods.unread).toEqual(new Map([['attacker', 99]]));
  });

  it('what finds no room is not known, and nothing of it is kept', () => {
    const pods = new PodCounts(MOST);
    pods.apply(event('attacker', 'a'));
    const unknown = { labels: undefined, plan: undefined, unread: true };
    expect(applied(pods, event('attacker', 'b', { plan: '{}' }))).toMatchObject(unknown);
    expect([...pods.groups()]).toMatchObject([{ count: 1 }, { ...unknown, owner: undefined, count: 1 }]);
  });

  it('asks for a new list once there is room again, and then knows it', () => {
    const pods = new PodCounts(MOST);
    for (const name of ['a', 'b']) pods.apply(event('attacker', name));
    pods.apply(event('shop', 'web'));
    expect(pods.hasRoomAgain).toBe(false);
    pods.apply(gone('shop', 'web'));
    pods.apply(gone('attacker', 'a'));
    expect(pods.hasRoomAgain).toBe(true);
    expect(applied(pods, event('attacker', 'b'))?.unread).toBeUndefined();
    expect(pods.hasRoomAgain).toBe(false);
    expect([...pods.groups()]).toHaveLength(1);
  });
});
