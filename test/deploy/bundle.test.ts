import { existsSync, readFileSync } from 'node:fs';
import { chmod, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Metafile } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { METAFILE } from '../cli/built.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, MAIN, ROOT, run, serving, until } from '../cli/linger.ts';
import { cpuSeconds, teamPolicies } from '../cli/team-policies.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { pod } from '../core/decision/sample-pod.ts';
import { AdsServer } from '../measurement/ads-server.ts';
import { atEndOfFile, connect, requestBytes } from '../webhook/connection.ts';
import { bodyOf } from '../webhook/reviews.ts';
import { responseOf } from '../webhook/webhook.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();
const metafile = JSON.parse(readFileSync(METAFILE, 'utf8')) as Metafile;

/** The sources in the chunks that a server has loaded once it is ready: `src/core/decision`, `node_modules/zod`. */
async function loadedBy(...args: string[]): Promise<ReadonlySet<string>> {
  const list = join(await emptyDirectory(atEnd), 'loaded');
  await writeFile(list, '');
  const hook = `
    import { appendFileSync } from 'node:fs';
    import { registerHooks } from 'node:module';
    import { isMainThread } from 'node:worker_threads';
    if (isMainThread) registerHooks({
      resolve: (specifier, context, next) => {
        const resolved = next(specifier, context);
        appendFileSync('${list}', resolved.url + '\\n');
        return resolved;
      },
    });
  `;
  await ready(args, hook);
  const chunks = new Set((await readFile(list, 'utf8')).split('\n').map((url) => basename(url)));
  const outputs = Object.entries(metafile.outputs).filter(([file]) => chunks.has(basename(file)));
  const inputs = outputs.flatMap(([, output]) =>
    Object.entries(output.inputs).flatMap(([input, { bytesInOutput }]) => (bytesInOutput > 0 ? [input] : [])),
  );
  return new Set(
    inputs.map((input) => /^(?:node_modules\/(?:@[^/]+\/)?[^/]+|src\/[^/]+)/.exec(input)?.[0] ?? input),
  );
}

/** Those of Node's own modules that a server has loaded once it is ready, internal ones included. */
async function builtinsOf(...args: string[]): Promise<readonly string[]> {
  const list = join(await emptyDirectory(atEnd), 'builtins');
  const hook = `
    import { renameSync, writeFileSync } from 'node:fs';
    const write = () => {
      writeFileSync('${list}.new', process.moduleLoadList.join('\\n'));
      renameSync('${list}.new', '${list}');
    };
    setInterval(write, 50).unref();
  `;
  await ready(args, hook);
  await rm(list, { force: true });
  await until(async () => existsSync(list) || undefined);
  return (await readFile(list, 'utf8')).split('\n').map((line) => line.replace('NativeModule ', ''));
}

