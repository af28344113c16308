import { describe, expect, it } from 'vitest';
import { PodAddresses } from '../../../src/core/lag/pod-addresses.ts';

const web = { namespace: 'shop', name: 'web' };

/** A slice of Service `web`, or of another, that lists pod `p1` at these addresses. */
function slice(
  { name = 'web-1', service = 'web', version = '5', uid = 'p1', ready = true, addressType = 'IPv4' } = {},
  addresses: readonly string[] = ['10.0.0.1'],
) {
  return {
    namespace: 'shop',
    name,
    version,
    serviceName: service,
    addressType,
    ports: [8080],
    endpoints: [{ targetUid: uid, targetName: `pod-${uid}`, addresses, ready }],
  };
}

function keeping(isWanted = ({ name }: { readonly name: string }) => name !== 'unwanted') {
  const addresses = new PodAddresses(isWanted);
  type Slice = Omit<ReturnType<typeof slice>, 'serviceName'> & { readonly serviceName: string | undefined };
  const put = (of: Slice, at = 0) => addresses.observe({ type: 'Slice', at, slice: of });
  const remove = (name: string, at = 0) =>
    addresses.observe({ type: 'SliceDeleted', at, namespace: 'shop', name });
  const of = (uid = 'p1', namespace = 'shop') =>
    addresses.of({ namespace, uid }).map(({ address }) => address);
  return { addresses, put, remove, of };
}

describe('an event', () => {
  it('is about a wanted Service when it puts a slice of one, or takes one away', () => {
    const { put, remove, addresses } = keeping();
    expect(put(slice())).toBe(true);
    expect(put(slice({ name: 'other', service: 'unwanted' }))).toBe(false);
    expect(put({ ...slice(), addressType: 'FQDN' })).toBe(true);
    expect(put({ ...slice(), addressType: 'FQDN' })).toBe(false);
    expect(put(slice())).toBe(true);
    expect(remove('web-1')).toBe(true);
    expect(remove('web-1')).toBe(false);
    expect(addresses.observe({ type: 'EndpointsDeleted', at: 0, namespace: 'shop', name: 'web' })).toBe(
      false,
    );
  });

  it('tells how the Service lists the pod', () => {
    const { put, addresses } = keeping();
    put(slice({ ready: false }, ['10.0.0.1', 'fd00::1']));
    const listed = {
      uid: 'p1',
      pod: 'pod-p1',
      service: web,
      ports: [8080],
      ready: false,
      readyAt: undefined,
    };
    const expected = ['10.0.0.1', 'fd00::1'].map((address) => ({ ...listed, address }));
    expect(addresses.of({ namespace: 'shop', uid: 'p1' })).toEqual(expected);
    expect([...addresses.in(web)]).toEqual(expected);
    expect([...addresses.in({ ...web, name: 'other' })]).toEqual([]);
    expect(addresses.isReady({ namespace: 'shop', uid: 'p1' })).toBe(false);
    put(slice({ name: 'web-2' }));
    expect(addresses.isReady({ namespace: 'shop', uid: 'p1' })).toBe(true);
    expect(addresses.size).toBe(1);
  });

  it('tells when the pod became ready, the last time', () => {
    const { put, addresses } = keeping();
    const readyAt = () => addresses.of({ namespace: 'shop', uid: 'p1' }).map((each) => each.readyAt);
    for (const [at, ready, expected] of [
      [1, false, undefined],
      [2, true, 2],
      [3, true, 2],
      [4, false, 2],
      [5, true, 5],
    ] as const) {
      put(slice({ ready }), at);
      expect(readyAt()).toEqual([expected]);
    }
    // A second slice lists it as well before the first one no longer does.
    put(slice({ name: 'web-2' }), 6);
    put({ ...slice(), endpoints: [] }, 7);
    expect(readyAt()).toEqual([5]);
  });

  it('of another namespace with the same uid is about another pod', () => {
    const { put, of } = keeping();
    put(slice());
    expect(of('p1', 'evil')).toEqual([]);
  });

  it('moves a slice from one Service to another', () => {
    const { put, addresses } = keeping();
    put(slice());
    put(slice({ service: 'api' }));
    expect([...addresses.in(web)]).toEqual([]);
    expect([...addresses.in({ namespace: 'shop', name: 'api' })]).toHaveLength(1);
  });
});

it('forgets of which Service a slice was that is gone', () => {
  const { put, remove, addresses } = keeping();
  put(slice());
  remove('web-1');
  put(slice({ service: 'api' }));
  expect([...addresses.in(web)]).toEqual([]);
});

it('keeps at most 32 addresses of a pod', () => {
  const { put, of } = keeping();
  const some = (from: number) => Array.from({ length: 20 }, (_, each) => `10.0.0.${from + each}`);
  put(slice({}, some(0)));
  put(slice({ name: 'web-2' }, some(20)));
  expect(of()).toHaveLength(32);
});

