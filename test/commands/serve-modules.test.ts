import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { atEndOfFile } from '../serve/connection.ts';
import { ModelCluster } from '../sources/model-cluster.ts';
import { sharedCertificates } from './certificates.ts';
import { emptyDirectory, serving, until } from './linger.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();

/** What a server has loaded once it is ready: `src/world/world.ts`, `node_modules/zod`. */
async function loadedBy(...args: string[]): Promise<ReadonlySet<string>> {
  const list = join(await emptyDirectory(atEnd), 'loaded');
  await writeFile(list, '');
  const hook = `
    import { appendFileSync } from 'node:fs';
    import { registerHooks } from 'node:module';
    registerHooks({
      resolve: (specifier, context, next) => {
        const resolved = next(specifier, context);
        appendFileSync('${list}', resolved.url + '\\n');
        return resolved;
      },
    });
  `;
  await ready(args, hook);
  const urls = (await readFile(list, 'utf8')).split('\n');
  return new Set(urls.flatMap((url) => /\/(src\/.*|node_modules\/[^/]+)(?:\/.*)?$/.exec(url)?.[1] ?? []));
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

/** Those that begin with one of these. */
const within = (loaded: ReadonlySet<string>, ...places: string[]) =>
  [...loaded].filter((path) => places.some((place) => path.startsWith(place)));

describe.concurrent('a server carries only what it uses', () => {
  const OF_A_CLUSTER = ['src/kube', 'src/sources/kube', 'src/sources/cluster', 'src/measure', 'src/publish'];
  const OF_DOCUMENTS = ['node_modules/yaml', 'node_modules/zod'];

  it('without a cluster and policies: nothing of what those take', async () => {
    const loaded = await loadedBy('--cluster', 'off');
    expect(loaded).toContain('src/serve/admission.ts');
    expect(within(loaded, ...OF_A_CLUSTER, ...OF_DOCUMENTS)).toEqual([]);
  });

  it('with a cluster: what it takes', async () => {
    const model = await ModelCluster.start(atEnd);
    const file = join(await emptyDirectory(atEnd), 'config');
    await writeFile(file, model.kubeconfig);
    const loaded = await loadedBy('--kubeconfig', file);
    for (const place of OF_A_CLUSTER.slice(0, 4)) expect(within(loaded, place)).not.toEqual([]);
  });

  it('with a cluster, too: no HTTP client that it does not use', async () => {
    const model = await ModelCluster.start(atEnd);
    const file = join(await emptyDirectory(atEnd), 'config');
    await writeFile(file, model.kubeconfig);
    const builtins = await builtinsOf('--kubeconfig', file);
    expect(builtins).toContain('http');
    expect(builtins.filter((each) => each.includes('undici'))).toEqual([]);
  });
});
