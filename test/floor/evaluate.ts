import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import type { PodObject } from '../core/decision/sample-pod.ts';

const MANIFEST = join(import.meta.dirname, '..', '..', 'deploy', 'floor', 'floor.yaml');

export interface FloorCase {
  readonly pod: PodObject;
  readonly namespace: object;
  readonly params: { readonly data: Readonly<Record<string, string>> };
}

export interface FloorResult {
  /** What the policy has made of the pod; undefined: an error, after which the API server leaves the pod alone. */
  readonly pod?: PodObject;
  readonly error?: string;
  /** Whether the match conditions let the policy be evaluated at all. */
  readonly matched: boolean;
  readonly micros: number;
}

/** The policy of deploy/floor, as `test/floor/main.go` evaluates it with the API server's own packages. */
export function evaluated(program: string, cases: readonly FloorCase[]): readonly FloorResult[] {
  const [policy] = parseAllDocuments(readFileSync(MANIFEST, 'utf8')).map((each) => each.toJS() as unknown);
  const folder = mkdtempSync(join(tmpdir(), 'linger-floor-'));
  try {
    const file = join(folder, 'policy.json');
    writeFileSync(file, JSON.stringify(policy));
    const input = cases.map((each) => JSON.stringify(each)).join('\n');
    const output = execFileSync(program, [file], { input, encoding: 'utf8', maxBuffer: 1024 ** 3 });
    return output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as FloorResult);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
