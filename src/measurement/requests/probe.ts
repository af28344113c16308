import { lookup } from 'node:dns/promises';
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import https from 'node:https';
import { BlockList, isIP } from 'node:net';
import { http, withoutRoute } from '../../cluster/index.ts';
import { authorityOf, CANARY_IDENTITY_HEADER, type Curable } from '../../core/api/index.ts';
import type { ConditionReason } from '../../core/lag/index.ts';
import { pause } from '../../timing/index.ts';

/** How a flip of the canary ended: the label `result` of linger_canary_flips_total. */
export const FLIP_RESULTS = {
  Measured: {
    means: 'The replica was removed and added again, and at least one consumer was timed.',
    cure: 'Nothing.',
  },
  NotSeen: {
    means: 'No consumer could be timed. If none reached the replica, nothing was changed.',
    cure: 'Their conditions say why.',
  },
  NoReplica: {
    means: 'No replica is ready, labelled, listed by the Service, and answering on its canary port.',
    cure: 'Use the same port in `--canary-port`, Deployment and NetworkPolicy.',
  },
  NoService: {
    means: 'There is no Service linger-canary with a ClusterIP.',
    cure: 'Apply `deploy/service-canary.yaml`.',
  },
  Refused: {
    means: 'The API server refused the label change, or did not answer.',
    cure: '`deploy/role-pods.yaml`; the condition has its message.',
  },
  Late: {
    means: 'The EndpointSlice did not follow within 30 s.',
    cure: 'The control plane is slow: `linger diagnose`.',
  },
  Interrupted: {
    means: 'A watch was interrupted, the process paused, or another replica came or went.',
    cure: 'Often: more CPU, or find out why its pods restart.',
  },
  ReplicaLost: {
    means: 'The replica ended, restarted, or became unready. Nothing of this flip counts.',
    cure: 'Often: find out why its pods restart.',
  },
  Ended: {
    means: 'The replica stopped leading, or the process ended. The label was put back.',
    cure: 'Nothing.',
  },
} as const satisfies Readonly<Record<string, Curable>>;

export type FlipResult = keyof typeof FLIP_RESULTS;

const BODY = new RegExp(`^${CANARY_IDENTITY_HEADER} ([0-9a-f]{32})\\s*$`);
const IDENTITY = /^[0-9a-f]{32}$/;
/** Linger's own answer has 47 bytes. A longer one comes from something else, and is not read to its end. */
const LONGEST_BODY = 128;

/** The result of an attempt: the name of the replica that answered, or why none did. */
export type Answer =
  | {
      readonly identity: string;
      /** How long a client may cache this answer, and so keep connecting to that replica; absent: not at all. */
      readonly heldMs?: number;
    }
  | Problem;

export interface Problem {
  readonly identity?: undefined;
  readonly reason: Extract<ConditionReason, 'Unreachable' | 'BadAnswer' | 'NotLinger'>;
  /** The problem, as a phrase after `the probe`. Contains no foreign text. */
  readonly message: string;
  /** The connection was refused at once, as happens when the Service has no endpoint. */
  readonly turnedAway: boolean;
}

export interface Question {
  readonly url: URL;
  /** Where to connect: an address to which the URL's host was resolved, or a Unix socket. */
  readonly to: { readonly host: string } | { readonly socketPath: string };
  readonly headers: OutgoingHttpHeaders;
  /** Default: GET. */
  readonly method?: string | undefined;
  readonly body?: string | undefined;
  /** How to verify its certificate. */
  readonly trust?: {
    readonly ca?: string | undefined;
    readonly serverName?: string | undefined;
    readonly insecureSkipVerify?: boolean | undefined;
  };
  /** The timeout of the whole attempt, in milliseconds. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Called when the connection has been established. */
  readonly onConnect?: (() => void) | undefined;
}

/**
 * Sends one request over a new connection to exactly this address, without name resolution, redirects or proxies. Never
 * throws. Resolves within the timeout.
 * @param wanted what the request waits for, in words
 * @param read reads the response, and settles the result
 */
export function askOnce<T>(
  { url, to, headers, method, body, trust = {}, timeoutMs, signal, onConnect }: Question,
  wanted: string,
  read: (response: IncomingMessage, settle: (outcome: T | Problem) => void) => void,
): Promise<T | Problem> {
  const name = trust.serverName ?? hostOf(url);
  const options = {
    ...to,
    port: url.port,
    path: url.pathname + url.search,
    ...(method !== undefined && { method }),
    // A connection of its own; the default agent might use proxies from the environment.
    agent: false as const,
    headers: { ...headers, host: url.host, connection: 'close' },
  };
  const tls = {
    ca: trust.ca,
    rejectUnauthorized: trust.insecureSkipVerify !== true,
    ...(isIP(name) === 0 ? { servername: name } : {}),
  };
  return new Promise((resolve) => {
    const request = url.protocol === 'https:' ? https.request({ ...options, ...tls }) : http.request(options);
    const settle = (outcome: T | Problem) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      resolve(outcome);
      request.destroy();
    };
    const late = problem('Unreachable', `gets no ${wanted} within ${timeoutMs / 1000} s`);
    const timer = setTimeout(() => settle(late), timeoutMs).unref();
    const abort = () => settle(problem('Unreachable', 'is no longer asked'));
    signal?.addEventListener('abort', abort, { once: true });
    if (onConnect !== undefined) request.once('socket', (socket) => void socket.once('connect', onConnect));
    request.on('error', (error) => settle(probeProblemOf(error)));
    request.on('response', (response) => {
      response.on('error', (error) => settle(probeProblemOf(error)));
      read(response, settle);
    });
    request.end(body);
    if (signal?.aborted) abort();
  });
}

