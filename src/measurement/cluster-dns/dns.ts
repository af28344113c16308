import { Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { type Answer, problem } from '../requests/probe.ts';

/** The cluster's DNS servers, and the domain of Services. */
export interface ClusterDns {
  /** The domain of Services, such as `svc.cluster.local`. */
  readonly domain: string;
  /** undefined: the servers in /etc/resolv.conf. */
  readonly servers?: readonly string[];
}

const DEFAULT_DOMAIN = 'svc.cluster.local';

/** Read from what the kubelet has configured for this pod, whose search list is `NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN`. */
export async function clusterDns(resolvConf = '/etc/resolv.conf'): Promise<ClusterDns> {
  const text = await readFile(resolvConf, 'utf8').catch(() => '');
  const [, search = ''] = /^search\s+(.+)$/m.exec(text) ?? [];
  return { domain: search.split(/\s+/).find((each) => each.startsWith('svc.')) ?? DEFAULT_DOMAIN };
}

interface NamedReplica {
  readonly address: string;
  readonly identity: string;
}

interface DnsQuestion {
  /** The name of a headless Service. */
  readonly name: string;
  /** The canary; its address family is queried. */
  readonly canary: NamedReplica;
  readonly fellows: readonly NamedReplica[];
  readonly timeoutMs: number;
}

/**
 * Asks once for the addresses of a name, and whether the canary is among them. Each question uses a new resolver, and so its
 * own port, because another port may reach another of the DNS servers behind one address. Never throws.
 */
export async function askDns({ servers }: ClusterDns, question: DnsQuestion): Promise<Answer> {
  const { name, canary, fellows, timeoutMs } = question;
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 });
  if (servers !== undefined) resolver.setServers(servers);
  try {
    const records = await (isIP(canary.address) === 6
      ? resolver.resolve6(name, { ttl: true })
      : resolver.resolve4(name, { ttl: true }));
    const own = records.find(({ address }) => address === canary.address);
    if (own !== undefined) return { identity: canary.identity, heldMs: own.ttl * 1000 };
    const addresses = new Set(records.map(({ address }) => address));
    const fellow = fellows.find(({ address }) => addresses.has(address));
    if (fellow !== undefined) return { identity: fellow.identity };
    return problem('NotLinger', `brings other addresses than those of Linger's replicas`);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    // A headless Service without a ready pod has no records.
    const none = code === 'ENOTFOUND' || code === 'ENODATA';
    return problem('Unreachable', none ? 'brings no address' : `fails (${code})`, none);
  }
}
