import { setPriority } from 'node:os';
import { answerOffLoop } from '../timing/index.ts';
import { parsePolicyFiles } from './policy-documents.ts';
import type { PolicyFile, PolicyReading } from './policy-files.ts';

/** So many documents are copied into the main thread at a time: half a millisecond, one on a slow machine. */
const DOCUMENTS = 20;

// Reviews come first, also where there is one core. On Linux the priority is the thread's own (setpriority(2)); elsewhere
// it would be the whole process's.
if (process.platform === 'linux') setPriority(19);

answerOffLoop(function* (files: readonly PolicyFile[]): Generator<PolicyReading> {
  for (const { entries, problems } of parsePolicyFiles(files)) {
    yield { entries: [], problems };
    for (let at = 0; at < entries.length; at += DOCUMENTS)
      yield { entries: entries.slice(at, at + DOCUMENTS), problems: [] };
  }
});