/** Which replica answers at a URL. @param address to which the URL's host was resolved */
export function attempt(
  asked: Pick<Question, 'url' | 'timeoutMs' | 'onConnect'> & { readonly address: string },
): Promise<Answer> {
  const headers = {
    'user-agent': 'linger-canary',
    accept: 'text/plain, */*;q=0.1',
    'cache-control': 'no-cache',
  };
  return askOnce({ ...asked, to: { host: asked.address }, headers }, 'answer', read);
}

/**
 * Which replica answers behind a ClusterIP. If its Service has no endpoint, kube-proxy rejects connections. But the kernel
 * sends only one such rejection a second to a client (`net.ipv4.icmp_ratelimit`), and silently drops its other connections.
 * So a connection that is never established counts as refused as well.
 */
export async function attemptClusterIp(asked: Parameters<typeof attempt>[0]): Promise<Answer> {
  let stands = false;
  const onConnect = () => {
    stands = true;
  };
  const answer = await attempt({ ...asked, onConnect });
  return answer.identity === undefined && !stands ? { ...answer, turnedAway: true } : answer;
}

function read(response: IncomingMessage, settle: (answer: Answer) => void): void {
  const { statusCode = 0, headers } = response;
  const named = headers[CANARY_IDENTITY_HEADER];
  if (statusCode < 200 || statusCode > 299) settle(refusal(statusCode));
  else if (typeof named === 'string' && IDENTITY.test(named)) settle({ identity: named });
  else {
    const stranger = `is answered with ${statusCode} by something that is not Linger`;
    const wayOut = 'the URL must lead to the Service linger-canary';
    const other = problem('NotLinger', `${stranger}: ${wayOut}`);
    readShortBody(response, LONGEST_BODY, (body) => {
      const identity = body === undefined ? undefined : BODY.exec(body)?.[1];
      settle(identity === undefined ? other : { identity });
    });
  }
}

/** @param settle called with the body; undefined: it has more characters than `longest` */
export function readShortBody(
  response: IncomingMessage,
  longest: number,
  settle: (body: string | undefined) => void,
): void {
  let body = '';
  response.setEncoding('latin1');
  response.on('data', (chunk: string) => {
    body += chunk;
    if (body.length > longest) settle(undefined);
  });
  response.on('end', () => settle(body));
}

export function problem(reason: Problem['reason'], message: string, turnedAway = false): Problem {
  return { reason, message, turnedAway };
}

export function refusal(status: number): Problem {
  if (status >= 300 && status < 400) {
    const wayOut = 'name the URL that it is to end at';
    return problem('BadAnswer', `is redirected (${status}), which is not followed: ${wayOut}`);
  }
  // Gateways answer with 5xx if they have no endpoint.
  return problem('BadAnswer', `is answered with status ${status}`, status >= 500);
}

/** System errors that mean that the connection was refused at once. */
const TURNED_AWAY: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'is refused a connection',
  ECONNRESET: 'has its connection closed without a full answer',
  EPIPE: 'has its connection closed without a full answer',
  EHOSTUNREACH: 'has no route to the address',
  ENETUNREACH: 'has no route to the address',
};

/** Error codes of node:tls and of OpenSSL's verification: `ERR_TLS_CERT_ALTNAME_INVALID`, `DEPTH_ZERO_SELF_SIGNED_CERT`. */
const CERTIFICATE = /CERT|SELF_SIGNED|UNABLE_TO|HOSTNAME_MISMATCH/;

/** @returns the problem, as a phrase after `the probe` or `the page` */
function probeProblemOf(error: Error & { readonly code?: unknown }): Problem {
  const code = typeof error.code === 'string' ? error.code : error.name;
  const turnedAway = TURNED_AWAY[code];
  if (turnedAway !== undefined) return problem('Unreachable', turnedAway, true);
  if (code === 'ETIMEDOUT') return problem('Unreachable', 'cannot connect in time');
  if (code.startsWith('HPE_')) {
    return problem('BadAnswer', `is answered with something other than HTTP, or too much of it (${code})`);
  }
  if (CERTIFICATE.test(code)) {
    const wayOut = 'NODE_EXTRA_CA_CERTS names further authorities';
    return problem('Unreachable', `does not trust the certificate (${code}): ${wayOut}`);
  }
  const tls = /SSL|TLS|EPROTO/.test(code);
  return problem('Unreachable', tls ? `cannot agree on TLS (${code})` : `fails (${code})`);
}

