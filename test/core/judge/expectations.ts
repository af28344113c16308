import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AuditReport } from '../../../src/core/judge/index.ts';

/** Workloads in the style of public manifests. */
export const DATA = join(import.meta.dirname, '../..', 'testdata', 'audit');

/** `# expect: VERDICT REASON,REASON` stands before each workload; the first reason is the verdict's. */
const EXPECTED =
  /^# expect: (?<said>\w+ [\w,]+)(?=\n(?:.*\n)*?kind: (?<kind>\w+)\nmetadata:\n {2}name: (?<name>\S+))/gm;

export interface Expectation {
  readonly file: string;
  readonly kind: string;
  readonly name: string;
  /** What the file says. */
  readonly said: string;
}

export function expectations(): readonly Expectation[] {
  return readdirSync(DATA).flatMap((file) =>
    [...readFileSync(join(DATA, file), 'utf8').matchAll(EXPECTED)].map(
      ({ groups }) => ({ file, ...groups }) as Expectation,
    ),
  );
}

export function auditOfData(): AuditReport {
  const main = join(import.meta.dirname, '../../..', 'src', 'main.ts');
  const args = ['audit', '-R', '-f', DATA, '--webhook', '-o', 'json'];
  return JSON.parse(execFileSync(process.execPath, [main, ...args], { encoding: 'utf8' })) as AuditReport;
}

/** What the audit says of a workload, as the file is to say it. */
export function saidOf({ findings }: AuditReport, { file, kind, name }: Omit<Expectation, 'said'>): string {
  const own = findings.filter(
    (each) => each.kind === kind && each.name === name && each.file?.endsWith(file),
  );
  return `${own[0]?.verdict} ${own.map(({ reason }) => reason).join(',')}`;
}

/** Rewrites the lines of all files. @returns how many have changed */
export function rewriteExpectations(): number {
  const report = auditOfData();
  let changed = 0;
  for (const file of readdirSync(DATA)) {
    const path = join(DATA, file);
    const text = readFileSync(path, 'utf8').replaceAll(
      EXPECTED,
      (line, said: string, kind: string, name: string) => {
        const now = saidOf(report, { file, kind, name });
        if (now !== said) changed += 1;
        return line.replace(said, now);
      },
    );
    writeFileSync(path, text);
  }
  return changed;
}
