import { isDeepStrictEqual } from 'node:util';
import fastJsonPatch from 'fast-json-patch';
import type { Operation } from '../core/patch/operation.ts';
import { ChangeSet, sharedThrough } from './changes.ts';
import { ManifestError } from './manifest-error.ts';
import { type ManifestFile, type ManifestObject, readManifests } from './read.ts';
import { blockStep, objectSplices } from './splice-object.ts';
import { applySplices, eolBefore } from './text-lines.ts';

/** A patch for one object of a file. */
export interface ManifestEdit {
  readonly object: ManifestObject;
  readonly operations: readonly Operation[];
  /** The JSON pointer of the place that the operations' paths start from, e.g. "/spec/template"; "" = the object. */
  readonly at: string;
}

export interface EditedManifests {
  readonly text: string;
  /** One sentence for each object that was left alone. */
  readonly notes: readonly string[];
}

/**
 * Carries patches into the text of a file: lines are inserted and scalars replaced, everything else stays byte for
 * byte. An object whose change would reach others, through a YAML anchor, is left as it is, with a note.
 * The result is read again and compared with the patched values before it is given out.
 * @throws ManifestError (internal) for a patch that does not apply, or whose result does not read as it should
 */
export function editManifests(file: ManifestFile, edits: readonly ManifestEdit[]): EditedManifests {
  const { patches, notes } = editable(edits);
  if (patches.size === 0) return { text: file.text, notes };
  const text = spliced(file, patches);
  verify(file, patches, text);
  return { text, notes };
}

type Patches = ReadonlyMap<ManifestObject, readonly Operation[]>;

function editable(edits: readonly ManifestEdit[]): { patches: Patches; notes: string[] } {
  const patches = new Map<ManifestObject, Operation[]>();
  for (const { object, operations, at } of edits) {
    const absolute = operations.map((operation) => ({ ...operation, path: at + operation.path }));
    if (absolute.length > 0) patches.set(object, [...(patches.get(object) ?? []), ...absolute]);
  }
  const notes: string[] = [];
  for (const [object, operations] of patches) {
    const shared = sharedPlace(object, operations);
    if (shared === undefined) continue;
    patches.delete(object);
    const { where, line } = object;
    notes.push(
      `${where} (line ${line}): left unchanged, because ${shared.path} comes through the YAML ${shared.means}, ` +
        'which other places share: write it out there to have it changed',
    );
  }
  return { patches, notes };
}

function sharedPlace(object: ManifestObject, operations: readonly Operation[]) {
  for (const { path } of operations) {
    const name = sharedThrough(object.source, path);
    if (name !== undefined) return { path, means: name === '<<' ? 'merge key <<' : `anchor &${name}` };
  }
  return undefined;
}

function spliced(file: ManifestFile, patches: Patches): string {
  // With a line end behind the last line, every line can be followed by another one.
  const lastEol =
    file.format === 'json' || file.text.endsWith('\n') ? '' : eolBefore(file.text, file.text.length);
  const text = file.text + lastEol;
  const splices = [...patches].flatMap(([{ source, document }, operations]) => {
    const changes = new ChangeSet(source);
    for (const operation of operations) changes.apply(operation);
    return objectSplices(source, { text, changes, step: blockStep(document) }, file.format === 'json');
  });
  const edited = applySplices(text, splices);
  return lastEol !== '' && edited.endsWith(lastEol) ? edited.slice(0, -lastEol.length) : edited;
}

/** No manifest leaves this module that does not say, object for object, what the patches ask for. */
function verify(file: ManifestFile, patches: Patches, text: string): void {
  const edited = readBack(text, file.name);
  if (edited.objects.length !== file.objects.length)
    throw wrong(file.name, 'it has another number of objects');
  for (const [index, object] of file.objects.entries()) {
    const expected = patched(object, patches.get(object) ?? []);
    // Both go through JSON: it has no -0, and that is what kubectl sends.
    const actual: unknown = fastJsonPatch.deepClone(edited.objects[index]?.value);
    if (!isDeepStrictEqual(actual, expected)) throw wrong(object.where, 'the object reads differently');
  }
}

function readBack(text: string, name: string): ManifestFile {
  try {
    return readManifests(text, name);
  } catch (cause) {
    throw wrong(name, cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function patched(object: ManifestObject, operations: readonly Operation[]): unknown {
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
