import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { VERBS } from '../../src/cli/commands.ts';
import { consumersToText, LagHistory } from '../../src/core/lag/index.ts';
import { packPart, partKey, stampAnnotations } from '../../src/leader/codec.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { sharedCertificates } from './certificates.ts';
import { ALWAYS_A_PROCESS, emptyDirectory, linger, shipped } from './linger.ts';
import { DEPLOYMENT, INJECTED_DEPLOYMENT, JOB, POLICY } from './manifests.ts';

const atEnd = atEndOfFile();
const certs = sharedCertificates();
const DAY = 86_400;
const SCRAPES = [1, 2].map((each) => `test/testdata/controller-manager/throttled-${each}.prom`).join();

/** A cluster with what a leader has published. */
async function cluster(): Promise<string> {
  const model = await ModelCluster.start(atEnd);
  const now = Math.floor(Date.now() / 1000);
  const annotations = stampAnnotations({ writer: 'linger-a', term: 1, writtenAt: now });
  const publish = (name: string, more: object) =>
    model.single.set(`/api/v1/namespaces/linger/configmaps/${name}`, {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace: 'linger', resourceVersion: '1', annotations },
      ...more,
    });
  publish('linger-planned', { data: {} });
  const history = new LagHistory();
  history.record(0.2, now - DAY);
  const binaryData: Record<string, string> = {};
  for (const { key, text } of history.parts('cluster', now))
    binaryData[partKey(key)] = await packPart(text(400_000));
  publish('linger-history', { binaryData });
  publish('linger-consumers', { data: { 'consumers.json': consumersToText({ asOf: now, consumers: [] }) } });
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, model.kubeconfig);
  return file;
}

interface Case {
  readonly args: (file: (text: string) => Promise<string>) => Promise<readonly string[]>;
  readonly stdin?: string;
  readonly code: number;
}

const kubeconfig = async (...args: string[]) => [...args, '--kubeconfig', await cluster()];

/** For each command that ends by itself. */
const CASES: Readonly<Record<string, Case>> = {
  inject: { args: async (file) => ['inject', '--policies', await file(POLICY)], stdin: DEPLOYMENT, code: 0 },
  uninject: { args: async () => ['uninject'], stdin: INJECTED_DEPLOYMENT, code: 0 },
  explain: { args: async () => ['explain', '--fail-on', 'skip'], stdin: `${DEPLOYMENT}---\n${JOB}`, code: 3 },
  audit: {
    args: async () => ['audit', '-R', '-f', 'test/testdata/audit', '--fail-on', 'any'],
    code: 3,
  },
  check: { args: async (file) => ['check', await file(`${POLICY}---\na: [`), '-o', 'json'], code: 1 },
  status: { args: async () => ['status', '--kubeconfig', 'none'], code: 1 },
  simulate: { args: async () => ['simulate', '-'], stdin: '{"at": 1790000000, "lag": 0.2}', code: 0 },
  certs: { args: async () => ['certs', '--dns', 'localhost,127.0.0.1,::1', '--out', certs()], code: 0 },
  diagnose: { args: async () => ['diagnose', '--controller-metrics', SCRAPES], code: 0 },
  consumers: { args: () => kubeconfig('consumers'), code: 0 },
  witness: { args: async () => ['witness', '--page', 'nowhere'], code: 2 },
  'node-timer': { args: async () => ['node-timer', '--cluster-ip', 'nowhere'], code: 2 },
  history: { args: () => kubeconfig('history'), code: 0 },
  timeline: { args: () => kubeconfig('timeline'), code: 0 },
  hold: { args: async () => ['hold', 'manifest'], code: 0 },
  prove: { args: () => kubeconfig('prove', 'deployment/web', '--yes'), code: 1 },
  'prove-keep': { args: async () => ['prove-keep', '--kubeconfig', 'none'], code: 1 },
  'prove-traffic': { args: async () => ['prove-traffic', '--plan', '{}'], code: 2 },
  version: { args: async () => ['version', '-o', 'yaml'], code: 0 },
  completion: { args: async () => ['completion', 'bash'], code: 0 },
  '(no command)': { args: async () => [], code: 2 },
  '--version': { args: async () => ['--version'], code: 0 },
  '--help': { args: async () => ['inject', '--help'], code: 0 },
};

async function fileOf(text: string): Promise<string> {
  const path = join(await emptyDirectory(atEnd), 'policies.yaml');
  await writeFile(path, text);
  return path;
}

/** Most tests run commands in their own process, from the sources. */
describe.concurrent('the shipped program prints and ends as the sources do in the process of a test', () => {
  it.each(Object.entries(CASES))('%s', async (_command, { args, stdin = '', code }) => {
    const argv = await args(fileOf);
    const env = { HOME: '/nonexistent', KUBECONFIG: '' };
    const found = await shipped(argv, { stdin, env });
    expect(found).toEqual(await linger(argv, { stdin, env }));
    expect(found.code, found.stderr).toBe(code);
    expect(found.stdout + found.stderr).not.toBe('');
  });
});

it('each command that may run here has its case', () => {
  const here = Object.keys(VERBS).filter((command) => !ALWAYS_A_PROCESS.has(command));
  expect(Object.keys(CASES)).toEqual(expect.arrayContaining(here));
});
