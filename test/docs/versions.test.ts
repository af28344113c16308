import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { OLDEST } from '../../src/check/preflight.ts';
import { KUBERNETES_VERSIONS } from '../testbed/kubernetes-module.ts';
import { read } from './markdown.ts';

const [oldest = ''] = KUBERNETES_VERSIONS;
const minorOf = (version: string) => version.split('.')[1] ?? '';

test('the table of versions has a column for each that the suite runs on', () => {
  const [head = ''] = read('docs/install.md')
    .split('\n')
    .filter((line) => line.startsWith('||1.'));
  const named = head.split('|').flatMap((cell) => /^(1\.\d+)/.exec(cell)?.[1] ?? []);
  expect(named).toEqual(KUBERNETES_VERSIONS.map((version) => `1.${minorOf(version)}`));
});

test('the oldest of them is what the chart asks for, and the check', () => {
  const { kubeVersion } = parse(read('deploy/chart/Chart.yaml')) as { kubeVersion: string };
  expect(kubeVersion).toBe(`>=1.${minorOf(oldest)}.0-0`);
  expect(OLDEST).toEqual({ major: 1, minor: Number(minorOf(oldest)) });
});

test('all of them run every night', () => {
  const { jobs } = parse(read('.github/workflows/nightly.yml')) as {
    jobs: { versions: { strategy: { matrix: { kubernetes: string[] } } } };
  };
  expect(jobs.versions.strategy.matrix.kubernetes).toEqual(KUBERNETES_VERSIONS);
});
