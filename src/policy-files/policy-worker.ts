import { setPriority } from 'node:os';
import { type PolicyReading, parsePolicyFiles } from '../core/manifest/index.ts';
import { answerOffLoop } from '../timing/index.ts';
import type { PolicyTask } from './policy-files.ts';

/** How many documents are copied to the main thread at a time: half a millisecond's worth, a whole one on a slow machine. */
const DOCUMENTS = 20;

answerOffLoop(function* ({ files, urgent }: PolicyTask): Generator<PolicyReading> {
  // Reviews come first, even on one core. On Linux the priority applies to the thread (setpriority(2)); elsewhere
  // it would apply to the whole process.
  if (!urgent && process.platform === 'linux') setPriority(10);
  for (const { entries, problems } of parsePolicyFiles(files)) {
    yield { entries: [], problems };
    for (let at = 0; at < entries.length; at += DOCUMENTS)
      yield { entries: entries.slice(at, at + DOCUMENTS), problems: [] };
  }
});
