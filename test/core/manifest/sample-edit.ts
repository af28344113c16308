import type { Operation } from '../../../src/core/decision/index.ts';
import {
  editDocument,
  type ManifestDocument,
  type ManifestEdit,
  ManifestError,
  type ManifestObject,
  readDocuments,
} from '../../../src/core/manifest/index.ts';

export const PLAN = { v: 1, why: "it's measured" };
export const PLAN_TEXT = JSON.stringify(PLAN);

export const planMember = {
  op: 'add',
  path: '/metadata/annotations/linger.dev~1plan',
  value: PLAN_TEXT,
} satisfies Operation;
export const planMap = {
  op: 'add',
  path: '/metadata/annotations',
  value: { 'linger.dev/plan': 'p' },
} satisfies Operation;
export const planMetadata = {
  op: 'add',
  path: '/metadata',
  value: { annotations: { 'linger.dev/plan': 'p' } },
} satisfies Operation;
export const hook = {
  op: 'add',
  path: '/spec/containers/0/lifecycle',
  value: { preStop: { sleep: { seconds: 15 } } },
} satisfies Operation;
export const hookInLifecycle = {
  op: 'add',
  path: '/spec/containers/0/lifecycle/preStop',
  value: { exec: { command: ['sleep', '15'] } },
} satisfies Operation;
export const grace = {
  op: 'add',
  path: '/spec/terminationGracePeriodSeconds',
  value: 45,
} satisfies Operation;
export const set = (path: string, value: unknown): Operation => ({ op: 'replace', path, value });
export const remove = (path: string): Operation => ({ op: 'remove', path });

interface ReadFile {
  readonly text: string;
  readonly documents: readonly {
    readonly document: ManifestDocument;
    readonly objects: readonly ManifestObject[];
  }[];
  readonly objects: readonly ManifestObject[];
}

/** Reads a whole file, in which everything must be readable. */
export function readFile(text: string, name = 'f.yaml'): ReadFile {
  const documents = [...readDocuments(text, name)].map((document) => ({
    document,
    objects: [...document.objects()].map((found) => {
      if (found instanceof ManifestError) throw found;
      return found;
    }),
  }));
  return { text, documents, objects: documents.flatMap(({ objects }) => objects) };
}

/** Edits a whole file, document by document. */
export function editFile(
  { documents }: ReadFile,
  edits: readonly ManifestEdit[],
): { text: string; notes: readonly string[] } {
  const parts = documents.map(({ document, objects }) =>
    editDocument(
      document,
      edits.filter(({ object }) => objects.includes(object)),
    ),
  );
  return {
    text: parts.map((part) => part.text).join(''),
    notes: parts.flatMap(({ left }) => [...left.values()].flat()),
  };
}

/** Edits every object of the text in the same way. */
export function edit(
  text: string,
  operations: readonly Operation[],
  at = '',
): { text: string; notes: readonly string[] } {
  const file = readFile(text);
  return editFile(
    file,
    file.objects.map((object) => ({ object, operations, at })),
  );
}

export function hookInLifecycleOf(member: string): Operation {
  return { op: 'add', path: `/spec/containers/0/${member}`, value: { preStop: hookInLifecycle.value } };
}
