import { registerHooks, stripTypeScriptTypes } from 'node:module';
import { sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseAst } from 'vitest/node';
import { Budget } from '../../src/core/api/index.ts';

/**
 * Counts what code does in steps of its own: calls of functions and turns of loops, in copies of its modules that call
 * {@link STEP} at each. They do not depend on the machine and on what else it does, and an endless reader ends when it has
 * spent its budget.
 */

/** The function of the global object that the copies call. */
const STEP = '__step';
const COUNTED = '?counted';
const ROOT = new URL('../..', import.meta.url);

let budget: Budget | undefined;

export class OutOfSteps extends Error {}

Object.assign(globalThis, {
  [STEP]: () => {
    if (budget === undefined) return;
    budget.spend();
    if (budget.isSpent) throw new OutOfSteps(`more than ${budget.limits.steps} steps`);
  },
});

/**
 * The steps that `run` takes, which must be code of modules from {@link counted}.
 * @throws OutOfSteps
 */
export function stepsOf(run: () => void, most = 2 ** 40): number {
  budget = new Budget({ bytes: 0, parts: { most: 0 }, depth: 0, steps: most });
  try {
    run();
    // A reader may have caught it.
    if (budget.isSpent) throw new OutOfSteps(`more than ${most} steps`);
    return budget.spent;
  } finally {
    budget = undefined;
  }
}

/**
 * A copy of a module, and of all modules of the project that it imports, whose steps are counted. The hooks end with the import:
 * as long as any stand, Node 24.9 cannot import CommonJS that requires a module ("module is not linked"), as express does, and
 * what had been imported so would stay broken for the other tests of this process.
 * @param path from the root
 */
export async function counted<T>(path: string): Promise<T> {
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      const isCounted = context.parentURL?.endsWith(COUNTED) && isOwn(found.url);
      return isCounted && !found.url.endsWith(COUNTED) ? { ...found, url: found.url + COUNTED } : found;
    },
    load(url, context, next) {
      if (!url.endsWith(COUNTED)) return next(url, context);
      const loaded = next(url.slice(0, -COUNTED.length), { ...context, format: 'module-typescript' });
      const source = stripTypeScriptTypes(Buffer.from(loaded.source as Uint8Array).toString());
      return { format: 'module', source: withSteps(source), shortCircuit: true };
    },
  });
  try {
    return (await import(`${pathToFileURL(fileURLToPath(new URL(path, ROOT)))}${COUNTED}`)) as T;
  } finally {
    hooks.deregister();
  }
}

function isOwn(url: string): boolean {
  return url.startsWith(ROOT.href) && url.endsWith('.ts') && !url.includes(`${sep}node_modules${sep}`);
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [member: string]: unknown;
}

const LOOPS: ReadonlySet<string> = new Set([
  ...['ForStatement', 'ForInStatement', 'ForOfStatement', 'WhileStatement', 'DoWhileStatement'],
]);
const FUNCTIONS: ReadonlySet<string> = new Set([
  ...['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'],
]);

/** The source with a call of {@link STEP} in each function and loop. */
export function withSteps(source: string): string {
  const insertions: { readonly at: number; readonly text: string }[] = [];
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) for (const each of value) visit(each);
    if (!isNode(value)) return;
    const { type, body } = value;
    const isLoop = LOOPS.has(type);
    const counts = (isLoop || FUNCTIONS.has(type)) && isNode(body);
    const isBlock = counts && body.type === 'BlockStatement';
    if (isBlock) insertions.push({ at: body.start + 1, text: `${STEP}();` });
    else if (counts) insertions.push({ at: body.start, text: isLoop ? `{${STEP}();` : `(${STEP}(),(` });
    for (const member in value) visit(value[member]);
    // Behind those of inner nodes that end at the same place.
    if (counts && !isBlock) insertions.push({ at: body.end, text: isLoop ? '}' : '))' });
  };
  visit(parseAst(source));
  let result = '';
  let from = 0;
  for (const { at, text } of insertions.toSorted((a, b) => a.at - b.at)) {
    result += source.slice(from, at) + text;
    from = at;
  }
  return result + source.slice(from);
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}