it('keeps 75,000 addresses of one namespace, and leaves room to the others', () => {
  const { put, remove, addresses } = keeping();
  const all = Array.from(
    { length: 25_000 },
    (_, each) => `10.${each >> 16}.${(each >> 8) & 255}.${each & 255}`,
  );
  const large = (name: string) => put(slice({ name, uid: name }, all));
  expect(['a', 'b', 'c', 'd'].map(large)).toEqual([true, true, true, false]);
  expect(put({ ...slice(), namespace: 'pay' })).toBe(true);
  remove('b');
  expect(['d', 'e'].map(large)).toEqual([true, false]);
  // What was kept of a slice goes where its next version finds no room.
  expect(put(slice({ name: 'a', uid: 'a' }, [...all, ...all]))).toBe(true);
  expect(addresses.of({ namespace: 'shop', uid: 'a' })).toEqual([]);
});

describe('a pod that no slice lists any more', () => {
  it('is remembered from the last time, and no longer because of another that was not listed twice', () => {
    const { put, remove, of } = keeping();
    const leaves = (uid: string, at: number) => {
      put(slice({ name: uid, uid }), at);
      remove(uid, at);
    };
    leaves('p1', 0);
    leaves('p2', 1_000);
    leaves('p1', 9_000);
    leaves('p3', 12_000);
    expect([of('p1'), of('p2')]).toEqual([['10.0.0.1'], []]);
  });

  it('is remembered for 10 s, by what listed it last', () => {
    const { put, remove, of, addresses } = keeping();
    put(slice());
    remove('web-1', 1_000);
    expect(of()).toEqual(['10.0.0.1']);
    expect(addresses.isReady({ namespace: 'shop', uid: 'p1' })).toBe(false);
    put(slice({ name: 'web-2', uid: 'p2' }), 10_999);
    remove('web-2', 10_999);
    expect(of()).toEqual(['10.0.0.1']);
    put(slice({ name: 'web-2', uid: 'p3' }), 11_000);
    remove('web-2', 11_000);
    expect(of()).toEqual([]);
    expect(of('p2')).toEqual(['10.0.0.1']);
  });

  it('is not remembered with 10,000 more recent ones', () => {
    const { put, remove, of } = keeping();
    for (let each = 0; each <= 10_000; each += 1) {
      put(slice({ uid: `p${each}` }));
      remove('web-1');
    }
    expect([of('p0'), of('p1')]).toEqual([[], ['10.0.0.1']]);
  });
});

it('forgets Services that are no longer wanted', () => {
  let wanted = new Set(['web', 'api']);
  const { put, addresses } = keeping(({ name }) => wanted.has(name));
  put(slice());
  put(slice({ name: 'api-1', service: 'api', uid: 'p2' }));
  wanted = new Set(['api']);
  addresses.prune(0);
  expect(addresses.size).toBe(1);
  expect([...addresses.in(web)]).toEqual([]);
});

describe('a pod whose slice is followed no more, though it may still be listed,', () => {
  const crowd = Array.from({ length: 160_000 }, (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);

  it.each([
    ['as its Service is no longer wanted', slice(), false],
    ['as it has host names now', { ...slice(), addressType: 'FQDN' }, true],
    ['as it is of no Service any more', { ...slice(), serviceName: undefined }, true],
    ['as there is no room for it', slice({}, crowd), true],
  ])('%s, has not departed', (_, next, stillWanted) => {
    let wanted = true;
    const { put, of, addresses } = keeping(() => wanted);
    put(slice());
    wanted = stillWanted;
    expect(put(next)).toBe(true);
    expect(of()).toEqual([]);
    expect(addresses.departed.size).toBe(0);
  });
});

describe('a list', () => {
  it.each([
    ['an older version', '4', ['10.0.0.1']],
    ['the same version', '5', ['10.0.0.2']],
    ['a newer version', '10', ['10.0.0.2']],
  ])('with %s of a slice that the watch has brought meanwhile', (_, version, expected) => {
    const { put, of, addresses } = keeping();
    const { take, end } = addresses.listing();
    put(slice());
    take(slice({ version }, ['10.0.0.2']), 0);
    end();
    expect(of()).toEqual(expected);
  });

  it('does not bring back what was deleted meanwhile, and a later one does', () => {
    const { put, remove, addresses } = keeping();
    put(slice());
    const { take, end } = addresses.listing();
    remove('web-1');
    take(slice({ version: '9' }), 0);
    expect([...addresses.in(web)]).toEqual([]);
    end();
    addresses.listing().take(slice({ version: '9' }), 0);
    expect([...addresses.in(web)]).toHaveLength(1);
  });

  it('goes on where one before it ends late', () => {
    const { put, remove, addresses } = keeping();
    const before = addresses.listing();
    const { take } = addresses.listing();
    before.end();
    put(slice());
    remove('web-1');
    take(slice({ version: '9' }), 0);
    expect([...addresses.in(web)]).toEqual([]);
  });
});
