/// <reference lib="webworker" />
import { asError } from '../core/api/index.ts';
import { newAnswers } from './answers.ts';
import type { Answered, Asked } from './asked.ts';

const ANSWERS = newAnswers();

/** One after the other: each sees what those before it have left. */
let last: Promise<unknown> = Promise.resolve();

addEventListener('message', ({ data: { id, question, given } }: MessageEvent<Asked>) => {
  const answer = ANSWERS[question] as (...given: readonly unknown[]) => unknown;
  const reply = (answered: Answered) => postMessage(answered);
  last = last.then(async () => {
    try {
      reply({ id, answer: await answer(...given) });
    } catch (thrown) {
      reply({ id, failed: asError(thrown).message });
    }
  });
});
