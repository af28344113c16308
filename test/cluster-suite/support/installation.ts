import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { type Cluster, type KubernetesObject, waitUntil } from '../../testbed/cluster.ts';
import { InstalledReplicas } from './installed-replicas.ts';
import { lingerImageArchive } from './linger-image.ts';
import { manifestText, type PodObject, pod } from './manifests.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'linger' } };
const ROLLOUT_MS = 120_000;

interface PodSpec {
  readonly containers: { args: string[]; volumeMounts?: object[] }[];
  volumes?: object[];
}

interface Manifest extends KubernetesObject {
  data?: Readonly<Record<string, string>>;
  readonly spec?: {
    readonly template: { readonly spec: PodSpec };
    clusterIP?: string;
  };
  readonly webhooks?: readonly {
    readonly clientConfig: { readonly caBundle?: string };
    timeoutSeconds: number;
  }[];
}

export interface InstallationOptions {
  /** The contents of the policy files. */
  readonly policies: string;
  /** Added to those of deploy/deployment.yaml. */
  readonly flags?: readonly string[];
  /** How long the API server waits for the answer to a review, in place of the 2 s of deploy/webhook.yaml. */
  readonly timeoutSeconds?: number;
  /** ClusterIPs of Services of deploy/, for clients without cluster DNS: the certificate includes them. */
  readonly addresses?: Readonly<Record<string, string>>;
  /** The address of the cluster DNS, if there is one, as the kubelet would pass it to pods. */
  readonly dns?: string;
  /** The contents of a Secret that is mounted in the folder of `--inspect-files`. */
  readonly files?: Readonly<Record<string, string>>;
  /** More of that folder: sources of a projected volume. */
  readonly sources?: readonly object[];
}

/** Linger as deploy/ installs it: two replicas from its image, with its rights and no more. Only in our own cluster. */
export class Installation {
  readonly replicas: InstalledReplicas;
  readonly #cluster: Cluster;
  readonly #manifests: string;
  #authority = '';

  private constructor(cluster: Cluster, manifests: string) {
    this.#cluster = cluster;
    this.replicas = new InstalledReplicas(cluster);
    this.#manifests = manifests;
  }

  /** The caBundle after the installation, PEM. */
  get authority(): string {
    return this.#authority;
  }

  /** Resolves when a pod is really mutated by it. */
  static async create(cluster: Cluster, options: InstallationOptions): Promise<Installation> {
    await waitUntil('an earlier namespace linger to be gone', async () => !(await cluster.get(NAMESPACE)), {
      timeoutMs: ROLLOUT_MS,
    });
    await cluster.importImages(await lingerImageArchive());
    const rendered = await must(cluster, ['kustomize', join(ROOT, 'deploy')]);
    const manifests = parseAllDocuments(rendered).map((document) => document.toJS() as Manifest);
    const changed = [...manifests.map((manifest) => adapted(manifest, options)), ...secretOf(options)];
    const text = manifestText(changed);
    const installation = new Installation(cluster, text);
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

  /**
   * Removes everything, and waits until it is gone: without the drain, since it gets no more requests.
   * @throws if the rights of deploy/ did not allow every request
   */
  async remove(): Promise<void> {
    const refused = this.replicas.refusals();
    const args = ['delete', '--ignore-not-found', '--wait=false', '--filename', '-'];
    await must(this.#cluster, args, this.#manifests);
    const pods = ['delete', 'pods', '--namespace', 'linger', '--all', '--grace-period=1', '--wait=false'];
    await must(this.#cluster, pods);
    await this.#cluster.delete(NAMESPACE, { wait: true });
    if (refused.length > 0) throw new Error(`Linger was not allowed: ${refused.join('; ')}`);
  }

  /** Applies an optional manifest of deploy/ beside what the kustomization applies, such as node-timer.yaml. */
  async add(file: string): Promise<void> {
    await must(this.#cluster, ['apply', '--filename', join(ROOT, 'deploy', file)]);
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
    const configuration = {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'MutatingWebhookConfiguration',
      metadata: { name: 'linger' },
    };
    const [webhook] = (await this.#cluster.get<Manifest>(configuration))?.webhooks ?? [];
    this.#authority = Buffer.from(webhook?.clientConfig.caBundle ?? '', 'base64').toString();
  }
}

function mountFiles(spec: PodSpec | undefined, sources: readonly object[]): void {
  const [container] = spec?.containers ?? [];
  if (spec === undefined || container === undefined) return;
  container.args.push(`--inspect-files=${FILES_FOLDER}`);
  container.volumeMounts = [
    ...(container.volumeMounts ?? []),
    { name: FILES, mountPath: FILES_FOLDER, readOnly: true },
  ];
  spec.volumes = [...(spec.volumes ?? []), { name: FILES, projected: { sources } }];
}

const FILES = 'linger-inspect-files';
const FILES_FOLDER = '/var/run/linger-inspect-files';

function secretOf({ files }: InstallationOptions): readonly object[] {
  if (files === undefined) return [];
  const metadata = { name: FILES, namespace: NAMESPACE.metadata.name };
  return [{ apiVersion: 'v1', kind: 'Secret', metadata, stringData: files }];
}

/** The values that an operator fills in. */
function adapted(
  manifest: Manifest,
  { policies, flags = [], timeoutSeconds, addresses = {}, dns, files, sources = [] }: InstallationOptions,
): Manifest {
  const { kind, metadata } = manifest;
  if (kind === 'ConfigMap' && metadata.name === 'linger-policies') manifest.data = { 'base.yaml': policies };
  const names = Object.values(addresses).map((address) => `--cert-names=${address}`);
  if (kind === 'Deployment' && metadata.name === 'linger') {
    for (const container of manifest.spec?.template.spec.containers ?? [])
      container.args.push(...names, ...flags);
    const mounted = [...(files === undefined ? [] : [{ secret: { name: FILES } }]), ...sources];
    if (mounted.length > 0) mountFiles(manifest.spec?.template.spec, mounted);
    if (dns !== undefined) Object.assign(manifest.spec?.template.spec ?? {}, podDns(dns));
  }
  if (timeoutSeconds !== undefined)
    for (const webhook of manifest.webhooks ?? []) webhook.timeoutSeconds = timeoutSeconds;
  const clusterIP = addresses[metadata.name];
  if (kind === 'Service' && clusterIP !== undefined && manifest.spec !== undefined) {
    manifest.spec.clusterIP = clusterIP;
  }
  return manifest;
}

function podDns(server: string): object {
  const searches = ['linger.svc.cluster.local', 'svc.cluster.local', 'cluster.local'];
  return { dnsPolicy: 'None', dnsConfig: { nameservers: [server], searches } };
}

function must(cluster: Cluster, args: readonly string[], stdin?: string): Promise<string> {
  const options = { timeoutMs: ROLLOUT_MS, ...(stdin === undefined ? {} : { stdin }) };
  return cluster.mustKubectl(args, options);
}
