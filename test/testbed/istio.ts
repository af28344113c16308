import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ensureIstiod, ensurePilotAgent, istioFile } from './binaries.ts';
import { must } from './command.ts';
import { ensureEnvoy } from './gateways.ts';
import { type ImageFile, imageArchive } from './image.ts';
import { findProgram, MissingRequirement } from './requirements.ts';

/** The images of {@link istioImages}. */
const images = { pilot: 'linger.test/pilot:1', proxy: 'linger.test/proxyv2:1' } as const;

/**
 * Values of the chart. Envoy's own releases lack Istio's extensions, for telemetry and for ALPN, and so istiod does without.
 */
export const CHART_VALUES = {
  autoscaleEnabled: false,
  image: images.pilot,
  global: {
    imagePullPolicy: 'Never',
    // A dozen of them and istiod are to fit on two processors.
    proxy: { image: images.proxy, resources: { requests: { cpu: '50m' } } },
    proxy_init: { image: images.proxy },
  },
  env: { PILOT_ENABLE_ALPN_FILTER: 'false', PILOT_ENABLE_METADATA_EXCHANGE: 'false' },
  meshConfig: { defaultProviders: { metrics: [] } },
};

/** The folder of istiod's chart. */
export const istioChart = () => istioFile('manifests', 'charts', 'istio-control', 'istio-discovery');

/** One archive with istiod, and with what is beside each application: by Istio's own Dockerfiles, on this machine's libraries. */
export async function istioImages(cacheDir: string, say: (line: string) => void): Promise<Buffer> {
  const [istiod, agent, envoy] = [
    await ensureIstiod(cacheDir, say),
    await ensurePilotAgent(cacheDir, say),
    await ensureEnvoy(cacheDir, say),
  ];
  const template = await istioFile('tools', 'packaging', 'common', 'envoy_bootstrap.json');
  const users = Buffer.from('istio-proxy:x:1337:1337::/:/bin/false\n');
  const common: readonly ImageFile[] = [
    { path: '/etc/passwd', mode: 0o644, content: users },
    copy(template, '/var/lib/istio/envoy/envoy_bootstrap_tmpl.json'),
  ];
  const program = (file: string) => copy(file, `/usr/local/bin/${basename(file)}`);
  return imageArchive([
    {
      reference: images.pilot,
      user: '1337:1337',
      entrypoint: ['/usr/local/bin/pilot-discovery'],
      files: [...common, program(istiod)],
    },
    {
      reference: images.proxy,
      entrypoint: ['/usr/local/bin/pilot-agent'],
      files: [
        ...common,
        ...[agent, envoy].map(program),
        // Hooks are run by its name.
        { path: '/bin/pilot-agent', linkTo: '/usr/local/bin/pilot-agent' },
        ...(await iptables(envoy)),
      ],
    },
  ]);
}

/** iptables of both kinds, and the libraries that they and the others load. */
async function iptables(...others: readonly string[]): Promise<ImageFile[]> {
  const programs = ['nft', 'legacy'].map((kind) => {
    const found = findProgram(`xtables-${kind}-multi`);
    if (found === undefined) throw new MissingRequirement('no iptables in PATH; Debian: iptables');
    const names = ['iptables', 'ip6tables'].flatMap((name) =>
      ['', '-save', '-restore'].flatMap((what) => [
        `${name}-${kind}${what}`,
        ...(kind === 'nft' ? [name + what] : []),
      ]),
    );
    return { found, names };
  });
  const libraries = new Set<string>();
  for (const each of [...others, ...programs.map(({ found }) => found)])
    for (const [file] of (await must(['ldd', each])).matchAll(/\/\S+/g)) libraries.add(file);
  const own = [...libraries].find((file) => basename(file).startsWith('libxtables.so')) ?? '';
  const plugins = join('/usr', own, '..', 'xtables');
  return [
    ...programs.flatMap(({ found, names }) => [
      copy(found, `/bin/${basename(found)}`),
      ...names.map((name) => ({ path: `/bin/${name}`, linkTo: basename(found) })),
    ]),
    ...[...libraries].map((file) => copy(file, file)),
    ...readdirSync(plugins).map((name) => copy(join(plugins, name), join(plugins, name))),
    // For the lock of the legacy kind.
    { path: '/run/xtables.lock', mode: 0o600, content: Buffer.alloc(0) },
  ];
}

const copy = (from: string, path: string): ImageFile => ({ path, mode: 0o755, content: readFileSync(from) });
