import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { AtEnd } from '../webhook/connection.ts';
import { emptyDirectory, linger, ROOT } from './linger.ts';

const atEnd = onTestFinished as AtEnd;
const CASES = join(ROOT, 'test/testdata/cases');
const SCRAPE = join(ROOT, 'test/testdata/controller-manager/storm-1.prom');

const POLICY =
  'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: base} # é\nspec: {}\n';
const POD = 'apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n';
const EVENTS = '{"at": 1790000000, "lag": 0.2}\n{"at": 1790000060, "lag": 0.3}\n';
const KUBECONFIG = 'current-context: no-such\nclusters: []\ncontexts: []\nusers: []\n';

/** Every file that a command reads, as its arguments. */
const READERS: readonly [
  what: string,
  text: string | undefined,
  args: (file: string) => readonly string[],
][] = [
  ['policies of check', POLICY, (file) => ['check', file]],
  ['policies of explain', POLICY, (file) => ['explain', '--policies', file, '-f', file]],
  ['manifests of explain', POD, (file) => ['explain', file]],
  ['manifests of audit', POD, (file) => ['audit', '-f', file]],
  ['events of simulate', EVENTS, (file) => ['simulate', file]],
  ['a saved scrape', undefined, (file) => ['diagnose', '--controller-metrics', file]],
  ['a kubeconfig', KUBECONFIG, (file) => ['consumers', '--kubeconfig', file]],
];

const ENCODED: readonly [encoding: string, of: (text: string) => Buffer][] = [
  ['UTF-8 with a byte order mark', (text) => Buffer.from(`\uFEFF${text}`)],
  ['UTF-16LE', (text) => Buffer.from(`\uFEFF${text}`, 'utf16le')],
  ['UTF-16LE without a byte order mark', (text) => Buffer.from(text, 'utf16le')],
  ['UTF-16BE', (text) => Buffer.from(`\uFEFF${text}`, 'utf16le').swap16()],
];

describe.each(ENCODED)('a file in %s is read as one in UTF-8', (_, encode) => {
  it.each(READERS)('%s', async (_what, text, args) => {
    const file = join(await emptyDirectory(atEnd), 'file.yaml');
    const content = text ?? (await readFile(SCRAPE, 'utf8'));
    await writeFile(file, content);
    const plain = await linger(args(file));
    await writeFile(file, encode(content));
    expect(await linger(args(file))).toEqual(plain);
    // The reader got as far as the content, whatever it then says of it.
    expect(plain.stderr).not.toMatch(/cannot be read|malformed/i);
  });
});

it('standard input, too', async () => {
  const stdin = await readFile(join(CASES, '27-utf16.prom'));
  const { stdout } = await linger(['diagnose', '--controller-metrics', '-'], { stdin });
  expect(stdout).toMatch(/^CRITICAL ClientThrottled\n/);
});

it('case 27: a policy and a scrape that PowerShell wrote', async () => {
  const checked = await linger(['check', join(CASES, '27-utf16-policy.yaml')]);
  expect(checked).toMatchObject({ code: 0, stderr: '1 documents valid, 0 invalid\n' });
  const { stdout } = await linger(['diagnose', '--controller-metrics', join(CASES, '27-utf16.prom')]);
  expect(stdout).toMatch(/^CRITICAL ClientThrottled\n/);
});

it('case 26: nothing is called well where the queue of EndpointSlices is left out', async () => {
  const file = join(await emptyDirectory(atEnd), 'filtered.prom');
  const whole = await readFile(SCRAPE.replace('storm', 'calm'), 'utf8');
  await writeFile(file, whole.replaceAll(/^.*name="endpoint_slice".*\n/gm, ''));
  const { stdout } = await linger(['diagnose', '--controller-metrics', file]);
  expect(stdout).toMatch(/^INFO MetricsMissing\n {2}Not seen: how long Services wait;/);
});

it('case 26: what a filtered scrape lacks is not seen, and nothing is called well', async () => {
  const file = join(CASES, '26-kcm-grep.prom');
  const { stdout } = await linger(['diagnose', '--controller-metrics', file, '--output', 'json']);
  const { findings } = JSON.parse(stdout) as {
    findings: { code: string; text: string; evidence: string[] }[];
  };
  expect(findings.map(({ code }) => code)).toEqual(['MetricsMissing']);
  expect(findings[0]?.text).toMatch(
    /^Not seen: whether the client is throttled; whether the API server is slow;/,
  );
  expect(findings[0]?.evidence).toContain(
    'whether the client is throttled: no rest_client_rate_limiter_duration_seconds',
  );
});
