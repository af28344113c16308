import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { percentileOf } from '../cluster-suite/support/agreement.ts';
import { DnsClients } from '../cluster-suite/support/dns-clients.ts';
import { Installation } from '../cluster-suite/support/installation.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type ClusterDns, type ClusterDnsOptions, startClusterDns } from '../testbed/cluster-dns.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';

const POLICY = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Enforce' },
});
const SERVICE = 'linger-canary-dns';

/** As for the canary through the ClusterIP; and TTLs are whole seconds. */
const WITHIN_SHARE = 0.1;
const WITHIN_SECONDS = 0.3;

interface Flip {
  readonly result: string;
  readonly pod: string;
  readonly consumers: { readonly 'cluster-dns'?: { readonly removal?: number } };
}

let cluster: Cluster;
let linger: Installation;
let dns: ClusterDns;
const reading = new AbortController();
const flips: (Flip & { readonly readAt: number })[] = [];

const FIRST: ClusterDnsOptions = { ttl: 5 };

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  dns = await startClusterDns(clusterSettings(), FIRST);
  const flags = ['--canary-every=1s', '--log-level=debug'];
  linger = await Installation.create(cluster, { policies: POLICY, flags, dns: dns.server });
  for (const { name } of await linger.replicas.list()) {
    const line = (text: string) => {
      if (text.includes('"canary flip"'))
        flips.push({ ...(JSON.parse(text) as Flip), readAt: performance.now() });
    };
    void cluster.followLogs('linger', name, 'linger', line, reading.signal).catch(() => undefined);
  }
}, 600_000);

afterAll(async () => {
  reading.abort();
  if (LONG && cluster?.own) {
    await linger?.remove();
    await dns?.stop();
  }
  await cluster?.close();
}, 240_000);

interface Pair {
  /** Seconds. */
  readonly measured: number;
  readonly truth: number;
  readonly named: number;
}

/** Flips through this CoreDNS, beside what a client of it saw: the last departure of that replica before the flip had ended. */
async function measured(options: ClusterDnsOptions, count: number): Promise<readonly Pair[]> {
  if (options !== FIRST) dns = await startClusterDns(clusterSettings(), options);
  const clients = new DnsClients(cluster, dns.server, 'linger', SERVICE);
  // The flip under way has seen the previous CoreDNS.
  const before = flips.length;
  await waitUntil('that flip to end', () => flips.length > before, { timeoutMs: 120_000 });
  const since = performance.now();
  const found = () =>
    flips.filter(
      ({ readAt, consumers }) => readAt > since && consumers['cluster-dns']?.removal !== undefined,
    );
  await waitUntil(`${count} flips`, () => found().length >= count, {
    timeoutMs: count * (20_000 + 2_000 * options.ttl),
    intervalMs: 500,
  }).finally(() => clients.stop());
  const addresses = new Map((await linger.replicas.list()).map(({ name, address }) => [name, address]));
  return found().map(({ pod, readAt, consumers }) => {
    const truth = clients.departures.findLast(
      ({ address, at }) => address === addresses.get(pod) && at < readAt && at > since,
    );
    if (truth === undefined) throw new Error(`no client of DNS saw ${pod} go`);
    return {
      measured: consumers['cluster-dns']!.removal!,
      truth: truth.lag / 1000,
      named: truth.named / 1000,
    };
  });
}

const seconds = (value: number) => `${value.toFixed(2)} s`;

/** A foreign cluster may have its own DNS, which we must not configure. */
async function isOwn(): Promise<boolean> {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
}

/** Its Corefile switches the cache off for the cluster's own domain (kubeadm's addons/dns/manifests.go of 1.36). */
const KUBEADM: ClusterDnsOptions = { ttl: 30 };
const SETTINGS: readonly [string, ClusterDnsOptions][] = [
  ['ttl 5, no cache', FIRST],
  ['ttl 5, cache 30', { ttl: 5, cache: 30 }],
  ['ttl 30, no cache, as kubeadm has it', KUBEADM],
];

// Building CoreDNS and waiting for its TTLs takes ten minutes: in the long form only.
describe.runIf(LONG && (await isOwn()))('the canary through CoreDNS', () => {
  it.each(SETTINGS)(
    'times clients of a headless Service: %s',
    { timeout: 2_400_000 },
    async (what, options) => {
      const pairs = await measured(options, 30);
      const line = [50, 90].map((percentile) => {
        const of = (values: readonly number[]) => percentileOf(values, percentile);
        const own = of(pairs.map((pair) => pair.measured));
        const truth = of(pairs.map((pair) => pair.truth));
        expect.soft(Math.abs(own - truth)).toBeLessThan(Math.max(WITHIN_SHARE * truth, WITHIN_SECONDS));
        return `p${percentile} ${seconds(own)} (truth ${seconds(truth)})`;
      });
      const off = pairs.map((pair) => Math.abs(pair.measured - pair.truth));
      const named = pairs.map((pair) => pair.named);
      console.log(
        `${what}, ${pairs.length} flips: ${line.join(', ')}; single flips off by ${seconds(percentileOf(off, 50))} (median), ${seconds(Math.max(...off))} (most); CoreDNS itself named the address for up to ${seconds(Math.max(...named))}`,
      );
      // It includes what clients cache: without a cache in CoreDNS, the whole TTL.
      if (options.cache === undefined)
        for (const pair of pairs) expect(pair.measured).toBeGreaterThan(options.ttl - WITHIN_SECONDS);
      else expect(Math.max(...pairs.map((pair) => pair.measured))).toBeLessThan(options.ttl + 2);
    },
  );
});
