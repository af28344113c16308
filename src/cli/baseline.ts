import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, realpath, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { asError, isRecord, LingerError, recordsAt } from '../core/api/index.ts';
import type { AuditFinding } from '../core/judge/index.ts';

const run = promisify(execFile);
const WITHIN_MS = 60_000;

/** Looks up a finding in another version, in which files and lines may have moved. */
export type Known = (finding: Pick<AuditFinding, 'kind' | 'namespace' | 'name' | 'reason'>) => boolean;

/**
 * The findings of --baseline: those in a file that an audit with `-o json` has written, or else those of a git commit, whose
 * manifests are audited in the same way as `paths`.
 * @param auditAt audits the paths of another version
 * @throws LingerError
 */
export async function knownIn(
  baseline: string,
  paths: readonly string[],
  auditAt: (paths: readonly string[]) => Promise<readonly AuditFinding[]>,
): Promise<Known> {
  const isFile = (await stat(baseline).catch(() => undefined))?.isFile() === true;
  const findings = isFile ? await findingsIn(baseline) : await ofCommit(baseline, paths, auditAt);
  const keys = new Set(findings.map(keyOf));
  return (finding) => keys.has(keyOf(finding));
}

function keyOf({ kind, namespace, name, reason }: Parameters<Known>[0]): string {
  return JSON.stringify([kind, namespace, name, reason]);
}

async function findingsIn(file: string): Promise<readonly AuditFinding[]> {
  const failed = (why: string) =>
    new LingerError(
      'manifest-invalid',
      `--baseline ${file}: ${why}; expected what linger audit -o json prints`,
    );
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw failed(asError(cause).message);
  });
  let report: unknown;
  try {
    report = JSON.parse(text);
  } catch (cause) {
    throw failed(asError(cause).message);
  }
  if (!isRecord(report) || !Array.isArray(report.findings)) throw failed('there are no findings in it');
  return recordsAt(report, 'findings') as unknown as readonly AuditFinding[];
}

async function ofCommit(
  commit: string,
  paths: readonly string[],
  auditAt: (paths: readonly string[]) => Promise<readonly AuditFinding[]>,
): Promise<readonly AuditFinding[]> {
  const failed = (why: string) =>
    new LingerError('manifest-invalid', `--baseline ${commit}: neither a file nor a commit of git (${why})`);
  if (commit.startsWith('-')) throw failed('it begins with -');
  const git = async (...args: readonly string[]) => {
    const { stdout } = await run('git', [...args], { timeout: WITHIN_MS }).catch((cause: unknown) => {
      throw failed(asError(cause).message.trim().split('\n').at(-1) ?? '');
    });
    return stdout.trim();
  };
  const top = await git('rev-parse', '--show-toplevel');
  const hash = await git('rev-parse', '--verify', '--end-of-options', `${commit}^{commit}`);
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'linger-')));
  try {
    const tree = join(folder, 'tree');
    await mkdir(tree);
    await git('-C', top, 'archive', '--output', join(folder, 'tree.tar'), hash);
    await run('tar', ['-x', '-f', join(folder, 'tree.tar'), '-C', tree], { timeout: WITHIN_MS });
    const then: string[] = [];
    for (const path of paths) {
      const within = relative(top, await realpath(path).catch(() => resolve(path)));
      if (within.startsWith('..')) throw failed(`${path} is not in the repository`);
      // Paths that are new did not exist in that version.
      const old = join(tree, within);
      if ((await stat(old).catch(() => undefined)) !== undefined) then.push(old);
    }
    return then.length === 0 ? [] : await auditAt(then);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
