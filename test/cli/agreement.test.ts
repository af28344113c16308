import { globSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import type { ExplainReport } from '../../src/dashboard/index.ts';
import { linger, ROOT } from './linger.ts';

// What one command says of an input, no other contradicts.

const MANIFESTS = ['cases', 'audit', 'corpus', 'discovery'].flatMap((folder) =>
  globSync(`${folder}/*.yaml`, { cwd: join(ROOT, 'test', 'testdata') }),
);

interface DiscoverReport {
  readonly consumers: readonly {
    readonly name: string;
    readonly services: readonly string[];
    readonly seen: readonly string[];
    readonly declaredBy: string | null;
    readonly document: unknown;
  }[];
  readonly unrecognised: readonly string[];
}

async function json<T>(...args: readonly string[]): Promise<T> {
  const { stdout } = await linger([...args, '-o', 'json']);
  return JSON.parse(stdout) as T;
}

/** The place of a workload: names are not unique in an input. */
const placeOf = ({
  kind,
  namespace,
  name,
  line,
}: {
  kind: string;
  namespace: string;
  name: string;
  line?: number;
}) => `${kind} ${namespace}/${name}:${line}`;

describe.concurrent('one sentence from one place', () => {
  test.each(MANIFESTS)('%s', async (file) => {
    const path = join(ROOT, 'test', 'testdata', file);
    const [plain, webhook, explained, discovered, suggested] = await Promise.all([
      json<AuditReport>('audit', '-f', path),
      json<AuditReport>('audit', '--webhook', '-f', path),
      json<ExplainReport>('explain', '-f', path),
      json<DiscoverReport>('consumers', 'discover', '-f', path),
      linger(['audit', '--suggest', '-f', path]),
    ]);

    // The counts of audits are those of --suggest.
    const counts = suggested.stdout.match(
      /^# as the manifests are, (\d+) of (\d+) workloads? .*, with Linger’s webhook (\d+)/,
    );
    expect(counts?.slice(1).map(Number)).toEqual([
      plain.summary.verdicts.protected,
      plain.summary.workloads,
      webhook.summary.verdicts.protected,
    ]);

    // What discovery says needs no declaration, no audit asks for; what an audit says it prints, it prints.
    const asks = webhook.findings
      .filter(({ reason }) => reason === 'UndeclaredConsumer')
      .map(({ text }) => text);
    const covered = discovered.consumers.filter(
      ({ document, declaredBy }) => document === null && declaredBy !== null,
    );
    const contradicted = covered
      .flatMap(({ seen }) => seen)
      .filter((seen) => asks.some((text) => text.includes(seen)));
    expect(contradicted).toEqual([]);
    const printed = discovered.consumers.filter(
      ({ document, declaredBy }) => document !== null && declaredBy === null,
    );
    for (const text of asks) {
      const isPrinted = printed.some(({ seen }) => seen.some((each) => text.includes(each)));
      const isNamed = discovered.unrecognised.some((each) => text.includes(each));
      const isPool = /(InferencePool|ServiceEntry) .*without a Service/.test(text);
      expect([text, text.includes('consumers discover prints it') ? isPrinted : isNamed || isPool]).toEqual([
        text,
        true,
      ]);
    }

    // An explanation has the audit's wait, and is not green where the audit is red.
    const audited = Map.groupBy(webhook.findings, placeOf);
    for (const plan of explained.plans) {
      if (!('file' in plan)) continue;
      const findings = audited.get(placeOf(plan)) ?? [];
      const [own] = findings;
      const subject = placeOf(plan);
      if (own === undefined) continue;
      if (own.reason === 'Injected' || own.reason === 'AlreadyInjected')
        expect([subject, own.waitSeconds, own.graceSeconds]).toEqual([
          subject,
          plan.waitSeconds,
          plan.graceSeconds,
        ]);
      if (own.verdict === 'skipped' && own.reason !== 'NoReplicas' && own.reason !== 'NotAsked')
        expect([subject, plan.reason]).toEqual([subject, own.reason]);
      if (own.verdict !== 'unprotected' || plan.outcome !== 'inject' || plan.mode === 'Audit') continue;
      expect([subject, plan.notes.map(({ code }) => code)]).toEqual([
        subject,
        expect.arrayContaining([own.reason]),
      ]);
    }
  });

  test('there are enough of them', () => {
    expect(MANIFESTS.length).toBeGreaterThan(50);
  });
});
