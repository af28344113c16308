import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();

const DEPLOYMENT = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: x
        ports: [{containerPort: 80}]
`;
const beside = (object: string) => `${object}\n---\n${DEPLOYMENT}`;
const service = (spec: string) =>
  beside(`{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: ${spec}}`);
const namespace = (metadata: string) =>
  beside(`{apiVersion: v1, kind: Namespace, metadata: {name: shop, ${metadata}}}`);
const edited = (before: string, after: string) => {
  expect(DEPLOYMENT).toContain(before);
  return DEPLOYMENT.replace(before, after);
};

/** What `audit` prints of a manifest: standard output and error together, and its exit code. */
async function audited(manifest: string | Uint8Array) {
  const file = join(await emptyDirectory(atEnd), 'web.yaml');
  await writeFile(file, manifest);
  const { code, stdout, stderr } = await linger(['audit', '-f', file]);
  return { code, said: stdout + stderr };
}

describe('what cannot be read is named, and never taken to be absent', () => {
  test.each<[string, () => string, RegExp]>([
    [
      'a selector that is a list',
      () => service('{selector: [app, web]}'),
      /Service s: spec.selector is not a map of strings/,
    ],
    [
      'a selector with an object',
      () => service('{selector: {matchLabels: {app: web}}}'),
      /not strings: matchLabels/,
    ],
    ['a spec that is text', () => service('broken'), /Service s: spec is not an object/],
    [
      'labels of a namespace',
      () => namespace('labels: {tier: 1}'),
      /Namespace shop: metadata.labels .*tier \(1\)/,
    ],
    [
      'annotations of a namespace',
      () => namespace('annotations: {linger.dev/mode: 1}'),
      /Namespace shop: metadata.annotations .*linger.dev\/mode \(1\)/,
    ],
    [
      'a member of a List',
      () =>
        beside(
          '{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: 1}}}]}',
        ),
      /items\[0\]: Service s: spec.selector .*app \(1\)/,
    ],
  ])('%s', async (_, manifest, message) => {
    const { code, said } = await audited(manifest());
    expect(said).toMatch(message);
    expect(code).toBe(1);
  });

  test.each<[string, string, string, RegExp]>([
    [
      'annotations',
      'labels: {app: web}}\n    spec',
      'labels: {app: web}, annotations: {port: 8080}}\n    spec',
      /annotations: .*port \(8080\)/,
    ],
    [
      'a label without a value',
      'labels: {app: web}}\n    spec',
      'labels: {app: web, v: }}\n    spec',
      /labels: .*v \(/,
    ],
    [
      'preStop in a container',
      'image: x',
      'image: x\n        preStop: {sleep: {seconds: 5}}',
      /containers\[0\]\.preStop has no effect/,
    ],
    [
      'a grace beside replicas',
      'replicas: 2',
      'replicas: 2\n  terminationGracePeriodSeconds: 90',
      /spec\.terminationGracePeriodSeconds has no effect/,
    ],
    [
      'a grace in the template',
      '    metadata: {labels',
      '    terminationGracePeriodSeconds: 90\n    metadata: {labels',
      /spec\.template\.terminationGracePeriodSeconds has no effect/,
    ],
    [
      'lifecycle beside metadata',
      'spec:\n  replicas',
      'lifecycle: {}\nspec:\n  replicas',
      /lifecycle has no effect/,
    ],
    ['apps/v1beta2', 'apps/v1', 'apps/v1beta2', /no longer serves apps\/v1beta2: write apps\/v1/],
    [
      'a hook of another shell',
      'image: x',
      'image: x\n        lifecycle: {preStop: {exec: {command: [/usr/bin/dash, -ec, "exec sleep 1m"]}}}',
      /waits 60s, and the grace is 30s/,
    ],
    [
      'a hook without a handler',
      'image: x',
      'image: x\n        lifecycle: {preStop: {}}',
      /preStop: must specify a handler type/,
    ],
    [
      'a hook that waits 0 s',
      'image: x',
      'image: x\n        lifecycle: {preStop: {exec: {command: [sleep 15]}}}',
      /no program "sleep 15"/,
    ],
  ])('%s', async (_, before, after, message) => {
    expect((await audited(edited(before, after))).said).toMatch(message);
  });
});

describe('every encoding that a file may have', () => {
  const bigEndian = (text: string) => Buffer.from(text, 'utf16le').swap16();
  test.each<[string, Uint8Array, RegExp]>([
    ['UTF-16 without a mark', Buffer.from(DEPLOYMENT, 'utf16le'), /Deployment shop\/web/],
    ['the same, the other way round', bigEndian(DEPLOYMENT), /Deployment shop\/web/],
    ['UTF-16 with a mark', bigEndian(`\uFEFF${DEPLOYMENT}`), /Deployment shop\/web/],
    [
      'UTF-32',
      Buffer.from([...DEPLOYMENT].flatMap((each) => [each.charCodeAt(0), 0, 0, 0])),
      /save it as UTF-8/,
    ],
    [
      'Latin-1',
      Buffer.from(`# café\n${DEPLOYMENT}`, 'latin1'),
      /:1:6: this is not UTF-8: save the file as UTF-8/,
    ],
  ])('%s', async (_, bytes, message) => {
    expect((await audited(bytes)).said).toMatch(message);
  });
});

test('the same name four times is four rows, blocks and places', async () => {
  const folder = await emptyDirectory(atEnd);
  await writeFile(join(folder, 'a.yaml'), `${DEPLOYMENT}---\n${DEPLOYMENT}`);
  await writeFile(join(folder, 'b.yaml'), DEPLOYMENT);
  for (const verb of ['audit', 'explain']) {
    const { stdout } = await linger([verb, '-f', folder]);
    for (const place of ['a.yaml:1', 'a.yaml:15', 'b.yaml:1'])
      expect(stdout).toContain(`Deployment shop/web (${join(folder, place)})`);
  }
});

test.each([
  [['frobnicate', '--help']],
  [['--help', 'frobnicate']],
  [['help', 'frobnicate']],
  [['hold', 'frobnicate', '--help']],
  [['history', 'frobnicate', '-h']],
  [['completion', 'tcsh', '--help']],
  [['hold', 'frobnicate']],
])('a word that is no command or action is a usage error, help or not: %j', async (argv) => {
  const { code, stdout, stderr } = await linger(argv);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toMatch(/frobnicate|tcsh/);
});

test('help of an action is help, whatever flags have for values', async () => {
  for (const argv of [
    ['hold', '-o', 'json', '--help'],
    ['history', 'forget', '-h'],
    ['help', 'hold'],
  ])
    expect(await linger(argv)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^Usage: linger h/) as string,
    });
});
