import {
  Client,
  type ClientDuplexStream,
  credentials,
  InterceptingCall,
  type Interceptor,
  ListenerBuilder,
  Metadata,
  status,
} from '@grpc/grpc-js';
import protobuf from 'protobufjs/minimal.js';
import {
  asError,
  authorityOf,
  canonicalAddress,
  FOREIGN_LIMITS,
  objectKey,
  PageFindings,
  type ServiceRecord,
  type XdsSpec,
} from '../../core/api/index.ts';
import { ListedAddresses } from '../../informers/index.ts';
import { stepsOnLoop } from '../../telemetry/index.ts';
import { Backoff, inPieces, pause } from '../../timing/index.ts';
import { instancesAt, type PageInstance, type PageToRead, type Source } from '../inspect/inspected.ts';
import { readHeaderValue, trustOf } from '../requests/gateway-client.ts';
import { type Problem, problem, resolve } from '../requests/probe.ts';

const { Reader, Writer } = protobuf;

/*
 * Istiod pushes endpoints to its proxies over incremental ADS (envoy.service.discovery.v3), to which Linger subscribes like
 * a proxy. It reads and writes only the few message fields whose numbers are below.
 */
const METHOD = '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources';
const ENDPOINTS = 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment';

/** The values UNKNOWN, HEALTHY and DEGRADED of HealthStatus. A proxy sends nothing new to DRAINING endpoints. */
const SENT_TO: readonly number[] = [0, 1, 5];

/** Istiod accepts requests of up to 4 MiB. */
const NAMES_AT_ONCE = 5_000;
const MOST_ISTIODS = 20;

/** Istiod rejects pings less than 15 s apart. Milliseconds. */
const KEEPALIVE = { 'grpc.keepalive_time_ms': 30_000, 'grpc.keepalive_timeout_ms': 10_000 };
const RETRY = { firstPauseMs: 500, longestPauseMs: 15_000 };

interface IstiodContext {
  /** The folder of --inspect-files; undefined: it is not set. */
  readonly files: string | undefined;
  /** Linger's own. */
  readonly namespace: string;
  readonly allowLinkLocal: boolean;
  readonly clock: () => number;
  readonly random: () => number;
  readonly signal: AbortSignal;
}

/**
 * The istiods behind an address. All of them are followed, because each proxy is connected to one of them, and any may be
 * the last to push.
 */
export class Istiods implements Source {
  readonly #spec: XdsSpec;
  readonly #context: IstiodContext;
  readonly #url: URL;
  readonly #istiods = new Map<string, { readonly istiod: Istiod; readonly ending: AbortController }>();
  #services: ReadonlyMap<string, string> = new Map();

