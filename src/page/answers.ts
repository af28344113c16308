import {
  JudgedManifests,
  listOf,
  type ManifestText,
  type Progress,
  shareable,
} from '../core/report/index.ts';
import type { Questions } from './asked.ts';
import { readDropped } from './dropped.ts';

/** The name of the pasted text, for places and messages. */
const PASTED = 'manifest.yaml';

/** The functions with which the page’s worker answers. */
export type Answering = {
  readonly [Q in keyof Questions]: (
    ...given: Parameters<Questions[Q]>
  ) => ReturnType<Questions[Q]> | Promise<ReturnType<Questions[Q]>>;
};

/** Answers about the files and the pasted text that were read last. */
export function newAnswers(progress?: Progress): Answering {
  let files: readonly ManifestText[] = [];
  let texts: readonly ManifestText[] = [];
  let judged = new JudgedManifests([], '');
  return {
    read: async (dropped) => {
      const read = await readDropped(dropped);
      files = read.texts;
      return read.taken;
    },
    judge: (pasted, policies) => {
      texts = pasted.trim() === '' ? files : [...files, { name: PASTED, text: pasted }];
      judged = new JudgedManifests(texts, policies, progress);
      const { rows: _, ...overview } = judged.report;
      return overview;
    },
    list: (query) => listOf(judged.report.rows, query),
    detail: (address) => judged.detail(address),
    patched: () => judged.patched(),
    whatIf: (fields) => judged.whatIf(fields),
    shareable: () => shareable(texts),
  };
}
