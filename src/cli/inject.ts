import { chmod, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import fastJsonPatch from 'fast-json-patch';
import { asError, LingerError } from '../core/api/index.ts';
import { type Operation, patchInForce, snapshotOf, summaryOf, undoFor } from '../core/decision/index.ts';
import { patched } from '../core/judge/index.ts';
import {
  type Encoding,
  editDocument,
  encodeText,
  type ManifestEdit,
  readDocuments,
} from '../core/manifest/index.ts';
import { type FoundWorkload, planOf, workloadsIn } from '../core/report/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import {
  type ManifestInput,
  type Manifests,
  readGivenManifests,
  readingOf,
  sourcesFor,
} from './manifests.ts';
import { unifiedDiff } from './rendering.ts';
import type { Surroundings } from './terminal.ts';

/** The change to a workload’s pods, and what to report on standard error. */
interface Edit {
  readonly operations: readonly Operation[];
  readonly said: readonly string[];
}

/**
 * `linger inject`: prints manifests with the hooks and graces that the decision asks for. Everything is computed before the
 * first byte is printed, so that standard output stays empty after an error.
 */
export async function inject(settings: Settings<'inject'>, surroundings: Surroundings): Promise<number> {
  checkSettings(settings);
  const manifests = await readGivenManifests(settings, surroundings, settings.inPlace ? 'never' : 'to print');
  const snapshot = snapshotOf(await sourcesFor(manifests.documents, { ...settings, modeLimit: 'Enforce' }));
  return rewrite(settings, surroundings, manifests, (found) => {
    const { pod: given } = found.workload;
    const pod = settings.refresh ? patched(given, undoFor(given)) : given;
    const planned = planOf({ ...found, workload: { ...found.workload, pod } }, snapshot);
    const { decision } = planned;
    const said = [summaryOf(planned), ...decision.notes.map(({ code, text }) => `  note ${code}: ${text}`)];
    const operations = patchInForce(pod, decision);
    if (pod === given) return { operations, said };
    // Removing something and adding it back in the same form is not a change.
    return {
      operations: fastJsonPatch.compare(given as object, patched(pod, operations) as object) as Operation[],
      said,
    };
  });
}

/** `linger uninject`: removes what `inject` has added. */
export async function uninject(settings: Settings<'uninject'>, surroundings: Surroundings): Promise<number> {
  checkSettings(settings);
  const manifests = await readGivenManifests(settings, surroundings, settings.inPlace ? 'never' : 'to print');
  return rewrite(settings, surroundings, manifests, ({ workload, namespace }) => {
    const operations = undoFor(workload.pod);
    const said = operations.length === 0 ? [] : [`${workload.kind} ${namespace}/${workload.name}: reverted`];
    return { operations, said };
  });
}

function checkSettings({ inPlace, diff, filename = [], operands }: Settings<'uninject'>): void {
  const paths = [...filename, ...operands];
  if (inPlace && diff) throw usageError('--in-place and --diff are mutually exclusive');
  if (inPlace && (paths.length === 0 || paths.includes('-')))
    throw usageError('--in-place needs files; standard input cannot be changed in place');
}

interface Output {
  readonly input: ManifestInput;
  readonly text: string;
  readonly json: boolean;
}

async function rewrite(
  settings: Settings<'uninject'>,
  { print, warn, write }: Surroundings,
  manifests: Manifests,
  editOf: (found: FoundWorkload) => Edit,
): Promise<number> {
  const reading = readingOf(warn, manifests, '; passed through unchanged');
  const outputs: Output[] = [];
  for (const input of manifests.inputs) {
    const parts: string[] = [];
    let json = true;
    for (const document of readDocuments(input.text, input.name)) {
      json &&= document.json;
      /** Reported only when an edit has succeeded. */
      const announced = new Map<string, readonly string[]>();
      const edits = function* (): Generator<ManifestEdit> {
        for (const found of workloadsIn(document, input, settings, manifests, reading)) {
          const { operations, said } = editOf(found);
          announced.set(found.object.where, said);
          if (operations.length > 0) yield { object: found.object, operations, at: found.workload.pointer };
        }
      };
      const { text, left } = editDocument(document, edits());
      for (const [where, said] of announced) (left.get(where) ?? said).forEach(warn);
      reading.failed ||= left.size > 0;
      parts.push(text);
    }
    outputs.push({ input, text: parts.join(''), json });
  }
  if (settings.inPlace) for (const output of outputs) await writeBack(output);
  else if (settings.diff)
    for (const { input, text } of outputs) print(unifiedDiff(input.name, input.text, text) ?? '');
  else printAll(outputs, write);
  return reading.failed ? 1 : 0;
}

/**
 * A single file is printed as it is. Several are combined into one stream, in the way kubectl reads it. JSON is also YAML,
 * so with one YAML file among them, the whole stream is YAML.
 */
function printAll(outputs: readonly Output[], write: Surroundings['write']): void {
  const encodings = new Set(outputs.map(({ input }) => input.encoding));
  const [encoding = 'utf-8'] = encodings.size === 1 ? encodings : new Set<Encoding>();
  const separator = outputs.every(({ json }) => json) ? '' : '---\n';
  let ended = true;
  for (const [index, { text }] of outputs.entries()) {
    // A byte order mark is only allowed at the very beginning.
    const content = index === 0 || encoding !== 'utf-8' ? text : text.replace(/^\uFEFF/, '');
    const marked = index === 0 || content.startsWith('---');
    const before = (ended ? '' : '\n') + (marked ? '' : separator);
    for (const text of [before, content]) for (const bytes of encodeText(text, encoding)) write(bytes);
    ended = content === '' ? ended : content.endsWith('\n');
  }
}

/** Writes through a temporary file, so that a full disk or an interruption does not destroy the content. */
async function writeBack({ input, text }: Output): Promise<void> {
  if (text === input.text) return;
  try {
    const path = await realpath(input.path);
    const temporary = `${path}.linger-${process.pid}`;
    try {
      await writeFile(temporary, encodeText(text, input.encoding), { flag: 'wx' });
      await chmod(temporary, (await stat(path)).mode);
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  } catch (cause) {
    const problem = `cannot be written (${asError(cause).message}); it is unchanged`;
    throw new LingerError('output-unwritable', `${input.path}: ${problem}`, { cause });
  }
}