async function ready(args: readonly string[], hook: string): Promise<void> {
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(hook)}`;
  const server = await serving(certs(), args, { atEnd, env: { NODE_OPTIONS } });
  await until(async () => (await server.get('/readyz')).status === 200);
}

async function kubeconfig(): Promise<string> {
  const model = await ModelCluster.start(atEnd);
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, model.kubeconfig);
  return file;
}

describe('the bundle', () => {
  const OF_A_CLUSTER = ['src/cluster', 'src/measurement', 'src/leader'];
  const OF_DOCUMENTS = ['node_modules/yaml', 'node_modules/zod'];
  const CLIENT = 'node_modules/@kubernetes/client-node';
  // The certificates are in order, so none is made.
  const FORGE = 'node_modules/node-forge';

  it('without a cluster and policies, a server loads nothing of what those take', async () => {
    const loaded = await loadedBy('--cluster', 'off');
    expect([...loaded]).toContain('src/webhook');
    expect([...OF_A_CLUSTER, ...OF_DOCUMENTS, CLIENT, FORGE].filter((place) => loaded.has(place))).toEqual(
      [],
    );
  });

  it('with a cluster, it loads what that takes', async () => {
    const loaded = await loadedBy('--kubeconfig', await kubeconfig());
    expect(OF_A_CLUSTER.filter((place) => !loaded.has(place))).toEqual([]);
  });

  it('loads the gRPC client where a consumer follows istiod, and nowhere else', async () => {
    const GRPC = 'node_modules/@grpc/grpc-js';
    const cluster = ['--kubeconfig', await kubeconfig()];
    expect((await loadedBy(...cluster)).has(GRPC)).toBe(false);
    const ads = await AdsServer.start(atEnd);
    const directory = await emptyDirectory(atEnd);
    const spec = { measure: { xds: { address: `127.0.0.1:${ads.port}` } } };
    const consumer = {
      apiVersion: 'linger.dev/v1alpha1',
      kind: 'DiscoveryConsumer',
      metadata: { name: 'mesh' },
      spec,
    };
    await writeFile(join(directory, 'mesh.json'), JSON.stringify(consumer));
    const args = [...cluster, '--policies', directory];
    await serving(certs(), args, { atEnd });
    await until(async () => ads.subscribed.length > 0 || undefined);
  });

  it('without a cluster, it loads none of Node’s HTTP clients: 9 MB', async () => {
    const builtins = await builtinsOf('--cluster', 'off');
    expect(builtins).toContain('http');
    expect(builtins.filter((each) => each.includes('undici'))).toEqual([]);
  });

  it('parses policies in a thread, and what takes is not in the server', async () => {
    const loaded = await loadedBy('--cluster', 'off', '--policies', join(ROOT, 'docs/examples/policies'));
    expect(OF_DOCUMENTS.filter((place) => loaded.has(place))).toEqual([]);
  });

  it.runIf(process.platform === 'linux')('starts with 10,000 policies in 3 s', async () => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, 'teams.yaml'), teamPolicies(10_000, '17s'));
    // CPU time, on all cores. Other processes share the caches and the memory, and so can only add to it.
    let least = Number.POSITIVE_INFINITY;
    for (let start = 1; start <= 3 && least >= 3; start += 1) {
      const server = await serving(certs(), ['--cluster', 'off', '--policies', directory], {
        atEnd,
      });
      // A thread reads them, at a low priority: on a busy machine that may take longer than a start waits for them.
      const read = async () =>
        (await server.count('linger_policy_documents{kind="ClusterTerminationPolicy"}')) === 10_000;
      await until(read, 120);
      least = Math.min(least, await cpuSeconds(server.pid));
      server.kill('SIGINT');
      await server.exited;
    }
    console.log(`10,000 policies: ${least} s of CPU until the bundle listens`);
    expect(least).toBeLessThan(3);
  });

  it('has its threads: policies count, and large reviews are read', async () => {
    const directory = await emptyDirectory(atEnd);
    const policy =
      'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: base}\n';
    await writeFile(join(directory, 'base.yaml'), `${policy}spec: {mode: Audit}\n`);
    const server = await serving(certs(), ['--policies', directory], { atEnd });
    const connection = await connect(server, atEnd);
    connection.write(requestBytes(bodyOf(pod({}, { annotations: { note: 'x'.repeat(200_000) } }))));
    expect(responseOf(await connection.answer()).auditAnnotations).toMatchObject({ reason: 'Audit' });
  });

  it('is what the package installs: as linger, from any folder', async () => {
    const { bin, files } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
      readonly bin: Readonly<Record<string, string>>;
      readonly files: readonly string[];
    };
    expect(files).toContain('dist');
    for (const path of Object.values(bin)) {
      const installed = join(dirname(dirname(MAIN)), path);
      const cwd = await emptyDirectory(atEnd);
      await chmod(installed, 0o755);
      await symlink(installed, join(cwd, 'linger'));
      const found = await run(join(cwd, 'linger'), ['--version'], { cwd });
      expect([found.code, found.stderr]).toEqual([0, '']);
    }
  });

  it('answers as the sources do', async () => {
    const args = ['explain', '--output', 'json', 'docs/examples/web.yaml'];
    const fromSources = await run(process.execPath, [join(ROOT, 'src/main.ts'), ...args]);
    const fromBundle = await run(process.execPath, [MAIN, ...args]);
    expect(fromBundle).toEqual(fromSources);
    expect(fromBundle.code).toBe(0);
  });
});
