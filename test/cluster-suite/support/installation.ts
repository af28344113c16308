import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { type Cluster, type KubernetesObject, waitUntil } from '../../testbed/cluster.ts';
import { InstalledReplicas } from './installed-replicas.ts';
import { lingerImageArchive } from './linger-image.ts';
import { type PodObject, pod } from './manifests.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'linger' } };
const ROLLOUT_MS = 120_000;

interface Manifest extends KubernetesObject {
  data?: Readonly<Record<string, string>>;
  readonly spec?: {
    readonly template: { readonly spec: { readonly containers: { args: string[] }[] } };
    clusterIP?: string;
  };
  readonly webhooks?: { clientConfig: object }[];
}

export interface InstallationOptions {
  /** The text of the policy files. */
  readonly policies: string;
  /** Added to those of deploy/deployment.yaml. */
  readonly flags?: readonly string[];
  /** ClusterIPs of Services of deploy/, for whoever has no cluster DNS: they stand in the certificate as well. */
  readonly addresses?: Readonly<Record<string, string>>;
  /** The address of a cluster DNS, where there is one: as the kubelet would tell pods of it. */
  readonly dns?: string;
}

/** In the certificate, as docs/operations.md has it. */
const NAMES = ['linger.linger.svc', 'linger-reports.linger.svc'];

/** Linger as deploy/ installs it: two replicas from its image, with its rights and no more. Only in our own cluster. */
export class Installation {
  /** The CA's certificate, PEM. */
  readonly authority: string;
  readonly replicas: InstalledReplicas;
  readonly #cluster: Cluster;
  readonly #manifests: string;

  private constructor(cluster: Cluster, authority: string, manifests: string) {
    this.#cluster = cluster;
    this.replicas = new InstalledReplicas(cluster);
    this.authority = authority;
    this.#manifests = manifests;
  }

  /** Resolves when a pod is really mutated by it. */
  static async create(cluster: Cluster, options: InstallationOptions): Promise<Installation> {
    await waitUntil('an earlier namespace linger to be gone', async () => !(await cluster.get(NAMESPACE)), {
      timeoutMs: ROLLOUT_MS,
    });
    await cluster.importImages(lingerImageArchive());
    const certificate = makeCertificate([...NAMES, ...Object.values(options.addresses ?? {})]);
    const rendered = await must(cluster, ['kustomize', join(ROOT, 'deploy')]);
    const manifests = parseAllDocuments(rendered).map((document) => document.toJS() as Manifest);
    const changed = [...manifests.map((manifest) => adapted(manifest, options, certificate.authority))];
    const secret = {
      apiVersion: 'v1',
      kind: 'Secret',
      type: 'kubernetes.io/tls',
      metadata: { name: 'linger-tls', namespace: 'linger' },
      stringData: { 'tls.crt': certificate.certificate, 'tls.key': certificate.key },
    };
    const text = [...changed, secret].map((each) => JSON.stringify(each)).join('\n---\n');
    const installation = new Installation(cluster, certificate.authority, text);
    try {
      await must(cluster, ['apply', '--filename', '-'], text);
      await installation.#untilMutating();
    } catch (error) {
      const logs = await installation.replicas.logs().catch(() => new Map<string, string>());
      await installation.remove();
      const ends = [...logs].map(([name, text]) => `${name}:\n${text.split('\n').slice(-30).join('\n')}`);
      throw new Error([`Linger cannot be installed: ${(error as Error).message}`, ...ends].join('\n'));
    }
    return installation;
  }

  /** Takes everything back, and waits for the end of it. */
  async remove(): Promise<void> {
    const args = ['delete', '--ignore-not-found', '--wait=false', '--filename', '-'];
    await must(this.#cluster, args, this.#manifests);
    await this.#cluster.delete(NAMESPACE, { wait: true });
  }

  async #untilMutating(): Promise<void> {
    const status = ['--namespace', 'linger', 'rollout', 'status', 'deployment/linger', '--timeout=100s'];
    await must(this.#cluster, status);
    const annotations = {
      'linger.dev/inject': 'true',
      'linger.dev/wait': '1s',
      'linger.dev/mode': 'Enforce',
    };
    const probe = pod('default', 'linger-probe', {}, { annotations });
    await waitUntil('a pod to be mutated', async () => {
      const created = await this.#cluster.create<PodObject>(probe, { dryRun: true });
      return created.metadata.annotations?.['linger.dev/plan'] !== undefined;
    });
  }
}

interface Certificate {
  readonly authority: string;
  readonly certificate: string;
  readonly key: string;
}

function makeCertificate(names: readonly string[]): Certificate {
  const directory = mkdtempSync(join(tmpdir(), 'linger-certs-'));
  const certs = ['src/main.ts', 'certs', '--dns', names.join(','), '--out', directory];
  execFileSync(process.execPath, certs, { cwd: ROOT, stdio: 'pipe' });
  const text = (file: string) => readFileSync(join(directory, file), 'utf8');
  const made = { authority: text('ca.crt'), certificate: text('tls.crt'), key: text('tls.key') };
  rmSync(directory, { recursive: true });
  return made;
}

/** What an operator fills in. */
function adapted(
  manifest: Manifest,
  { policies, flags = [], addresses = {}, dns }: InstallationOptions,
  authority: string,
): Manifest {
  const { kind, metadata } = manifest;
  if (kind === 'ConfigMap' && metadata.name === 'linger-policies') manifest.data = { 'base.yaml': policies };
  if (kind === 'Deployment' && metadata.name === 'linger') {
    for (const container of manifest.spec?.template.spec.containers ?? []) container.args.push(...flags);
    if (dns !== undefined) Object.assign(manifest.spec?.template.spec ?? {}, podDns(dns));
  }
  const clusterIP = addresses[metadata.name];
  if (kind === 'Service' && clusterIP !== undefined && manifest.spec !== undefined) {
    manifest.spec.clusterIP = clusterIP;
  }
  const caBundle = Buffer.from(authority).toString('base64');
  for (const webhook of manifest.webhooks ?? []) {
    webhook.clientConfig = { ...webhook.clientConfig, caBundle };
  }
  return manifest;
}

function podDns(server: string): object {
  const searches = ['linger.svc.cluster.local', 'svc.cluster.local', 'cluster.local'];
  return { dnsPolicy: 'None', dnsConfig: { nameservers: [server], searches } };
}

async function must(cluster: Cluster, args: readonly string[], stdin?: string): Promise<string> {
  const options = { timeoutMs: ROLLOUT_MS, ...(stdin === undefined ? {} : { stdin }) };
  const { code, stdout, stderr } = await cluster.kubectl(args, options);
  if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr}`);
  return stdout;
}
