import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { ensureCertificates } from '../../src/certs/index.ts';
import { readKubeconfig } from '../../src/cluster/index.ts';
import { MAIN } from '../cli/linger.ts';
import { manifestText } from '../cluster-suite/support/manifests.ts';
import { clusterPolicy, policyFile } from '../cluster-suite/support/policies.ts';
import { consumer } from '../scenarios/hold/setting.ts';
import { type Cluster, images, waitUntil } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';
import { Front } from './front.ts';
import { PORTS, Replica } from './replica.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy');
const NAMESPACE = 'linger';
const CLOCK_SOURCE = join(import.meta.dirname, 'clock-ahead.c');

/** Waits by Hold end within seconds; the static wait, which counts when Linger is not sure, is far from that. */
export const TERMS = { declaredMs: 1_000, syncMs: 1_000, staticMs: 20_000, maxMs: 60_000 } as const;
const WAIT = { minSamples: 20, minHistory: '1s', initial: '20s', min: '20s' };
/** How long the API server waits for a review; 2 s in deploy/webhook.yaml, which a machine that does all this may need. */
const REVIEW_SECONDS = 10;
const DRAIN_SECONDS = 3;

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  spec?: { selector?: unknown; ports?: readonly { readonly name: string }[] };
  readonly webhooks?: { timeoutSeconds: number }[];
}

/** What runs as a pod of deploy/, or stands in the way of processes. */
const LEFT_OUT = ['Deployment', 'PodDisruptionBudget', 'NetworkPolicy'];
const SERVICES: Readonly<Record<string, number>> = { linger: PORTS.webhook, 'linger-hold': PORTS.hold };

/** Linger as deploy/ installs it, with its rights, except that its replicas are processes with a way, a clock and a disk of their own. */
export class SoakSetting {
  /** `steady` is never restarted, so that what it uses can be compared over time; everything happens to `tried`. */
  readonly steady: Replica;
  readonly tried: Replica;
  readonly clockShifts: boolean;
  readonly #cluster: Cluster;
  readonly #manifests: string;

  private constructor(cluster: Cluster, manifests: string, [steady, tried]: [Replica, Replica]) {
    this.#cluster = cluster;
    this.#manifests = manifests;
    this.steady = steady;
    this.tried = tried;
    this.clockShifts = tried.input.clockLibrary !== undefined;
  }

  /** @param page the URL of the page of a gateway */
  static async open(cluster: Cluster, page: string): Promise<SoakSetting> {
    const rendered = await cluster.mustKubectl(['kustomize', DEPLOY]);
    const kept = parseAllDocuments(rendered)
      .map((document) => document.toJS() as Manifest)
      .filter(({ kind }) => !LEFT_OUT.includes(kind));
    const text = manifestText(kept.map((manifest) => adapted(manifest)));
    await waitUntil(
      'an earlier namespace linger to be gone',
      async () => (await namespaceOf(cluster)) === undefined,
    );
    await cluster.mustKubectl(['apply', '--server-side', '--filename', '-'], { stdin: text });
    const directory = mkdtempSync(join(tmpdir(), 'soak-'));
    // Another suite may build it anew meanwhile.
    cpSync(dirname(MAIN), join(directory, 'program', 'dist'), { recursive: true });
    cpSync(join(dirname(MAIN), '..', 'package.json'), join(directory, 'program', 'package.json'));
    mkdirSync(join(directory, 'policies'));
    writeFileSync(join(directory, 'policies', 'policies.yaml'), policies(page));
    const common = {
      cluster,
      directory,
      clockLibrary: await compiled(directory),
      token: await tokenFor(cluster),
    };
    const [first = '', second = ''] = cluster.clientAddresses;
    const replicas: [Replica, Replica] = [
      await replica('steady', first, common),
      await replica('tried', second, common),
    ];
    const setting = new SoakSetting(cluster, text, replicas);
    await setting.listed(first, true);
    await setting.listed(second, true);
    for (const each of replicas) await each.start();
    return setting;
  }

  /** As the endpoint controllers list a pod that is ready, or one that is being deleted. */
  async listed(address: string, ready: boolean): Promise<void> {
    for (const [service, port] of Object.entries(SERVICES)) {
      const name = `${service}-${address}`;
      const slice = {
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: { name, namespace: NAMESPACE, labels: { 'kubernetes.io/service-name': service } },
        addressType: 'IPv4',
        endpoints: [{ addresses: [address], conditions: { ready, serving: ready } }],
        ports: [{ name: service === 'linger' ? 'webhook' : 'hold', port, protocol: 'TCP' }],
      };
      const path = `/apis/discovery.k8s.io/v1/namespaces/${NAMESPACE}/endpointslices/${name}`;
      const query = '?fieldManager=soak&force=true';
      const contentType = 'application/apply-patch+yaml';
      await this.#cluster.api.call('PATCH', `${path}${query}`, { body: slice, contentType });
    }
  }

