import type { Answered, Asked, Progressed, Questions } from './asked.ts';

/**
 * The worker that makes decisions. If the page was opened from a file, browsers start no worker from another file or from a
 * module, so its script is part of the page.
 */
const script = document.getElementById('worker')?.textContent ?? '';
const worker = new Worker(URL.createObjectURL(new Blob([script], { type: 'text/javascript' })));

const waiting = new Map<number, (answered: Answered) => void>();
let asked = 0;

let follow: (progress: Progressed['progress']) => void = () => undefined;

/** @param onProgress called repeatedly while an answer takes a while */
export function followProgress(onProgress: typeof follow): void {
  follow = onProgress;
}

worker.addEventListener('message', ({ data }: MessageEvent<Answered | Progressed>) => {
  if ('progress' in data) return follow(data.progress);
  waiting.get(data.id)?.(data);
  waiting.delete(data.id);
});

/** @throws Error with the worker's message */
export async function askWorker<Q extends keyof Questions>(
  question: Q,
  ...given: Parameters<Questions[Q]>
): Promise<ReturnType<Questions[Q]>> {
  asked += 1;
  const id = asked;
  const answered = await new Promise<Answered>((resolve) => {
    waiting.set(id, resolve);
    worker.postMessage({ id, question, given } satisfies Asked);
  });
  if ('failed' in answered) throw new Error(answered.failed);
  return answered.answer as ReturnType<Questions[Q]>;
}
