import type { Answered, Asked, Progressed, Questions } from './asked.ts';

/**
 * The worker that decides. From a file, a browser starts neither a worker of another file nor one of modules: its script
 * stands in the page.
 */
const script = document.getElementById('worker')?.textContent ?? '';
const worker = new Worker(URL.createObjectURL(new Blob([script], { type: 'text/javascript' })));

const waiting = new Map<number, (answered: Answered) => void>();
let asked = 0;

let follow: (progress: Progressed['progress']) => void = () => undefined;

/** @param onProgress called while an answer takes a while */
export function followProgress(onProgress: typeof follow): void {
  follow = onProgress;
}

worker.addEventListener('message', ({ data }: MessageEvent<Answered | Progressed>) => {
  if ('progress' in data) return follow(data.progress);
  waiting.get(data.id)?.(data);
  waiting.delete(data.id);
});

/** @throws Error with what the worker says */
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
