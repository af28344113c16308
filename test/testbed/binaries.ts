import { createHash, randomUUID } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CommandFailure, must, run } from './command.ts';
import { writeKubernetesModule } from './kubernetes-module.ts';
import { exclusively } from './lock.ts';
import { ensureDiskSpace, ensureGo } from './requirements.ts';

const here = import.meta.dirname;

/** A Go module of ours and the programs that are built from it. */
interface Source {
  readonly name: string;
  readonly directory: string;
  readonly files: readonly string[];
  readonly outputs: readonly { readonly program: string; readonly target: string }[];
  readonly linkerFlags: readonly string[];
  readonly tags?: string;
  /** '0' for programs that run in images without a C library; otherwise Go's own choice. */
  readonly cgo?: '0' | undefined;
  /** Minutes a cold build took on two cores. */
  readonly coldMinutes: number;
  /** Writes a module that is not in the repository into a folder, which is then the one that is built. */
  readonly generate?: (into: string) => Promise<void>;
}

/** The version of Kubernetes whose module is in the repository. */
const PINNED_KUBERNETES = moduleVersion('kubernetes', 'k8s.io/kubernetes');

/** The version of Kubernetes that the cluster runs. */
export const kubernetesVersion = process.env.LINGER_KUBERNETES || PINNED_KUBERNETES;

function moduleVersion(directory: string, module: string): string {
  const text = readFileSync(join(here, directory, 'go.mod'), 'utf8');
  const version = text
    .split('\n')
    .map((line) => line.trim().split(' '))
    .find(([name]) => name === module)?.[1];
  if (version === undefined) throw new Error(`${directory}/go.mod does not require ${module}`);
  return version;
}

/** The module in the folder of this name, of the versions that its go.mod names. @param programs what each is built from */
function source(
  name: string,
  coldMinutes: number,
  programs: Readonly<Record<string, string>>,
  more: Partial<Source> = {},
): Source {
  const outputs = Object.entries(programs).map(([program, target]) => ({ program, target }));
  const usual = { files: ['go.mod', 'go.sum'], linkerFlags: [], cgo: '0' } as const;
  return { name, directory: join(here, name), coldMinutes, outputs, ...usual, ...more };
}

function kubernetes(): Source {
  const [major, minor] = kubernetesVersion.slice(1).split('.');
  // Without these a component calls itself v0.0.0-master, and clients compare versions.
  const version = 'k8s.io/component-base/version';
  const linkerFlags = [
    `-X ${version}.gitVersion=${kubernetesVersion}`,
    `-X ${version}.gitMajor=${major}`,
    `-X ${version}.gitMinor=${minor}`,
  ];
  const program = { kube: '.' };
  if (kubernetesVersion === PINNED_KUBERNETES) {
    const files = ['go.mod', 'go.sum', 'main.go'];
    return source('kubernetes', 8, program, { files, linkerFlags, cgo: undefined });
  }
  if (!/^v1\.\d+\.\d+$/.test(kubernetesVersion))
    throw new Error(`LINGER_KUBERNETES: expected a version such as v1.32.2, got ${kubernetesVersion}`);
  const mainFile = join(here, 'kubernetes', 'main.go');
  return {
    ...source('kubernetes', 8, program, { files: ['main.go'], linkerFlags, cgo: undefined }),
    generate: (into) => writeKubernetesModule(kubernetesVersion, mainFile, into),
  };
}

/** A module from the Go proxy, whose content is checked. */
interface GoModule {
  /** Module path with its version. */
  readonly module: string;
  readonly sum: string;
}

const versionOf = ({ module }: GoModule) => module.slice(module.indexOf('@') + 1);

/** @returns the folder that it lies in, read-only */
async function downloaded({ module, sum }: GoModule): Promise<string> {
  await ensureGo();
  const answer = JSON.parse(await must(['go', 'mod', 'download', '-json', module])) as Record<string, string>;
  if (answer.Sum !== sum) throw new Error(`${module}: expected ${sum}, got ${answer.Sum}`);
  return answer.Dir ?? '';
}

const ARGO_ROLLOUTS = {
  module: 'github.com/argoproj/argo-rollouts@v1.10.1',
  sum: 'h1:6oyVPGiHHxu3ixkT6mngemh88HLPDoTX1IwO6KNR1Y4=',
} as const;

