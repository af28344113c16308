import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isRemote } from '../../src/cli/kustomize.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, ROOT } from './linger.ts';

// Audits run on pull requests: what a kustomization names must not be fetched.

const atEnd = atEndOfFile();
let server: Server;
let connections = 0;
let port = 0;

beforeAll(async () => {
  // Never answers.
  server = createServer(() => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as { port: number }).port;
});
afterAll(() => server.close());

const DEPLOYMENT = `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: a, image: x, ports: [{containerPort: 80}]}]}}}\n`;

async function folderOf(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await emptyDirectory(atEnd);
  for (const [name, text] of Object.entries({ 'web.yaml': DEPLOYMENT, ...files })) {
    await mkdir(join(folder, name, '..'), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  return folder;
}

const url = () => `http://127.0.0.1:${port}/base.yaml`;
const git = () => `http://127.0.0.1:${port}/org/repo.git//base?ref=main`;

/** Every field that kustomize fetches, by what it contains. */
const FIELDS: Readonly<Record<string, (address: string) => string>> = {
  resources: (address) => `resources: [web.yaml, "${address}"]`,
  bases: (address) => `bases: ["${address}"]`,
  components: (address) => `components: ["${address}"]`,
  crds: (address) => `crds: ["${address}"]`,
  configurations: (address) => `configurations: ["${address}"]`,
  patchesStrategicMerge: (address) => `resources: [web.yaml]\npatchesStrategicMerge: ["${address}"]`,
  patches: (address) => `resources: [web.yaml]\npatches: [{path: "${address}"}]`,
  patchesJson6902: (address) =>
    `resources: [web.yaml]\npatchesJson6902: [{path: "${address}", target: {kind: Deployment, name: web}}]`,
  'files of configMapGenerator': (address) => `configMapGenerator: [{name: a, files: ["a=${address}"]}]`,
  'envs of secretGenerator': (address) => `secretGenerator: [{name: a, envs: ["${address}"]}]`,
  'env of configMapGenerator': (address) => `configMapGenerator: [{name: a, env: "${address}"}]`,
  openapi: (address) => `resources: [web.yaml]\nopenapi: {path: "${address}"}`,
  replacements: (address) => `resources: [web.yaml]\nreplacements: [{path: "${address}"}]`,
  generators: (address) => `generators: ["${address}"]`,
  transformers: (address) => `resources: [web.yaml]\ntransformers: ["${address}"]`,
  validators: (address) => `resources: [web.yaml]\nvalidators: ["${address}"]`,
  'an inline generator': (address) =>
    `generators:\n- |-\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: a}\n  files: ["${address}"]`,
  'an inline transformer': (address) =>
    `resources: [web.yaml]\ntransformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: a}\n  path: "${address}"`,
  helmCharts: (address) => `helmCharts: [{name: a, repo: "${address}"}]`,
};

describe('rendering reaches no network', () => {
  test.each(Object.keys(FIELDS))('%s', async (field) => {
    for (const address of [url(), git()]) {
      const folder = await folderOf({ 'kustomization.yaml': `${FIELDS[field]?.(address)}\n` });
      const { code, stderr } = await linger(['audit', '-R', '-f', folder]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('--allow-remote')]);
    }
    expect(connections).toBe(0);
  });

  test.each<[string, Readonly<Record<string, string>>]>([
    ['a base', { 'kustomization.yaml': 'resources: [base]', 'base/kustomization.yaml': 'resources: [URL]' }],
    [
      'a component',
      {
        'kustomization.yaml': 'components: [part]',
        'part/kustomization.yml':
          'apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{path: URL}]',
      },
    ],
    [
      'a base of a base',
      {
        'kustomization.yaml': 'resources: [a]',
        'a/Kustomization': 'bases: [../b]',
        'b/kustomization.yaml': 'resources: [URL]',
      },
    ],
    [
      'the file of a transformer',
      {
        'kustomization.yaml': 'resources: [web.yaml]\ntransformers: [t.yaml]',
        't.yaml': 'apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: a}\npath: URL',
      },
    ],
    [
      'the folder of a generator',
      { 'kustomization.yaml': 'generators: [g]', 'g/kustomization.yaml': 'resources: [URL]' },
    ],
  ])('nor through %s', async (_, files) => {
    const entries = Object.entries(files).map(([name, text]) => [
      name,
      `${text.replace('URL', JSON.stringify(url()))}\n`,
    ]);
    const folder = await folderOf(Object.fromEntries(entries) as Record<string, string>);
    for (const verb of ['audit', 'explain', 'inject']) {
      const { code, stderr } = await linger([verb, '-R', '-f', folder]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('--allow-remote')]);
    }
    expect(connections).toBe(0);
  });

  test('45: the case', async () => {
    const { code, stderr } = await linger([
      'audit',
      '-R',
      '-f',
      join(ROOT, 'test/testdata/cases/45-remote-base'),
    ]);
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining('would fetch http://127.0.0.1:18999/base.yaml'),
    ]);
  });

  test('addresses that are no paths are left alone', async () => {
    const kustomization = [
      'resources: [web.yaml]',
      'commonAnnotations: {docs: "https://example.com/a"}',
      'labels: [{pairs: {a: b}, fields: [{path: spec/selector/matchLabels, create: true}]}]',
      'transformers: [labels.yaml]',
      'images: [{name: x, newName: "registry.example:5000/x", newTag: "1"}]',
      'configMapGenerator: [{name: a, literals: ["URL=https://example.com/a?b"]}]',
      'patches:',
      '- patch: |-',
      '    apiVersion: apps/v1',
      '    kind: Deployment',
      '    metadata: {name: web, annotations: {a: "http://example.com"}}',
    ];
    const labels =
      'apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: a}\nlabels: {c: d}\nfieldSpecs: [{path: metadata/labels, create: true}]\n';
    const folder = await folderOf({
      'kustomization.yaml': `${kustomization.join('\n')}\n`,
      'labels.yaml': labels,
    });
    const { code, stdout } = await linger(['audit', '-R', '-f', folder]);
    expect([code, stdout]).toEqual([0, expect.stringContaining('1 workload')]);
  });

  test('unless it is asked to', async () => {
    const refused = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => refused.listen(0, '127.0.0.1', resolve));
    const { port: other } = refused.address() as { port: number };
    const folder = await folderOf({
      'kustomization.yaml': `resources: ["http://127.0.0.1:${other}/base.yaml"]\n`,
    });
    const { code, stderr } = await linger(['audit', '-R', '--allow-remote', '-f', folder]);
    refused.close();
    expect([code, stderr]).toEqual([1, expect.stringContaining('kubectl kustomize')]);
  });

  test.each([
    ['github.com/org/repo', true],
    ['github.com/org/repo//base?ref=v1', true],
    ['git@example.com:org/repo', true],
    ['git::https://example.com/repo', true],
    ['ssh://git@example.com/repo', true],
    ['example.com/org/repo.git', true],
    ['gh:org/repo', true],
    ['https://example.com/base.yaml', true],
    ['../base', false],
    ['web.yaml', false],
    ['./a/b.json', false],
    ['gitlab-runner/base', false],
    ['githubapp.yaml', false],
  ])('%s: %s', (path, remote) => {
    expect(isRemote(path)).toBe(remote);
  });
});