/** A host name or an address; an IPv6 address without its brackets. */
function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

/** The URL of a replica's canary server, or of a Service in front of it. */
export function canaryUrl(address: string, port: number): URL {
  return new URL(`http://${authorityOf(address, port)}/canary`);
}

/** DNS clients retry after 5 s; a server that does not answer the second query either is down. */
const WITHIN_MS = 8_000;

/**
 * Addresses at which clouds serve credentials to every process of a node. No gateway in front of pods has such an address.
 */
const METADATA = {
  // Link-local (RFC 3927), Alibaba, Azure's wire server, Oracle.
  ipv4: ['169.254.0.0/16', '100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32'],
  // Link-local, AWS, Google, Scaleway; Teredo and the NAT64 prefix for local use may lead to any IPv4 address.
  ipv6: ['fe80::/10', 'fd00:ec2::/32', 'fd20:ce::/32', 'fd00:42::42/128', '2001::/32', '64:ff9b:1::/48'],
};

/**
 * A BlockList recognises IPv4 addresses that are mapped into IPv6 (`::ffff:a.b.c.d`) by itself, but no other embedded form.
 */
const FORBIDDEN = new BlockList();
for (const subnet of METADATA.ipv6) {
  const [address = '', length] = subnet.split('/');
  FORBIDDEN.addSubnet(address, Number(length), 'ipv6');
}
for (const subnet of METADATA.ipv4) {
  const [address = '', length] = subnet.split('/');
  FORBIDDEN.addSubnet(address, Number(length), 'ipv4');
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  const hex = `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  // IPv4-compatible, IPv4-translated (RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056).
  for (const prefix of ['::', '::ffff:0:', '64:ff9b::'])
    FORBIDDEN.addSubnet(`${prefix}${hex}`, 96 + Number(length), 'ipv6');
  FORBIDDEN.addSubnet(`2002:${hex}::`, 16 + Number(length), 'ipv6');
}

/** This machine itself: loopback and the unspecified address. */
const LOCAL = new BlockList();
for (const [address, length] of [
  ['127.0.0.0', 8],
  ['0.0.0.0', 8],
] as const)
  LOCAL.addSubnet(address, length, 'ipv4');
for (const address of ['::1', '::']) LOCAL.addAddress(address, 'ipv6');

function isLocal(address: string): boolean {
  return LOCAL.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

/** Whether the address is link-local, or one at which clouds serve metadata. */
export function isForbidden(address: string): boolean {
  const [plain = ''] = address.split('%');
  return FORBIDDEN.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4');
}

export interface Resolved {
  readonly addresses: readonly string[];
  /** Further addresses, of a family to which this host has no route. */
  readonly unrouted: readonly string[];
}

/**
 * The addresses of a URL's host that may be called. They are resolved once per flip, and each attempt connects to a checked
 * address: resolving again could lead elsewhere, and would occupy the few threads that resolve names.
 * @param allowLinkLocal whether to allow link-local addresses and those at which clouds serve metadata
 * @param refuseLocal whether to refuse this machine itself, unless `allowLinkLocal`: for requests that change something
 */
export async function resolve(
  url: URL,
  options: { readonly signal: AbortSignal; readonly allowLinkLocal: boolean; readonly refuseLocal?: boolean },
): Promise<Resolved | Problem> {
  const { signal, allowLinkLocal, refuseLocal = false } = options;
  const host = hostOf(url);
  const addresses = isIP(host) === 0 ? await lookUp(host, signal) : [host];
  if (typeof addresses === 'string') return problem('Unreachable', `cannot resolve its host (${addresses})`);
  const refused = (address: string) => isForbidden(address) || (refuseLocal && isLocal(address));
  const allowed = allowLinkLocal ? addresses : addresses.filter((address) => !refused(address));
  const unrouted = await withoutRoute(allowed);
  if (allowed.length > 0) return { addresses: allowed.filter((each) => !unrouted.includes(each)), unrouted };
  return problem(
    'Unreachable',
    `is not sent to ${refuseLocal ? 'loopback, ' : ''}link-local addresses and those of cloud metadata; --probe-allow-link-local allows it`,
  );
}

async function lookUp(host: string, signal: AbortSignal): Promise<readonly string[] | string> {
  const found = lookup(host, { all: true }).then(
    (all) => all.map(({ address }) => address),
    (error: NodeJS.ErrnoException) => error.code ?? error.name,
  );
  const late = pause(WITHIN_MS, signal).then(() => 'no answer in time');
  return Promise.race([found, late]);
}