const GATEKEEPER = {
  module: 'github.com/open-policy-agent/gatekeeper/v3@v3.23.1',
  sum: 'h1:njHTm0SJ6ZEhhEgmQTpJKTGQbc99fSs4hGiEp1OIKck=',
} as const;

const KYVERNO = {
  module: 'github.com/kyverno/kyverno@v1.19.1',
  sum: 'h1:/MkgFii3/VlQfKR1JpC9tVwNNVNQTt2S4U6qCsafsTU=',
} as const;

const CERT_MANAGER = {
  module: 'github.com/cert-manager/cert-manager@v1.21.2',
  sum: 'h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=',
} as const;

/** Not 3.7, the later release: the Go proxy lacks a commit that it requires. */
const TRAEFIK = {
  module: 'github.com/traefik/traefik/v3@v3.6.12',
  sum: 'h1:6pe4s7aaDTQs+AsF7KP3sM/xnq7zOVvibRQe5tw9eFo=',
} as const;

/** Built in a copy of its own module: a module that only requires it would lack its `replace` lines. */
function copied(name: string, coldMinutes: number, of: GoModule, programs: Readonly<Record<string, string>>) {
  return source(`${name}-${versionOf(of)}`, coldMinutes, programs, {
    files: [],
    generate: async (into) => {
      await must(['cp', '-r', await downloaded(of), into]);
      await must(['chmod', '-R', 'u+w', into]);
    },
  });
}

const CONTAINERD = 'github.com/containerd/containerd/v2/cmd';
const CONTOUR = 'github.com/projectcontour/contour';
const ISTIO = 'istio.io/istio';
const BUILDKIT = 'github.com/moby/buildkit/cmd';

const SOURCES = {
  kubernetes: kubernetes(),
  containerd: source('containerd', 2, {
    containerd: `${CONTAINERD}/containerd`,
    'containerd-shim-runc-v2': `${CONTAINERD}/containerd-shim-runc-v2`,
    ctr: `${CONTAINERD}/ctr`,
  }),
  application: source('app', 1, { app: '.' }, { files: ['go.mod', 'main.go'] }),
  // With the few plugins that main.go names. The minutes are those of the whole; this one has not been timed on a quiet machine.
  coreDns: source('coredns', 4, { coredns: '.' }, { files: ['go.mod', 'go.sum', 'main.go'] }),
  helm: source('helm', 3, { helm: 'helm.sh/helm/v4/cmd/helm' }),
  contour: source('contour', 4, { contour: `${CONTOUR}/cmd/contour` }),
  istio: source('istio', 12, {
    'pilot-discovery': `${ISTIO}/pilot/cmd/pilot-discovery`,
    'pilot-agent': `${ISTIO}/pilot/cmd/pilot-agent`,
  }),
  // Knative's sidecar, which drains by itself.
  queueProxy: source('queue-proxy', 2, { queue: 'knative.dev/serving/cmd/queue' }),
  // Without what discovers targets: it judges rules and metrics, and scrapes nothing.
  promtool: source(
    'promtool',
    4,
    { promtool: 'github.com/prometheus/prometheus/cmd/promtool' },
    { tags: 'remove_all_sd' },
  ),
  // The builder, and the client that has the part of `docker build`.
  buildkit: source('buildkit', 2, { buildctl: `${BUILDKIT}/buildctl`, buildkitd: `${BUILDKIT}/buildkitd` }),
  // Stands in for systemd-logind; see logind.ts.
  logind: source('logind', 1, { logind: '.' }, { files: ['go.mod', 'go.sum', 'main.go'] }),
  // Neighbours of Linger; see test/scenarios.
  argoRollouts: copied('argo-rollouts', 4, ARGO_ROLLOUTS, {
    'rollouts-controller': './cmd/rollouts-controller',
  }),
  traefik: copied('traefik', 8, TRAEFIK, { traefik: './cmd/traefik' }),
  gatekeeper: copied('gatekeeper', 6, GATEKEEPER, { manager: '.' }),
  kyverno: copied('kyverno', 10, KYVERNO, {
    kyverno: './cmd/kyverno',
    'reports-controller': './cmd/reports-controller',
  }),
  // What lists the packages in an image.
  syft: source('syft', 4, { syft: 'github.com/anchore/syft/cmd/syft' }),
};

