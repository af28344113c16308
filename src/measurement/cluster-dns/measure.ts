import { SHARED_MISSES } from '../canary/timed.ts';
import type { Measuring } from '../measure.ts';
import { askDns } from './dns.ts';

/** The canary's headless Service. */
export const CANARY_DNS_SERVICE = 'linger-canary-dns';

/** Cluster DNS, by the name of the canary's headless Service. */
export const clusterDns: Measuring<'clusterDns'> = {
  by: 'canary',
  limit:
    'It sees the DNS servers that the leader’s pod asks, and counts the TTL of their answers; clients that keep an answer for longer than its TTL are not seen.',
  attempts: async (_, { canary, ...met }, { namespace, dns, timeoutMs }) => {
    const asked = `${CANARY_DNS_SERVICE}.${namespace}.${dns.domain}`;
    // DNS returns the addresses of replicas whether or not they answer.
    const fellows = [...met.fellows, ...met.silent.map((each) => ({ ...each, identity: each.pod.uid }))];
    const ask = () => askDns(dns, { name: asked, canary, fellows, timeoutMs });
    return { service: CANARY_DNS_SERVICE, leastMisses: SHARED_MISSES, subject: `The DNS name ${asked}`, ask };
  },
};
