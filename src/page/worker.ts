/// <reference lib="webworker" />
import { asError } from '../core/api/index.ts';
import { newAnswers } from './answers.ts';
import type { Answered, Asked, Progressed } from './asked.ts';

/** Milliseconds. Progress is not reported for anything faster. */
const NOTICED_MS = 250;
let lastSaid = 0;

const ANSWERS = newAnswers((what, done, total) => {
  if (performance.now() - lastSaid < NOTICED_MS) return;
  lastSaid = performance.now();
  postMessage({ progress: { what, done, total } } satisfies Progressed);
});

/** Questions are answered one after another, so that each sees the results of those before it. */
let last: Promise<unknown> = Promise.resolve();

addEventListener('message', ({ data: { id, question, given } }: MessageEvent<Asked>) => {
  const answer = ANSWERS[question] as (...given: readonly unknown[]) => unknown;
  const reply = (answered: Answered) => postMessage(answered);
  last = last.then(async () => {
    lastSaid = performance.now();
    try {
      reply({ id, answer: await answer(...given) });
    } catch (thrown) {
      reply({ id, failed: asError(thrown).message });
    }
  });
});