/** What evaluates deploy/floor offline, with the packages of two versions of the API server. */
const FLOOR = join(here, '..', 'floor');
const FLOOR_FILES = readdirSync(FLOOR).filter((file) => /^go\.|\.go$/.test(file));
const FLOORS = {
  '1.37': source('floor', 1, { floor: '.' }, { directory: FLOOR, files: FLOOR_FILES }),
  '1.36': source(
    'floor-1.36',
    1,
    { floor: '.' },
    {
      directory: FLOOR,
      files: [...FLOOR_FILES, 'go-1.36.mod', 'go-1.36.sum'],
      tags: 'kubernetes1.36',
      generate: async (into) => {
        await must(['cp', '-r', FLOOR, into]);
        for (const end of ['mod', 'sum']) renameSync(join(into, `go-1.36.${end}`), join(into, `go.${end}`));
      },
    },
  ),
};

/** Directories that hold the built programs. */
export interface Binaries {
  readonly kube: string;
  /** Holds containerd, its shim and ctr: containerd finds the shim by PATH. */
  readonly containerdDirectory: string;
  readonly app: string;
}

/** Builds what is not cached. `say` gets progress lines. */
export async function ensureBinaries(cacheDir: string, say: (line: string) => void): Promise<Binaries> {
  const [kube, runtime, app] = await buildMissing(
    [SOURCES.kubernetes, SOURCES.containerd, SOURCES.application],
    cacheDir,
    say,
  );
  return {
    kube: join(kube ?? '', 'kube'),
    containerdDirectory: runtime ?? '',
    app: join(app ?? '', 'app'),
  };
}

/** Builds one of them unless it is cached. @returns its program, or the folder of its programs */
function ensuring(source: Source, program = '') {
  return async (cacheDir: string, say: (line: string) => void): Promise<string> => {
    const [directory] = await buildMissing([source], cacheDir, say);
    return join(directory ?? '', program);
  };
}

/** Only the test application: all that a cluster named by KUBECONFIG needs. */
export const ensureApplication = ensuring(SOURCES.application, 'app');

/** Only CoreDNS: no part of the cluster, which has no DNS; see cluster-dns.ts. */
export const ensureCoreDns = ensuring(SOURCES.coreDns, 'coredns');

/** Only Helm: what installs the chart, and no part of the cluster. */
export const ensureHelm = ensuring(SOURCES.helm, 'helm');

/** Only Knative's queue-proxy: a neighbour of application containers, and no part of the cluster. */
export const ensureQueueProxy = ensuring(SOURCES.queueProxy, 'queue');

/** Only what evaluates deploy/floor offline; see test/floor. @returns the program by version of Kubernetes */
export async function ensureFloors(
  cacheDir: string,
  say: (line: string) => void,
): Promise<Readonly<Record<keyof typeof FLOORS, string>>> {
  const [later, earlier] = await buildMissing([FLOORS['1.37'], FLOORS['1.36']], cacheDir, say);
  return { '1.37': join(later ?? '', 'floor'), '1.36': join(earlier ?? '', 'floor') };
}

/** Only promtool, which judges alerts and metrics as Prometheus does. */
export const ensurePromtool = ensuring(SOURCES.promtool, 'promtool');

/** Only BuildKit, which builds images; see builder.ts. @returns the folder of its programs */
export const ensureBuildkit = ensuring(SOURCES.buildkit);

/** Only the stand-in for systemd-logind; see logind.ts. */
export const ensureLogind = ensuring(SOURCES.logind, 'logind');

/** Only Syft, which BuildKit's own scanner of images is made of. */
export const ensureSyft = ensuring(SOURCES.syft, 'syft');

/** Only Contour: a gateway, and no part of the cluster; see gateways.ts. */
export const ensureContour = ensuring(SOURCES.contour, 'contour');

/** Only Traefik: a gateway, and no part of the cluster; see gateways.ts. */
export const ensureTraefik = ensuring(SOURCES.traefik, 'traefik');

/** The file of Traefik's custom resource definitions. */
export const traefikCrds = async () =>
  join(
    await downloaded(TRAEFIK),
    ...['docs', 'content', 'reference', 'dynamic-configuration', 'kubernetes-crd-definition-v1.yml'],
  );

