import { globSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { linger, ROOT } from './linger.ts';

// A workload gets the same verdict with the webhook and with Linger's plan already in its manifest.

const MANIFESTS = ['cases', 'audit', 'corpus'].flatMap((folder) =>
  globSync(`${folder}/*.yaml`, { cwd: join(ROOT, 'test', 'testdata') }),
);

/** Reasons that say from where the wait comes. */
const SAME: Readonly<Record<string, string>> = { AlreadyInjected: 'Injected' };
/** Only where the webhook is not: what is added at admission has no wait of Linger’s. */
const WITHOUT_WEBHOOK = new Set(['SidecarAddedLater']);

async function judged(args: readonly string[], stdin?: string) {
  const { stdout } = await linger(['audit', '-o', 'json', ...args], stdin === undefined ? {} : { stdin });
  const { findings } = JSON.parse(stdout) as AuditReport;
  return findings
    .filter(({ reason }) => !WITHOUT_WEBHOOK.has(reason))
    .map(({ kind, namespace, name, verdict, reason, waitSeconds, graceSeconds, exposureSeconds }) => {
      const said = [verdict, SAME[reason] ?? reason, waitSeconds, graceSeconds, exposureSeconds];
      return { subject: `${kind} ${namespace}/${name}`, said: said.join(' ') };
    });
}

describe('one judge', () => {
  test.each(MANIFESTS)('%s', async (file) => {
    const path = join(ROOT, 'test', 'testdata', file);
    const { stdout, stderr } = await linger(['inject', '-f', path]);
    if (stdout === '') return;
    // What inject leaves unchanged has no plan to be judged by; with Hold, manifests get Sleep.
    const isLeft = (subject: string) =>
      [...stderr.matchAll(/^.*left unchanged.*$/gm)].some(
        ([line]) => line.includes(subject.split(' ')[0] ?? '') || line.includes(subject.split('/')[1] ?? ''),
      );
    const now = (await judged(['-'], stdout)).filter(({ said }) => !said.includes(' NotInjected '));
    const before = await judged(['--webhook', '-f', path]);
    const subjects = new Set(now.map(({ subject }) => subject).filter((subject) => !isLeft(subject)));
    const of = (all: typeof now) =>
      all
        .filter(({ subject }) => subjects.has(subject))
        .map(({ subject, said }) => `${subject}: ${said}`)
        .toSorted();
    expect(of(now)).toEqual(of(before));
  });

  test('there are enough of them', () => {
    expect(MANIFESTS.length).toBeGreaterThan(40);
  });
});