  async close(): Promise<void> {
    for (const each of [this.steady, this.tried]) {
      await each.stop('SIGKILL');
      await each.input.front.close();
    }
    const args = ['delete', '--ignore-not-found', '--wait=false', '--filename', '-'];
    await this.#cluster.mustKubectl(args, { stdin: this.#manifests });
  }
}

const namespaceOf = (cluster: Cluster) =>
  cluster.get({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } });

function adapted(manifest: Manifest): Manifest {
  const { kind, metadata, spec, webhooks = [] } = manifest;
  for (const webhook of webhooks) webhook.timeoutSeconds = REVIEW_SECONDS;
  // Their endpoints are written here.
  if (kind === 'Service' && metadata.name in SERVICES && spec !== undefined) delete spec.selector;
  return manifest;
}

function policies(page: string): string {
  const soak = { soak: 'true' };
  const of = (waits: string) => ({
    mode: 'Enforce',
    wait: WAIT,
    namespaceSelector: { matchLabels: soak },
    podSelector: { matchLabels: { waits } },
  });
  const hold = { min: '0s', max: `${TERMS.maxMs / 1_000}s` };
  const declared = { declared: { lag: `${TERMS.declaredMs / 1_000}s` } };
  const inspect = { url: page, format: 'Text', every: '500ms', syncInterval: `${TERMS.syncMs / 1_000}s` };
  return policyFile(
    clusterPolicy('sleep', of('sleep')),
    clusterPolicy('hold', { ...of('hold'), hook: 'Hold', hold }),
    consumer('cluster-ip', soak, declared),
    consumer('cluster-dns', soak, declared),
    consumer('edge', soak, { inspect }),
  );
}

/** @returns undefined where there is no C compiler */
async function compiled(directory: string): Promise<string | undefined> {
  const library = join(directory, 'clock-ahead.so');
  const command = ['cc', '-shared', '-fPIC', '-O2', '-o', library, CLOCK_SOURCE, '-ldl'];
  const { code } = await run(command).catch(() => ({ code: 1 }));
  return code === 0 ? library : undefined;
}

async function tokenFor(cluster: Cluster): Promise<string> {
  const path = `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/linger/token`;
  const spec = { expirationSeconds: 86_400 };
  const { status } = await cluster.api.call<{ status: { token: string } }>('POST', path, {
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec },
  });
  return status.token;
}

interface Common {
  readonly cluster: Cluster;
  readonly directory: string;
  readonly token: string;
  readonly clockLibrary: string | undefined;
}

async function replica(name: string, host: string, common: Common): Promise<Replica> {
  const { cluster, token, clockLibrary } = common;
  const directory = join(common.directory, name);
  mkdirSync(directory);
  const certs = join(directory, 'front');
  await ensureCertificates({ directory: certs, names: ['127.0.0.1'] }, new Date());
  const read = (file: string) => readFileSync(join(certs, file), 'utf8');
  const { server, credentials } = await readKubeconfig(cluster.kubeconfig);
  const { ca = '' } = await credentials();
  const front = await Front.start({
    server,
    authority: String(ca),
    certificate: read('tls.crt'),
    key: read('tls.key'),
  });
  const kubeconfig = join(directory, 'kubeconfig');
  writeFileSync(kubeconfig, kubeconfigFor(front.url, read('ca.crt'), token));
  const flags = {
    host,
    identity: name,
    namespace: NAMESPACE,
    kubeconfig,
    cluster: 'required',
    'pod-ip': host,
    'certs-secret': 'linger-certificates',
    'cert-names': 'linger.linger.svc',
    drain: `${DRAIN_SECONDS}s`,
    policies: join(common.directory, 'policies'),
    'audit-every': '30s',
    'canary-every': '0',
    'hold-test-image': images.busybox,
  };
  const main = join(common.directory, 'program', 'dist', 'main.js');
  return new Replica({ name, host, directory, main, front, flags, clockLibrary });
}

function kubeconfigFor(server: string, authority: string, token: string): string {
  const certificateAuthority = Buffer.from(authority).toString('base64');
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'soak',
    clusters: [{ name: 'soak', cluster: { server, 'certificate-authority-data': certificateAuthority } }],
    users: [{ name: 'soak', user: { token } }],
    contexts: [{ name: 'soak', context: { cluster: 'soak', user: 'soak' } }],
  });
}
