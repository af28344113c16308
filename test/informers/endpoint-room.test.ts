import { describe, expect, it } from 'vitest';
import type { ResourceEvent } from '../../src/cluster/index.ts';
import { EndpointRoom, type SliceProjection } from '../../src/informers/endpoints.ts';

/** Less than three slices of {@link event} weigh. */
const MOST = 6_000;

function event(namespace: string, name: string, endpoints = 10): ResourceEvent<SliceProjection> {
  const identity = { namespace, name, uid: `${namespace}/${name}` };
  const endpoint = (index: number) => ({ targetUid: `${index}`.padEnd(36, 'x'), ready: true });
  const object = {
    namespace,
    name,
    serviceName: 'web',
    addressType: 'IPv4',
    heartbeat: undefined,
    endpoints: Array.from({ length: endpoints }, (_, index) => endpoint(index)),
  };
  return { type: 'added', listed: true, at: 0, identity, object };
}

function gone(namespace: string, name: string): ResourceEvent<SliceProjection> {
  return { type: 'deleted', relist: true, at: 0, identity: event(namespace, name).identity };
}

function listed(room: EndpointRoom, change: ResourceEvent<SliceProjection>): number | 'unread' {
  const kept = room.apply('endpointslices', change);
  if (kept.type === 'deleted') return 0;
  return kept.object.unread ? 'unread' : kept.object.endpoints.length;
}

describe('what endpoints take', () => {
  it('a namespace that takes all it can get leaves half to the others', () => {
    const room = new EndpointRoom(MOST);
    expect(listed(room, event('attacker', 'a'))).toBe(10);
    for (let index = 0; index < 100; index += 1)
      expect(listed(room, event('attacker', `slice-${index}`))).toBe('unread');
    expect(listed(room, event('shop', 'web'))).toBe(10);
    expect([...room.unread]).toEqual([['attacker', 100]]);
  });

  it('an object that shrinks finds room again, and one that is gone leaves its own', () => {
    const room = new EndpointRoom(MOST);
    listed(room, event('attacker', 'a'));
    listed(room, event('attacker', 'b'));
    expect(room.hasRoomAgain).toBe(true);
    expect(listed(room, event('attacker', 'a', 0))).toBe(0);
    expect(listed(room, event('attacker', 'b'))).toBe(10);
    expect(room.unread.size).toBe(0);
    for (const name of ['a', 'b']) room.apply('endpointslices', gone('attacker', name));
    expect(listed(room, event('attacker', 'c'))).toBe(10);
  });

  it('slices and Endpoints of one name are different objects', () => {
    const room = new EndpointRoom(MOST);
    room.apply('endpointslices', event('shop', 'web'));
    room.apply('endpoints', gone('shop', 'web'));
    expect(listed(room, event('shop', 'more'))).toBe('unread');
  });
});
