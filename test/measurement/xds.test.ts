import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ensureCertificates } from '../../src/certs/index.ts';
import type { XdsSpec } from '../../src/core/api/index.ts';
import { emptyDirectory } from '../cli/linger.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { AdsServer } from './ads-server.ts';
import { leading, WEB } from './following.ts';
import { followWeb } from './istiods.ts';

const WITHIN = { timeout: 20_000, interval: 20 };
const FIRST = 'outbound|443||kubernetes.default.svc.cluster.local';
const CLUSTER = 'outbound|80||web.shop.svc.cluster.local';
const atEnd: AtEnd = onTestFinished as AtEnd;

async function following(port: number, spec: Partial<XdsSpec> = {}, files?: string) {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const clock = { skippedMs: 0 };
  const { istiods, find } = await followWeb(
    { address: `127.0.0.1:${port}`, ...spec },
    { files, signal: ending.signal, clock: () => performance.now() + clock.skippedMs },
  );
  const addresses = ['10.0.0.1', '10.0.0.2'];
  return {
    istiods,
    ending,
    clock,
    find: (...services: Parameters<typeof find>[1][]) => find(addresses, ...services),
  };
}

describe('what istiod pushes', () => {
  it('is in use until a push is without it, and is remembered to have been', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1', '10.0.0.2', '10.0.0.3');
    const { find, clock } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'using']), WITHIN);
    // Another Service says nothing of these pods.
    expect(find([{ namespace: 'shop', name: 'other' }])).toEqual(['absent', 'absent']);
    ads.push(CLUSTER, '10.0.0.2');
    await vi.waitFor(() => expect(find()).toEqual(['listed', 'using']), WITHIN);
    clock.skippedMs = 60_000;
    expect(find()).toEqual(['absent', 'using']);
    ads.remove(CLUSTER);
    await vi.waitFor(() => expect(find()).toEqual(['absent', 'listed']), WITHIN);
  });

  it('is not in use while it drains or is unhealthy', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, ['10.0.0.1', 3], ['10.0.0.2', 2]);
    const { find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['absent', 'absent']), WITHIN);
    ads.push(CLUSTER, ['10.0.0.1', 0], '10.0.0.2');
    await vi.waitFor(() => expect(find()).toEqual(['using', 'using']), WITHIN);
    ads.push(CLUSTER, ['10.0.0.1', 3], '10.0.0.2');
    await vi.waitFor(() => expect(find()).toEqual(['listed', 'using']), WITHIN);
  });

  it('is asked for as a sidecar does, and acknowledged', async () => {
    const ads = await AdsServer.start(atEnd);
    const { find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['absent', 'absent']), WITHIN);
    expect(ads.subscribed).toEqual([FIRST, CLUSTER].toSorted());
    const [first, ...more] = ads.requests;
    expect(first?.node?.id).toBe('sidecar~127.0.0.1~linger.linger~linger.svc.cluster.local');
    expect(first?.node?.metadata.fields).toMatchObject({ NAMESPACE: { stringValue: 'linger' } });
    const acknowledged = more.filter(({ responseNonce }) => responseNonce !== '');
    await vi.waitFor(() =>
      expect(ads.requests.map(({ responseNonce }) => responseNonce)).toEqual(
        expect.arrayContaining(['n1', 'n2']),
      ),
    );
    expect(acknowledged.every(({ errorDetail }) => errorDetail === undefined)).toBe(true);
  });

  it('is unknown before a Service has been answered', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.silent.add(CLUSTER);
    const { find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toBe('do not have all Services yet'), WITHIN);
    expect(find([{ namespace: 'shop', name: 'other' }])).toEqual(['absent', 'absent']);
    ads.push(CLUSTER, '10.0.0.1');
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
  });

  it('is asked for of a new Service, and no longer of one that is gone and has no endpoints', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1');
    const { istiods, find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
    istiods.follow([{ ...WEB, name: 'api', ports: [80, 443] }]);
    const api = ['outbound|443||api.shop.svc.cluster.local', 'outbound|80||api.shop.svc.cluster.local'];
    await vi.waitFor(() => expect(ads.subscribed).toEqual([FIRST, ...api, CLUSTER].toSorted()), WITHIN);
    // Proxies still have the endpoints of the deleted Service.
    expect(find()).toEqual(['using', 'absent']);
    ads.push(CLUSTER);
    await vi.waitFor(() => expect(find()).toEqual(['listed', 'absent']), WITHIN);
    istiods.follow([]);
    await vi.waitFor(() => expect(ads.subscribed).toEqual([FIRST]), WITHIN);
  });
});

