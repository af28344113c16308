/**
 * `npm run mutate -- [--seed N] [--count 60] [--rooms decision,lag,hold]`: changes one place of the source at a time, in a
 * copy of the last commit, and runs the room's tests on it. Prints by file how many changes they found, and each that
 * survived. Some are equivalent to the original: read them before you write a test. Takes about a minute for each.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Node, SyntaxKind } from 'typescript/unstable/ast';
import { createVirtualFileSystem } from 'typescript/unstable/fs';
import { API } from 'typescript/unstable/sync';

const ROOT = join(import.meta.dirname, '../..');
/** A change that loops for ever is found, too. */
const LONGEST_MS = 300_000;

const OPERATORS: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '&&': '||',
  '||': '&&',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  true: 'false',
  false: 'true',
};
/** What is no code at run time. */
const TYPES = new Set([
  SyntaxKind.InterfaceDeclaration,
  SyntaxKind.TypeAliasDeclaration,
  SyntaxKind.LiteralType,
]);

interface Mutation {
  readonly file: string;
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

function mutationsOf(file: string, text: string): readonly Mutation[] {
  const fs = createVirtualFileSystem({ '/file.ts': text, '/tsconfig.json': '{"files":["file.ts"]}' });
  const api = new API({ cwd: '/', fs });
  const source = api
    .updateSnapshot({ openProjects: ['/tsconfig.json'] })
    .getProject('/tsconfig.json')
    ?.program.getSourceFile('/file.ts');
  const found: Mutation[] = [];
  const visit = (node: Node): undefined => {
    if (TYPES.has(node.kind)) return undefined;
    const start = node.getStart(source);
    const code = text.slice(start, node.end);
    const change = (at: number, to: number, by: string) => found.push({ file, start: at, end: to, text: by });
    const operator = OPERATORS[code];
    if (operator !== undefined) change(start, node.end, operator);
    if (node.kind === SyntaxKind.NumericLiteral) change(start, node.end, `(${code} + 1)`);
    if (node.kind === SyntaxKind.ExpressionStatement) change(start, node.end, ';');
    if (node.kind === SyntaxKind.IfStatement) {
      const { pos, end } = (node as unknown as { readonly expression: Node }).expression;
      change(pos, end, `!(${text.slice(pos, end)})`);
    }
    node.forEachChild(visit);
    return undefined;
  };
  source?.forEachChild(visit);
  api.close();
  return found;
}

const { values } = parseArgs({
  options: { seed: { type: 'string' }, count: { type: 'string' }, rooms: { type: 'string' } },
});
const { seed = String(Date.now() % 100_000), count = '60', rooms = 'core/decision,core/lag,hold' } = values;
const copy = mkdtempSync(join(dirname(ROOT), 'mutate-'));
execFileSync('git', ['worktree', 'add', '--detach', '--force', copy], { cwd: ROOT, stdio: 'ignore' });
execFileSync('cp', ['-al', join(ROOT, 'node_modules'), join(copy, 'node_modules')]);
try {
  const files = rooms.split(',').flatMap((room) =>
    readdirSync(join(copy, 'src', room))
      .filter((name) => name.endsWith('.ts') && name !== 'index.ts')
      .map((name) => `src/${room}/${name}`),
  );
  const all = files.flatMap((file) => mutationsOf(file, readFileSync(join(copy, file), 'utf8')));
  const by = new Map<string, { found: number; survived: number }>();
  for (let left = Number(count); left > 0; left -= 1) {
    const chance = createHash('sha1').update(`${seed}/${left}`).digest().readUInt32BE();
    const [mutation] = all.splice(chance % all.length, 1);
    if (mutation === undefined) break;
    const { file, start, end, text } = mutation;
    const original = readFileSync(join(copy, file), 'utf8');
    writeFileSync(join(copy, file), original.slice(0, start) + text + original.slice(end));
    const tests = [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--bail=1',
      `${dirname(file).replace('src/', 'test/')}/`,
    ];
    const { status } = spawnSync('node', tests, { cwd: copy, timeout: LONGEST_MS, stdio: 'ignore' });
    writeFileSync(join(copy, file), original);
    const counts = by.get(file) ?? { found: 0, survived: 0 };
    counts[status === 0 ? 'survived' : 'found'] += 1;
    by.set(file, counts);
    const where = `${file}:${original.slice(0, start).split('\n').length}`;
    console.log(
      `${status === 0 ? 'SURVIVED' : 'found   '} ${where}: ${original.slice(start, end)} → ${text}`,
    );
  }
  for (const [file, counts] of by) console.log(`${file}: ${counts.found} found, ${counts.survived} survived`);
  console.log(`seed ${seed}`);
} finally {
  execFileSync('git', ['worktree', 'remove', '--force', copy], { cwd: ROOT });
  rmSync(copy, { recursive: true, force: true });
}