  constructor(spec: XdsSpec, context: IstiodContext) {
    this.#spec = spec;
    this.#context = context;
    this.#url = new URL(`https://${spec.address}`);
    context.signal.addEventListener('abort', () => this.#keep([]), { once: true });
  }

  follow(services: readonly ServiceRecord[]): void {
    const { clusterDomain = 'cluster.local' } = this.#spec;
    const clusters = services.flatMap(({ namespace, name, ports = [] }) =>
      ports.map((port) => {
        const cluster = `outbound|${port}||${name}.${namespace}.svc.${clusterDomain}`;
        return [cluster, objectKey({ namespace, name })] as const;
      }),
    );
    this.#services = new Map(clusters);
    for (const { istiod } of this.#istiods.values()) istiod.follow(this.#services);
  }

  async instances(signal: AbortSignal): ReturnType<Source['instances']> {
    const found = await resolve(this.#url, { signal, allowLinkLocal: this.#context.allowLinkLocal });
    if (!('addresses' in found)) return found;
    const list = instancesAt(this.#url, found, MOST_ISTIODS);
    if (!this.#context.signal.aborted) this.#keep(list.pages.map(({ address }) => address));
    return list;
  }

  find({ address }: PageInstance, page: PageToRead): PageFindings | Problem {
    const { istiod } = this.#istiods.get(address) ?? {};
    return istiod?.find(page) ?? problem('Unreachable', 'are not followed');
  }

  #keep(addresses: readonly string[]): void {
    for (const [address, { ending }] of this.#istiods) {
      if (addresses.includes(address)) continue;
      ending.abort();
      this.#istiods.delete(address);
    }
    for (const address of addresses) {
      if (this.#istiods.has(address)) continue;
      const ending = new AbortController();
      const to = authorityOf(address, Number(this.#url.port || 443));
      const istiod = new Istiod(this.#spec, to, { ...this.#context, signal: ending.signal });
      istiod.follow(this.#services);
      this.#istiods.set(address, { istiod, ending });
    }
  }
}

type Call = ClientDuplexStream<Buffer, Buffer>;

/** The endpoints that one istiod has pushed. */
class Istiod {
  readonly #spec: XdsSpec;
  /** Its address and port, as a gRPC target. */
  readonly #to: string;
  readonly #context: IstiodContext;
  readonly #listed: ListedAddresses;
  /** The followed clusters by name, each with its Service. */
  #followed: ReadonlyMap<string, string> = new Map();
  /**
   * The clusters to which this stream has subscribed, each with its Service; and those of them that have not been answered
   * yet.
   */
  readonly #asked = new Map<string, string>();
  readonly #unanswered = new Map<string, string>();
  #call: Call | undefined;
  #trouble: string | undefined = 'have not arrived yet';

  constructor(spec: XdsSpec, to: string, context: IstiodContext) {
    this.#spec = spec;
    this.#to = to;
    this.#context = context;
    this.#listed = new ListedAddresses(context.clock);
    void this.#run();
  }

  follow(clusters: ReadonlyMap<string, string>): void {
    this.#followed = clusters;
    if (this.#call !== undefined) this.#ask(this.#call, clusters);
  }

  #ask(call: Call, clusters: ReadonlyMap<string, string>): void {
    const isOver = (each: string) => !clusters.has(each) && each !== FIRST && !this.#listed.has(each);
    // While istiod still pushes a deleted Service, proxies have its endpoints as well, so it stays subscribed.
    const over = [...this.#asked.keys()].filter(isOver);
    for (const each of over) {
      this.#asked.delete(each);
      this.#unanswered.delete(each);
    }
    const fresh = [...clusters].filter(([each]) => !this.#asked.has(each));
    for (const [cluster, service] of fresh) {
      this.#asked.set(cluster, service);
      this.#unanswered.set(cluster, service);
    }
    const names = [
      ...fresh.map(([cluster]) => [SUBSCRIBE, cluster] as const),
      ...over.map((cluster) => [UNSUBSCRIBE, cluster] as const),
    ];
    for (let at = 0; at < names.length; at += NAMES_AT_ONCE)
      call.write(request(...names.slice(at, at + NAMES_AT_ONCE)));
  }

  find({ wanted, services }: Pick<PageToRead, 'wanted' | 'services'>): PageFindings | Problem {
    const trouble = this.#trouble ?? this.#listed.trouble;
    if (trouble !== undefined) return problem('Unreachable', trouble);
    const asked = new Set(services.map(objectKey));
    for (const service of this.#unanswered.values())
      if (asked.has(service)) return problem('Unreachable', 'do not have all Services yet');
    const addresses = wanted.map(({ address }) => address);
    return PageFindings.at(this.#listed.find(addresses, (service) => asked.has(service)));
  }

  async #run(): Promise<void> {
    const { signal, random } = this.#context;
    const backoff = new Backoff(RETRY, random);
    do {
      let client: Client | undefined;
      let hasTold = false;
      const cancel = () => this.#call?.cancel();
      signal.addEventListener('abort', cancel, { once: true });
      try {
        const { options, metadata, channel } = await this.#means();
        client = new Client(targetOf(this.#to), channel, options);
        const messages = oneAtATime();
        const call = client.makeBidiStreamRequest(METHOD, asIs, asIs, metadata, {
          interceptors: [messages.interceptor],
        });
        // It may fail after the loop below has ended, and an error event without a listener ends the process.
        call.on('error', () => undefined);
        this.#begin(call);
        if (signal.aborted) cancel();
        for await (const message of call as AsyncIterable<Buffer>) {
          await this.#take(call, message);
          messages.next();
          hasTold = true;
          if (this.#unanswered.size === 0) backoff.reset();
        }
        if (!hasTold) this.#trouble = 'end at once';
      } catch (error) {
        const { code } = error as { readonly code?: unknown };
        // Istiod ends each stream after a while; what it has pushed stays valid until the next stream says otherwise.
        if (!hasTold || code !== status.UNAVAILABLE)
          this.#trouble = `cannot be read (${reasonOf(asError(error))})`;
      }
      signal.removeEventListener('abort', cancel);
      this.#call = undefined;
      client?.close();
    } while (await pause(backoff.next(), signal));
  }

  /** Reads the credentials for each stream anew, because tokens are rotated. */
  async #means() {
    const { tls, tokenFile } = this.#spec;
    const { files } = this.#context;
    const metadata = new Metadata();
    if (tokenFile !== undefined)
      metadata.set('authorization', `Bearer ${await readHeaderValue(files, tokenFile)}`);
    const host = this.#spec.address.replace(/:\d+$/, '');
    const name = tls?.serverName ?? (canonicalAddress(host.replace(/[[\]]/g, '')) ? undefined : host);
    const options = {
      ...KEEPALIVE,
      'grpc.max_receive_message_length': FOREIGN_LIMITS.push.bytes,
      'grpc.enable_http_proxy': 0,
      'grpc.enable_retries': 0,
      'grpc.use_local_subchannel_pool': 1,
      ...(name !== undefined && { 'grpc.default_authority': name, 'grpc.ssl_target_name_override': name }),
    };
    if (tls === undefined) return { options, metadata, channel: credentials.createInsecure() };
    const { ca, insecureSkipVerify } = await trustOf(files, tls);
    const trust = { rejectUnauthorized: insecureSkipVerify !== true };
    const channel = credentials.createSsl(ca === undefined ? null : Buffer.from(ca), null, null, trust);
    return { options, metadata, channel };
  }

  /** Starts a stream. What an earlier stream has pushed stays valid until this one answers. */
  #begin(call: Call): void {
    const before = [...this.#asked].filter(([cluster]) => this.#listed.has(cluster));
    this.#call = call;
    this.#asked.clear();
    this.#unanswered.clear();
    this.#asked.set(FIRST, '');
    call.write(request([NODE, nodeOf(this.#context.namespace)], [SUBSCRIBE, FIRST]));
    this.#ask(call, new Map([...before, ...this.#followed]));
  }

  /** Takes a push. An unreadable one ends the stream, and its endpoints are then unknown. */
  async #take(call: Call, message: Buffer): Promise<void> {
    const nonce = await inPieces(stepsOnLoop('push', this.#steps(message)));
    call.write(request([NONCE, nonce]));
    this.#trouble = undefined;
  }

  *#steps(message: Buffer): Generator<unknown, string> {
    const { nonce, clusters } = yield* pushIn(message);
    for (const [cluster, addresses] of clusters) {
      const service = this.#asked.get(cluster);
      if (service === undefined) continue;
      yield* this.#listed.setting(cluster, service, addresses);
      this.#unanswered.delete(cluster);
    }
    return nonce;
  }
}

/** Lets a message in only when the previous one has been read: otherwise a stream reads 16 ahead, and each may be large. */
function oneAtATime(): { readonly interceptor: Interceptor; readonly next: () => void } {
  let waiting: (() => void) | undefined;
  let isReading = false;
  const listener = new ListenerBuilder().withOnReceiveMessage((message, pass) => {
    const read = () => {
      isReading = true;
      pass(message);
    };
    if (isReading) waiting = read;
    else read();
  });
  const interceptor: Interceptor = (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start: (metadata, _, start) => start(metadata, listener.build()),
    });
  const next = () => {
    isReading = false;
    const read = waiting;
    waiting = undefined;
    read?.();
  };
  return { interceptor, next };
}

/** The target in a form that grpc-js does not resolve, since it is an address already. */
function targetOf(to: string): string {
  return `${to.startsWith('[') ? 'ipv6' : 'ipv4'}:${to}`;
}

const NO_TRUST = 'its certificate is not trusted';

/**
 * Only the name of the status and the code of Node's error, because what istiod itself says is foreign text and is not
 * shown.
 */
function reasonOf(error: Error & { readonly code?: unknown; readonly details?: unknown }): string {
  if (typeof error.code !== 'number') return error.message;
  const name = status[error.code] ?? `status ${error.code}`;
  const details = String(error.details);
  const [own] = /\bE[A-Z]{4,}\b/.exec(details) ?? (/certificate|altname/i.test(details) ? [NO_TRUST] : []);
  return own === undefined ? name : `${name}, ${own}`;
}

// The fields of DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource and google.protobuf.Any.
const [NODE, TYPE_URL, SUBSCRIBE, UNSUBSCRIBE, NONCE] = [1, 2, 3, 4, 6];
const [PUSH_RESOURCES, PUSH_NONCE, PUSH_REMOVED] = [2, 5, 6];
const [RESOURCE_ANY, RESOURCE_NAME, ANY_VALUE] = [2, 3, 2];
// The fields of ClusterLoadAssignment, LocalityLbEndpoints, LbEndpoint, Endpoint, AdditionalAddress, Address and
// SocketAddress.
const [ASSIGNMENT_LOCALITIES, LOCALITY_ENDPOINTS] = [2, 2];
const [LB_ENDPOINT, LB_HEALTH, ENDPOINT_ADDRESS, ENDPOINT_MORE, MORE_ADDRESS] = [1, 2, 1, 4, 1];
const [ADDRESS_SOCKET, SOCKET_ADDRESS] = [1, 2];
// The fields of Node and google.protobuf.Struct.
const [NODE_ID, NODE_METADATA, STRUCT_FIELDS, ENTRY_KEY, ENTRY_VALUE, VALUE_TEXT] = [1, 3, 1, 1, 2, 3];

/**
 * The cluster of a Service that always exists: the first request of a stream must name a cluster, and the answer proves that
 * the stream works.
 */
const FIRST = 'outbound|443||kubernetes.default.svc.cluster.local';

function request(...fields: readonly Written[]): Buffer {
  return encoded([TYPE_URL, ENDPOINTS], ...fields);
}

/**
 * Linger presents itself as a sidecar, because istiod pushes all endpoints to sidecars. No pod has the address that it
 * states, so the settings of no pod apply.
 */
function nodeOf(namespace: string): Buffer {
  const metadata = { NAMESPACE: namespace, CLUSTER_ID: 'Kubernetes', INSTANCE_IPS: '127.0.0.1,::1' };
  const entries = Object.entries(metadata).map(([key, value]) => {
    const entry = encoded([ENTRY_KEY, key], [ENTRY_VALUE, encoded([VALUE_TEXT, value])]);
    return [STRUCT_FIELDS, entry] as const;
  });
  const id = `sidecar~127.0.0.1~linger.${namespace}~${namespace}.svc.cluster.local`;
  return encoded([NODE_ID, id], [NODE_METADATA, encoded(...entries)]);
}

/** Istiod sent something that is not a push, or that exceeds a limit of {@link FOREIGN_LIMITS}.push. */
export class BrokenPush extends Error {}

/** How many addresses of one cluster are read: four times as many as the largest Service that was tried. */
const MOST_ADDRESSES = 20_000;

/** Names of Kubernetes allow for 400 bytes. */
const LONGEST_TEXT = 1_024;

interface Push {
  /** Istiod's identifier of the push, with which it is acknowledged. */
  readonly nonce: string;
  /** By cluster, the addresses to which proxies send; an empty list: the cluster no longer exists. */
  readonly clusters: ReadonlyMap<string, readonly string[]>;
}

/** Wire types: protobuf.dev/programming-guides/encoding. */
const [VARINT, BYTES] = [0, 2];
/** The wire types of groups. Proto3 has none, and skipping nested ones would need recursion. */
const GROUPS: readonly number[] = [3, 4];

/**
 * Reads a push with a single cursor, level by level, and keeps only names and addresses.
 * @yields how many bytes have been read: after each `loopBytes`, wherever in the message that is
 * @throws BrokenPush
 */
export function* pushIn(message: Buffer): Generator<number, Push> {
  const most = FOREIGN_LIMITS.push.parts.most;
  const loopBytes = FOREIGN_LIMITS.push.loopBytes;
  const reader = Reader.create(message);
  const clusters = new Map<string, readonly string[]>();
  let nonce = '';
  let fields = 0;
  let yieldedAt = 0;
  /** The addresses of the cluster that is currently being read. */
  let addresses: string[] = [];

  function text(end: number): string {
    if (end - reader.pos > LONGEST_TEXT) throw new BrokenPush('a name is too long');
    return message.toString('utf8', reader.pos, end);
  }

  /** Reads the fields of the message that ends at this position. Fields that are not among `parts` are skipped. */
  function* each(
    end: number,
    parts: Readonly<Record<number, (end: number) => Generator<number, void> | void>>,
    onNumber?: (field: number, number: number) => void,
  ): Generator<number, void> {
    while (reader.pos < end) {
      if (reader.pos - yieldedAt >= loopBytes) {
        yieldedAt = reader.pos;
        yield yieldedAt;
      }
      fields += 1;
      if (fields > most) throw new BrokenPush('a message has too many fields');
      const tag = reader.uint32();
      const [field, wire] = [tag >>> 3, tag & 7];
      if (GROUPS.includes(wire)) throw new BrokenPush('a message is broken');
      if (wire === VARINT) onNumber?.(field, reader.uint32());
      else if (wire === BYTES) {
        const to = reader.uint32() + reader.pos;
        if (to > end) throw new BrokenPush('a message is broken');
        const reading = parts[field]?.(to);
        if (reading !== undefined) yield* reading;
        reader.pos = to;
      } else reader.skipType(wire);
    }
    if (reader.pos > end) throw new BrokenPush('a message is broken');
  }

  const addressOf = (end: number) => each(end, { [ADDRESS_SOCKET]: socketOf });
  const socketOf = (end: number) => each(end, { [SOCKET_ADDRESS]: take });
  const moreOf = (end: number) => each(end, { [MORE_ADDRESS]: addressOf });
  const endpointOf = (end: number) => each(end, { [ENDPOINT_ADDRESS]: addressOf, [ENDPOINT_MORE]: moreOf });
  const localityOf = (end: number) => each(end, { [LOCALITY_ENDPOINTS]: lbEndpointOf });
  const assignmentOf = (end: number) => each(end, { [ASSIGNMENT_LOCALITIES]: localityOf });
  const anyOf = (end: number) => each(end, { [ANY_VALUE]: assignmentOf });

  function take(end: number): void {
    const address = canonicalAddress(text(end));
    if (address === undefined) return;
    addresses.push(address);
    if (addresses.length > MOST_ADDRESSES) throw new BrokenPush('a cluster has too many addresses');
  }

  function* lbEndpointOf(end: number): Generator<number, void> {
    const from = addresses.length;
    let health = 0;
    yield* each(end, { [LB_ENDPOINT]: endpointOf }, (field, number) => {
      if (field === LB_HEALTH) health = number;
    });
    if (!SENT_TO.includes(health)) addresses.length = from;
  }

  function* resourceOf(end: number): Generator<number, void> {
    addresses = [];
    let name = '';
    const nameOf = (to: number) => {
      name = text(to);
    };
    yield* each(end, { [RESOURCE_ANY]: anyOf, [RESOURCE_NAME]: nameOf });
    clusters.set(name, addresses);
  }

  const removedOf = (end: number) => void clusters.set(text(end), []);
  const nonceOf = (end: number) => {
    nonce = text(end);
  };
  try {
    yield* each(message.length, {
      [PUSH_RESOURCES]: resourceOf,
      [PUSH_REMOVED]: removedOf,
      [PUSH_NONCE]: nonceOf,
    });
  } catch (error) {
    throw error instanceof BrokenPush ? error : new BrokenPush('a message is broken', { cause: error });
  }
  return { nonce, clusters };
}

const asIs = (bytes: Buffer) => bytes;

type Written = readonly [field: number, value: string | number | Buffer];

function encoded(...fields: readonly Written[]): Buffer {
  const writer = Writer.create();
  for (const [field, value] of fields) {
    if (typeof value === 'number') writer.uint32(field * 8 + VARINT).uint32(value);
    else writer.uint32(field * 8 + BYTES).bytes(Buffer.from(value));
  }
  return Buffer.from(writer.finish());
}