describe('a stream that ends', () => {
  it('is begun again, and what was in use stays so until the new one says otherwise', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1', '10.0.0.2');
    const { find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'using']), WITHIN);
    ads.silent.add(CLUSTER);
    ads.endStreams();
    await sleep(50);
    expect(find()).toEqual(['using', 'using']);
    await vi.waitFor(() => expect(ads.subscribed).toContain(CLUSTER), WITHIN);
    await vi.waitFor(() => expect(find()).toBe('do not have all Services yet'), WITHIN);
    ads.push(CLUSTER, '10.0.0.2');
    await vi.waitFor(() => expect(find()).toEqual(['listed', 'using']), WITHIN);
  });

  it('and cannot be begun again is trouble, until it can', async () => {
    const ads = await AdsServer.start(atEnd);
    const { port } = ads;
    ads.push(CLUSTER, '10.0.0.1');
    const { find } = await following(port);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
    ads.stop();
    await vi.waitFor(() => expect(find()).toBe('cannot be read (UNAVAILABLE, ECONNREFUSED)'), WITHIN);
    const again = await AdsServer.start(atEnd, { port });
    again.push(CLUSTER, '10.0.0.2');
    await vi.waitFor(() => expect(find()).toEqual(['listed', 'using']), WITHIN);
  });

  it('is ended with what follows it', async () => {
    const ads = await AdsServer.start(atEnd);
    const { ending } = await following(ads.port);
    await vi.waitFor(() => expect(ads.streams).toBe(1), WITHIN);
    ending.abort();
    await vi.waitFor(() => expect(ads.streams).toBe(0), WITHIN);
    await sleep(700);
    expect(ads.streams).toBe(0);
  });
});

describe('what is no push', () => {
  it.each([
    ['a broken message', Buffer.from([0x2a, 0x01, 0x6e, 0x12, 0xff, 0x01])],
    ['a number without an end', Buffer.alloc(100, 0xff)],
    ['a broken resource', Buffer.from([0x2a, 0x01, 0x6e, 0x12, 0x02, 0x12, 0x7f])],
  ])('%s ends the stream, and nothing is known until the next one', async (_, bytes) => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1');
    const { find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
    ads.send(bytes);
    await vi.waitFor(
      () => expect(find()).toMatch(/^cannot be read \(a (message|number) is broken\)$/),
      WITHIN,
    );
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
  });

  it('a message that is too long is not read', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1');
    const { find } = await following(ads.port);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
    ads.silent.add(CLUSTER);
    ads.silent.add(FIRST);
    ads.send(Buffer.alloc(62 * 1024 * 1024));
    await vi.waitFor(() => expect(find()).toBe('cannot be read (RESOURCE_EXHAUSTED)'), WITHIN);
  });
});

describe('TLS and a token', () => {
  async function secured() {
    const folder = await emptyDirectory();
    await ensureCertificates({ directory: folder, names: ['istiod.istio-system.svc'] }, new Date());
    const [cert = '', key = '', ca = ''] = ['tls.crt', 'tls.key', 'ca.crt'].map((file) =>
      readFileSync(join(folder, file), 'utf8'),
    );
    writeFileSync(join(folder, 'root.pem'), ca);
    writeFileSync(join(folder, 'token'), 'first\n');
    return { folder, cert, key };
  }
  const NO_TRUST = 'cannot be read (UNAVAILABLE, its certificate is not trusted)';
  const SPEC = {
    tls: { caFile: 'root.pem', serverName: 'istiod.istio-system.svc' },
    tokenFile: 'token',
  };

  it('are used, and the token is read again for each stream', async () => {
    const { folder, cert, key } = await secured();
    let token = 'first';
    const ads = await AdsServer.start(atEnd, { tls: { cert, key }, token: () => token });
    ads.push(CLUSTER, '10.0.0.1');
    const { find } = await following(ads.port, SPEC, folder);
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
    token = 'second';
    ads.endStreams();
    await vi.waitFor(() => expect(find()).toBe('cannot be read (UNAUTHENTICATED)'), WITHIN);
    writeFileSync(join(folder, 'token'), 'second\n');
    await vi.waitFor(() => expect(find()).toEqual(['using', 'absent']), WITHIN);
  });

  it('of another authority, of another name or without its files are trouble', async () => {
    const { folder, cert, key } = await secured();
    const ads = await AdsServer.start(atEnd, { tls: { cert, key } });
    const other = await following(ads.port, { tls: { serverName: 'istiod.istio-system.svc' } }, folder);
    await vi.waitFor(() => expect(other.find()).toBe(NO_TRUST), WITHIN);
    const tls = { caFile: 'root.pem', serverName: 'other.example' };
    const named = await following(ads.port, { tls }, folder);
    await vi.waitFor(() => expect(named.find()).toBe(NO_TRUST), WITHIN);
    const without = await following(ads.port, SPEC, undefined);
    await vi.waitFor(
      () =>
        expect(without.find()).toBe(
          'cannot be read (needs the file token, and --inspect-files names no folder)',
        ),
      WITHIN,
    );
    expect(ads.streams).toBe(0);
  });

  it('a token that is no header value is trouble, and is not shown', async () => {
    const { folder, cert, key } = await secured();
    writeFileSync(join(folder, 'token'), 'first\nsecond\n');
    const ads = await AdsServer.start(atEnd, { tls: { cert, key } });
    const { find } = await following(ads.port, SPEC, folder);
    const trouble = 'cannot be read (needs one line of printable ASCII in the file token)';
    await vi.waitFor(() => expect(find()).toBe(trouble), WITHIN);
  });
});

