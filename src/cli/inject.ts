import { chmod, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import fastJsonPatch from 'fast-json-patch';
import { asError, LingerError } from '../api/index.ts';
import { isAudit, type Operation, type Pod, patchFor, summaryOf, undoFor } from '../decision/index.ts';
import {
  type Encoding,
  editDocument,
  encodeText,
  type ManifestEdit,
  readDocuments,
} from '../manifest/index.ts';
import type { InjectSettings, UninjectSettings } from './commands.ts';
import { unifiedDiff } from './line-diff.ts';
import { type Found, type ManifestInput, planOf, readInputs, workloadsIn, worldFor } from './manifests.ts';
import type { Terminal } from './terminal.ts';

export interface EditContext extends Terminal {
  readonly stdin: NodeJS.ReadableStream;
  /** Writes bytes to standard output. */
  readonly write: (bytes: Uint8Array) => void;
}

type FoundWorkload = Extract<Found, { kind: 'workload' }>;

/** What is to be done to a workload's pods, and what is said about it on standard error. */
interface Edit {
  readonly operations: readonly Operation[];
  readonly said: readonly string[];
}

/**
 * `linger inject`: manifests in, manifests out, with hooks and grace put in where the decision says so. All is
 * worked out before the first byte is printed, so that an error leaves standard output empty.
 * @returns the exit code: 1 when a document could not be read; it is passed through
 * @throws LingerError, ManifestError
 */
export async function inject(settings: InjectSettings, context: EditContext): Promise<number> {
  checkSettings(settings);
  const inputs = await readInputs(settings, context.stdin);
  const world = await worldFor(inputs, { ...settings, modeLimit: 'Enforce' });
  return rewrite(settings, context, inputs, (found, input) => {
    const { pod: given } = found.workload;
    const pod = settings.refresh ? patched(given, undoFor(given)) : given;
    const workload = { ...found.workload, pod };
    const planned = planOf({ ...found, workload }, input, world);
    const { decision } = planned;
    const said = [summaryOf(planned), ...decision.notes.map(({ code, text }) => `  note ${code}: ${text}`)];
    const unchanged = isAudit(decision) || (decision.outcome === 'skip' && decision.withdrawn === undefined);
    const operations = unchanged ? [] : patchFor(pod as Pod, decision);
    if (pod === given) return { operations, said };
    return { operations: differences(given, patched(pod, operations)), said };
  });
}

/**
 * `linger uninject`: takes out of manifests what `inject` has put in.
 * @returns the exit code, as of {@link inject}
 * @throws LingerError, ManifestError
 */
export async function uninject(settings: UninjectSettings, context: EditContext): Promise<number> {
  checkSettings(settings);
  const inputs = await readInputs(settings, context.stdin);
  return rewrite(settings, context, inputs, ({ workload, namespace }) => {
    const operations = undoFor(workload.pod);
    const said = operations.length === 0 ? [] : [`${workload.kind} ${namespace}/${workload.name}: taken out`];
    return { operations, said };
  });
}

/** A value with a patch carried out; the value itself where there is nothing to do. */
function patched(value: unknown, operations: readonly Operation[]): unknown {
  if (operations.length === 0) return value;
  const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
  return fastJsonPatch.applyPatch(fastJsonPatch.deepClone(value), patch).newDocument as unknown;
}

/** What was taken out and put in again in the same form is no change. */
function differences(before: unknown, after: unknown): readonly Operation[] {
  return fastJsonPatch.compare(before as object, after as object) as Operation[];
}

function checkSettings({ inPlace, diff, filename = [], operands }: UninjectSettings): void {
  const paths = [...filename, ...operands];
  if (inPlace && diff)
    throw new LingerError('settings-invalid', '--in-place: expected no --diff beside it, got both');
  if (inPlace && (paths.length === 0 || paths.includes('-')))
    throw new LingerError('settings-invalid', '--in-place: expected files, got standard input');
}

interface Output {
  readonly input: ManifestInput;
  readonly text: string;
  readonly json: boolean;
}

async function rewrite(
  settings: UninjectSettings,
  context: EditContext,
  inputs: readonly ManifestInput[],
  editOf: (found: FoundWorkload, input: ManifestInput) => Edit,
): Promise<number> {
  let failed = false;
  const outputs: Output[] = [];
  for (const input of inputs) {
    const parts: string[] = [];
    let json = true;
    for (const document of readDocuments(input.text, input.name)) {
      json &&= document.json;
      const edits = function* (): Generator<ManifestEdit> {
        for (const found of workloadsIn(document, input, settings)) {
          if (found.kind === 'workload') {
            const { operations, said } = editOf(found, input);
            for (const line of said) context.warn(`${line}\n`);
            if (operations.length > 0) yield { object: found.object, operations, at: found.workload.pointer };
          } else {
            failed ||= found.kind === 'unreadable';
            const end = found.kind === 'unreadable' ? '; passed through as it is' : '';
            context.warn(`linger: ${found.message}${end}\n`);
          }
        }
      };
      const { text, notes } = editDocument(document, edits());
      for (const note of notes) context.warn(`${note}\n`);
      parts.push(text);
    }
    outputs.push({ input, text: parts.join(''), json });
  }
  if (settings.inPlace) for (const output of outputs) await writeBack(output);
  else if (settings.diff)
    for (const { input, text } of outputs) context.print(unifiedDiff(input.name, input.text, text));
  else printAll(outputs, context);
  return failed ? 1 : 0;
}

/**
 * One file comes out as it is; several become one stream, as kubectl reads it. JSON is YAML, so one YAML file among
 * them makes a YAML stream of all.
 */
function printAll(outputs: readonly Output[], { write }: EditContext): void {
  const encodings = new Set(outputs.map(({ input }) => input.encoding));
  const [encoding = 'utf-8'] = encodings.size === 1 ? encodings : new Set<Encoding>();
  const separator = outputs.every(({ json }) => json) ? '' : '---\n';
  let ended = true;
  for (const [index, { text }] of outputs.entries()) {
    // A byte order mark is one only at the very beginning.
    const content = index === 0 || encoding !== 'utf-8' ? text : text.replace(/^\uFEFF/, '');
    const marked = index === 0 || content.startsWith('---');
    if (!ended) write(encodeText('\n', encoding));
    if (!marked) write(encodeText(separator, encoding));
    write(encodeText(content, encoding));
    ended = content === '' ? ended : content.endsWith('\n');
  }
}

/** By way of a file beside it: a full disk, or an end in the middle, must not cost its content. */
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
    const problem = `cannot be written (${asError(cause).message}); it is as it was`;
    throw new LingerError('output-unwritable', `${input.path}: ${problem}`, { cause });
  }
}
