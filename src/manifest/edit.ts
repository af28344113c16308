import { isDeepStrictEqual } from 'node:util';
import fastJsonPatch from 'fast-json-patch';
import type { Operation } from '../decision/index.ts';
import { ManifestError } from './manifest-error.ts';
import { type ManifestDocument, type ManifestObject, readDocuments } from './read.ts';
import { applySplices, eolBefore, type Splice } from './source-tree.ts';
import { blockStep, ChangeSet, objectSplices, sharedThrough } from './splices.ts';

/** A patch for one object of a file. */
export interface ManifestEdit {
  readonly object: ManifestObject;
  readonly operations: readonly Operation[];
  /** The JSON pointer of the place that the operations' paths start from, e.g. "/spec/template"; "" = the object. */
  readonly at: string;
}

export interface EditedDocument {
  /** The document's text, with its mark. */
  readonly text: string;
  /** One sentence for each object that was left alone. */
  readonly notes: readonly string[];
}

/** By the place of the object that they are for. */
type Patches = Map<string, readonly Operation[]>;

/**
 * Carries patches into the text of a document: lines are inserted and scalars replaced, everything else stays byte for
 * byte. An object whose change would reach others, through a YAML anchor, is left as it is, with a note.
 * The result is read again and compared with the patched values before it is given out.
 * @param whole text of the whole file
 * @param edits at most one for each object; taken one at a time, so that no more than one object is in memory
 * @throws ManifestError (internal) for a patch that does not apply, or whose result does not read as it should
 */
export function editDocument(
  whole: string,
  document: ManifestDocument,
  edits: Iterable<ManifestEdit>,
): EditedDocument {
  const { start, end, json } = document;
  // With a line end behind the last line, every line can be followed by another one.
  const lastEol = json || end < whole.length || whole.endsWith('\n') ? '' : eolBefore(whole, end);
  const text = whole + lastEol;
  const patches: Patches = new Map();
  const splices: Splice[] = [];
  const notes: string[] = [];
  for (const { object, operations, at } of edits) {
    const absolute = operations.map((operation) => ({ ...operation, path: at + operation.path }));
    if (absolute.length === 0) continue;
    const { where, line, source } = object;
    const shared = sharedPlace(object, absolute);
    if (shared === undefined) {
      const changes = new ChangeSet(source);
      for (const operation of absolute) changes.apply(operation);
      splices.push(...objectSplices(source, { text, changes, step: blockStep(source) }, json));
      patches.set(where, absolute);
    } else {
      notes.push(
        `${where} (line ${line}): left unchanged, because ${shared.path} comes through the YAML ${shared.means}, ` +
          'which other places share: write it out there to have it changed',
      );
    }
  }
  if (patches.size === 0) return { text: whole.slice(start, end), notes };
  const edited = applySplices(text, splices, start, end + lastEol.length);
  const result = lastEol !== '' && edited.endsWith(lastEol) ? edited.slice(0, -lastEol.length) : edited;
  verify(document, patches, result);
  return { text: result, notes };
}

function sharedPlace(object: ManifestObject, operations: readonly Operation[]) {
  for (const { path } of operations) {
    const name = sharedThrough(object.source, path);
    if (name !== undefined) return { path, means: name === '<<' ? 'merge key <<' : `anchor &${name}` };
  }
  return undefined;
}

/** No document leaves this module that does not say, object for object, what the patches ask for. */
function verify(document: ManifestDocument, patches: Patches, text: string): void {
  const [edited, ...more] = [...readDocuments(text, 'the result')].filter(({ start, end }) => end > start);
  if (edited === undefined || more.length > 0) throw wrong('the document', 'it is not one document');
  const after = edited.objects()[Symbol.iterator]();
  for (const before of document.objects()) {
    const next = after.next().value as ManifestObject | ManifestError | undefined;
    if (before instanceof ManifestError) continue;
    if (next === undefined || next instanceof ManifestError)
      throw wrong(before.where, next?.message ?? 'the object is gone', next);
    const expected = patchedObject(before, patches.get(before.where) ?? []);
    // Both go through JSON: it has no -0, and that is what kubectl sends.
    const actual: unknown = fastJsonPatch.deepClone(next.value);
    if (!isDeepStrictEqual(actual, expected)) throw wrong(before.where, 'the object reads differently');
  }
  if (after.next().done !== true) throw wrong('the document', 'it has another object');
}

function patchedObject(object: ManifestObject, operations: readonly Operation[]): unknown {
  const document: unknown = fastJsonPatch.deepClone(object.value);
  if (operations.length === 0) return document;
  try {
    // applyPatch puts the operations' own values into the document, where a later operation changes them.
    const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
    return fastJsonPatch.applyPatch(document, patch, true).newDocument;
  } catch (cause) {
    throw wrong(object.where, cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function wrong(where: string, problem: string, cause?: unknown): ManifestError {
  const message = `${where}: could not be edited safely, and nothing was written: ${problem}`;
  return new ManifestError(message, { internal: true, cause });
}
