import { answerOffLoop } from '../timing/index.ts';
import { parsePolicyFiles } from './policy-documents.ts';
import type { PolicyFile, PolicyReading } from './policy-files.ts';

/** So many documents are copied into the main thread at a time: a millisecond or two. */
const DOCUMENTS = 200;

answerOffLoop(function* (files: readonly PolicyFile[]): Generator<PolicyReading> {
  for (const { entries, problems } of parsePolicyFiles(files)) {
    yield { entries: [], problems };
    for (let at = 0; at < entries.length; at += DOCUMENTS)
      yield { entries: entries.slice(at, at + DOCUMENTS), problems: [] };
  }
});