/** Only the controller of Argo Rollouts: a neighbour, and no part of the cluster. */
export const ensureArgoRollouts = ensuring(SOURCES.argoRollouts, 'rollouts-controller');

/** The folder of the custom resource definitions of Argo Rollouts. */
export const argoRolloutsCrds = async () => join(await downloaded(ARGO_ROLLOUTS), 'manifests', 'crds');

/** Only Gatekeeper: a neighbour, and no part of the cluster. */
export const ensureGatekeeper = ensuring(SOURCES.gatekeeper, 'manager');

/** The file that Gatekeeper's documentation has people apply. */
export const gatekeeperManifests = async () =>
  join(await downloaded(GATEKEEPER), 'deploy', 'gatekeeper.yaml');

/** Only Kyverno: a neighbour, and no part of the cluster. @returns the folder of its programs */
export const ensureKyverno = ensuring(SOURCES.kyverno);

/** What its end-to-end tests install: definitions, rights and controllers; a file. */
export const kyvernoManifests = async () =>
  join(await downloaded(KYVERNO), 'config', 'install-latest-testing.yaml');

/** The definitions of cert-manager's Certificates and Issuers, files; its commands are modules of their own. */
export async function certManagerCrds(): Promise<readonly string[]> {
  const directory = join(await downloaded(CERT_MANAGER), 'deploy', 'crds');
  return ['certificates', 'issuers'].map((plural) => join(directory, `cert-manager.io_${plural}.yaml`));
}

/** Contour's custom resources' definitions, a file. */
export const contourCrds = async () =>
  join(await moduleFolder(CONTOUR, 'contour'), 'examples', 'contour', '01-crds.yaml');

/** Only istiod, which sends endpoints to Istio's sidecars and gateways, and is no part of the cluster; see istio.ts. */
export const ensureIstiod = ensuring(SOURCES.istio, 'pilot-discovery');

/** Only what runs beside each application of a mesh; see istio.ts. */
export const ensurePilotAgent = ensuring(SOURCES.istio, 'pilot-agent');

/** A file of Istio's own module. */
export const istioFile = async (...path: readonly string[]) =>
  join(await moduleFolder(ISTIO, 'istio'), ...path);

/** Istio's custom resources' definitions, a file. */
export const istioCrds = () => istioFile('manifests', 'charts', 'base', 'files', 'crd-all.gen.yaml');

/** Where a module lies that one of ours requires. */
async function moduleFolder(module: string, of: string): Promise<string> {
  return (await must(['go', 'list', '-m', '-f', '{{.Dir}}', module], { cwd: join(here, of) })).trim();
}

/**
 * The CRDs of policy reports, from the Go modules that carry them: Kyverno's copy of that of the Kubernetes policy working
 * group, and OpenReports' own. Both are under Apache-2.0.
 */
const REPORT_CRDS = {
  'wgpolicyk8s.io': {
    module: 'github.com/kyverno/kyverno@v1.13.4',
    sum: 'h1:2zUi+eszlisLdCir+WIf2NtuUfFPvJtjUNpewdtLjVw=',
    file: 'config/crds/policyreport/wgpolicyk8s.io_policyreports.yaml',
  },
  'openreports.io': {
    module: 'github.com/openreports/reports-api@v0.2.1',
    sum: 'h1:g9KS3yle9Y1elmww4TK9EkD1rl6inIaiIJPX6e+u680=',
    file: 'config/crd/openreports.io_reports.yaml',
  },
} as const;

/** Fetches the CRD of an API group of reports unless it is cached. @returns its file */
export async function ensureReportCrd(group: keyof typeof REPORT_CRDS, cacheDir: string): Promise<string> {
  const { file, ...of } = REPORT_CRDS[group];
  const cached = join(cacheDir, `crd-${group}-${versionOf(of)}.yaml`);
  if (existsSync(cached)) return cached;
  const directory = await downloaded(of);
  mkdirSync(cacheDir, { recursive: true });
  const unfinished = `${cached}.${process.pid}`;
  copyFileSync(join(directory, file), unfinished);
  renameSync(unfinished, cached);
  return cached;
}

