import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';
import { JudgedManifests, keyOf, type ManifestText, matchingIn, shareable } from '../core/report/index.ts';
import type { Questions } from './asked.ts';
import { readDropped } from './dropped.ts';

/** The name of the pasted text in places and messages. */
const PASTED = 'manifest.yaml';

/** What the page’s worker answers with. */
export type Answering = {
  readonly [Q in keyof Questions]: (
    ...given: Parameters<Questions[Q]>
  ) => ReturnType<Questions[Q]> | Promise<ReturnType<Questions[Q]>>;
};

/** The answers about what was read and pasted last. */
export function newAnswers(): Answering {
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
      judged = new JudgedManifests(texts, policies);
      const { findings: _, fates: __, ...overview } = judged.report;
      return overview;
    },
    list: (query) => {
      const { findings, matching } = matchingIn(judged.report.findings, query);
      const fates = judged.report.fates;
      const shown = findings.map(keyOf).map((key) => [key, fates[key] ?? 'unknown'] as const);
      return { findings, matching, fates: Object.fromEntries(shown) };
    },
    detail: (key) => {
      const found = judged.detail(key);
      if (found === undefined) return undefined;
      const { patch } = found;
      return { ...found, patch: patch && { after: patch.after, diff: diffOf(patch.before, patch.after) } };
    },
    patched: () => judged.patched(),
    whatIf: (fields) => judged.whatIf(fields),
    shareable: () => shareable(texts),
  };
}

function diffOf(before: string, after: string): string {
  return createTwoFilesPatch('', '', before, after, '', '', { context: 3, headerOptions: FILE_HEADERS_ONLY });
}