describe('a consumer that follows istiod', () => {
  it('uses a pod until a push is without it: acknowledgement and sample', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1', '10.0.0.2');
    const xds: XdsSpec = { address: `127.0.0.1:${ads.port}` };
    const { inspection, consumers, lags, lists, end } = await leading('mesh', { xds }, undefined);
    lists('a', 'b');
    await vi.waitFor(() => expect(ads.subscribed).toContain(CLUSTER), WITHIN);
    const told: number[] = [];
    inspection.onChange(() => void told.push(performance.now()));
    const at = end();
    const users = () => inspection.usersOf('mesh', 'a', at);
    await vi.waitFor(() => expect(users()).toEqual(['127.0.0.1']), WITHIN);
    await sleep(1_000);
    expect(users()).toEqual(['127.0.0.1']);
    expect(lags).toEqual([]);
    ads.push(CLUSTER, '10.0.0.2');
    const pushedAt = performance.now();
    await vi.waitFor(() => expect(users()).toEqual([]), { timeout: 20_000, interval: 5 });
    // The proxies have a quarter of a second.
    const took = performance.now() - pushedAt;
    expect(took).toBeGreaterThan(240);
    expect(took).toBeLessThan(700);
    expect(told.at(-1)! - pushedAt).toBeLessThan(700);
    await vi.waitFor(() => expect(lags).toHaveLength(1), WITHIN);
    expect(lags[0]).toBeGreaterThanOrEqual((pushedAt - at) / 1000 + 0.24);
    expect(consumers.state('mesh')?.trouble).toBeUndefined();
    expect([...inspection.seenAmong([{ namespace: 'shop', name: 'web' }], ['10.9.9.9'])]).toEqual([]);
  }, 60_000);

  it('is told of even if this process stood still when the proxies’ time was over', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1', '10.0.0.2');
    const xds: XdsSpec = { address: `127.0.0.1:${ads.port}` };
    const { inspection, lists, end } = await leading('mesh', { xds }, undefined);
    lists('a', 'b');
    await vi.waitFor(() => expect(ads.subscribed).toContain(CLUSTER), WITHIN);
    const at = end();
    const users = () => inspection.usersOf('mesh', 'a', at);
    await vi.waitFor(() => expect(users()).toEqual(['127.0.0.1']), WITHIN);
    let told = 0;
    inspection.onChange(() => {
      if (users()?.length === 0) told += 1;
    });
    ads.push(CLUSTER, '10.0.0.2');
    await sleep(200);
    const until = performance.now() + 600;
    while (performance.now() < until);
    await vi.waitFor(() => expect(told).toBeGreaterThan(0), WITHIN);
  }, 60_000);

  it('has let go of a pod that the push before the question was without, and knows nothing of one never pushed', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.push(CLUSTER, '10.0.0.1', '10.0.0.2');
    // Long beside what a busy machine is late.
    const syncInterval = 2;
    const xds: XdsSpec = { address: `127.0.0.1:${ads.port}`, syncInterval };
    const first = await leading('mesh', { xds }, undefined);
    first.lists('a', 'b');
    await vi.waitFor(() => expect(ads.subscribed).toContain(CLUSTER), WITHIN);
    await vi.waitFor(() => expect(first.consumers.state('mesh')?.trouble).toBeUndefined(), WITHIN);
    ads.push(CLUSTER, '10.0.0.2');
    await sleep(1_050 * syncInterval);
    const at = first.end();
    await vi.waitFor(() => expect(first.inspection.usersOf('mesh', 'a', at)).toEqual([]), WITHIN);
    // The proxies' time counts from the push, and not from the question.
    expect(performance.now() - at).toBeLessThan(950 * syncInterval);
    // A leader that comes later has never seen it.
    const second = await leading('mesh', { xds }, undefined);
    second.lists('a', 'b');
    await vi.waitFor(() => expect(second.consumers.state('mesh')?.trouble).toBeUndefined(), WITHIN);
    const later = second.end();
    await sleep(500);
    expect(second.inspection.usersOf('mesh', 'a', later)).toBe('unknown');
  }, 60_000);

  it('is not known while istiod cannot be read, and the condition says why', async () => {
    const ads = await AdsServer.start(atEnd);
    ads.stop();
    const xds: XdsSpec = { address: `127.0.0.1:${ads.port}` };
    const { inspection, consumers, lists, end } = await leading('mesh', { xds }, undefined);
    lists('a', 'b');
    const at = end();
    await vi.waitFor(
      () =>
        expect(consumers.state('mesh')?.trouble).toEqual({
          reason: 'Unreachable',
          message: 'The pushes of 127.0.0.1 cannot be read (UNAVAILABLE, ECONNREFUSED).',
        }),
      WITHIN,
    );
    expect(inspection.usersOf('mesh', 'a', at)).toBe('unknown');
  }, 60_000);
});