async function buildMissing(
  sources: readonly Source[],
  cacheDir: string,
  say: (line: string) => void,
): Promise<string[]> {
  const targets = sources.map((source) => ({
    source,
    directory: join(cacheDir, `${source.name}-${hashOf(source)}`),
  }));
  const missing = () => targets.filter(({ directory }) => !existsSync(directory));
  if (missing().length > 0) {
    await ensureGo();
    // Two clusters may be brought up at a time, but each thing is built once, and go build itself uses every core.
    await exclusively(join(cacheDir, 'lock'), say, async () => {
      // The application alone is a matter of megabytes.
      if (missing().some(({ source }) => source.coldMinutes > 1)) {
        const goDirectories = (await must(['go', 'env', 'GOCACHE', 'GOMODCACHE'])).trim().split('\n');
        ensureDiskSpace([cacheDir, ...goDirectories]);
      }
      for (const { source, directory } of missing()) await build(source, directory, cacheDir, say);
    });
  }
  return targets.map(({ directory }) => directory);
}

/** Changes with the sources and their dependencies, the linker's flags and the processor. */
function hashOf(source: Source): string {
  const hash = createHash('sha256').update(`${process.arch}\0${source.linkerFlags.join(' ')}\0`);
  for (const file of source.files) hash.update(readFileSync(join(source.directory, file))).update('\0');
  for (const { program, target } of source.outputs) hash.update(`${program}=${target}\0`);
  if (source.tags !== undefined) hash.update(`${source.tags}\0`);
  return hash.digest('hex').slice(0, 16);
}

async function build(source: Source, directory: string, cacheDir: string, say: (line: string) => void) {
  removeAbandonedBuilds(cacheDir);
  const unfinished = join(cacheDir, `unfinished-${process.pid}-${randomUUID()}`);
  const progress = startProgress(source, say);
  const generated = `${unfinished}-module`;
  try {
    await source.generate?.(generated);
    const cwd = source.generate === undefined ? source.directory : generated;
    for (const { program, target } of source.outputs) {
      await goBuild({ ...source, directory: cwd }, target, join(unfinished, program), progress.line);
    }
    // A rename is all or nothing: an interrupted build never looks like a finished one.
    renameSync(unfinished, directory);
    say(`built ${source.name} in ${progress.elapsed()}`);
  } finally {
    progress.stop();
    for (const each of [unfinished, generated]) rmSync(each, { recursive: true, force: true });
  }
}

async function goBuild(source: Source, target: string, output: string, onErrorLine: (line: string) => void) {
  mkdirSync(dirname(output), { recursive: true });
  const ldflags = ['-s -w', ...source.linkerFlags].join(' ');
  const tags = source.tags === undefined ? [] : ['-tags', source.tags];
  const argv = ['go', 'build', '-v', '-buildvcs=false', ...tags, '-ldflags', ldflags, '-o', output, target];
  const env = { ...process.env, GOFLAGS: `${process.env.GOFLAGS ?? ''} -mod=readonly`, GOWORK: 'off' };
  const result = await run(argv, {
    cwd: source.directory,
    env: source.cgo === undefined ? env : { ...env, CGO_ENABLED: source.cgo },
    onErrorLine,
  });
  if (result.code === 0) return;
  // -v names every package; only the end of it says what went wrong.
  throw new CommandFailure(argv, { ...result, stderr: result.stderr.split('\n').slice(-40).join('\n') });
}

const PROGRESS_MS = 10_000;

/** Says every ten seconds how far a build is. `go build -v` names each package as it is compiled. */
function startProgress(source: Source, say: (line: string) => void) {
  const start = performance.now();
  let packages = 0;
  let last = 'looking at what is compiled already';
  const elapsed = () => `${Math.round((performance.now() - start) / 1000)} s`;
  say(
    `building ${source.name} (about ${source.coldMinutes} min when nothing is compiled yet, cached afterwards)`,
  );
  const timer = setInterval(() => {
    say(`building ${source.name}: ${elapsed()}, ${packages} packages compiled, now ${last}`);
  }, PROGRESS_MS);
  return {
    line: (text: string) => {
      last = text;
      if (!text.startsWith('go: ')) packages += 1;
    },
    elapsed,
    stop: () => clearInterval(timer),
  };
}

/** Removes what builds left that were killed; those of running processes stay. */
function removeAbandonedBuilds(cacheDir: string): void {
  for (const entry of readdirSync(cacheDir)) {
    const pid = /^unfinished-(\d+)-/.exec(entry)?.[1];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    rmSync(join(cacheDir, entry), { recursive: true, force: true });
  }
}
