import { extname } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { parentPort, type Transferable, Worker } from 'node:worker_threads';

export interface OffLoopLimits {
  /** The time from the call of `run` to its result, including the time in the queue; 5 s more while the thread starts. */
  readonly timeoutMs: number;
  /** The heap of the thread, in MB. */
  readonly heapMb: number;
}

/** The task was abandoned: it exceeded its time or memory, or its thread failed. */
export class OffLoopError extends Error {}

const START_MS = 5_000;

/** A thread that has been idle for this long is ended, because it takes 15 to 40 MB. */
const IDLE_MS = 10_000;

interface Job<I, O> {
  readonly input: I;
  readonly transfer: readonly Transferable[];
  readonly pieces: O[];
  readonly settle: (outcome: readonly O[] | Error) => void;
}

type Message<I> = { readonly input: I } | 'next';
type Reply<O> = { readonly piece: O } | { readonly error: string } | 'done' | 'ready';

/**
 * Work that could block the event loop, done by a worker thread: one task after another, within limits. The thread starts
 * with the first task, and ends when it has been idle for a while or a task exceeds its limits.
 */
export class OffLoop<I, O> {
  readonly #module: URL;
  readonly #limits: OffLoopLimits;
  readonly #queue: Job<I, O>[] = [];
  #worker: Worker | undefined;
  #ready = false;
  #idle: NodeJS.Timeout | undefined;

  /** @param module the module that the thread loads, which calls {@link answerOffLoop}; see {@link workerUrl} */
  constructor(module: URL, limits: OffLoopLimits) {
    this.#module = module;
    this.#limits = limits;
  }

  /**
   * @param transfer parts of the input that are transferred instead of copied
   * @throws OffLoopError, or an Error with the message of what the task has thrown
   */
  run(input: I, transfer: readonly Transferable[] = []): Promise<readonly O[]> {
    return new Promise((resolve, reject) => {
      const settle: Job<I, O>['settle'] = (outcome) => {
        clearTimeout(timer);
        this.#drop(job);
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome);
      };
      const job: Job<I, O> = { input, transfer, pieces: [], settle };
      const { timeoutMs } = this.#limits;
      const called = performance.now();
      const timer = setTimeout(() => {
        if (!this.#ready && performance.now() - called < START_MS) {
          timer.refresh();
          return;
        }
        const error = new OffLoopError(`not done within ${timeoutMs} ms`);
        // A task that has begun does not stop by itself.
        if (this.#queue[0] === job) this.#end();
        settle(error);
      }, timeoutMs);
      this.#queue.push(job);
      if (this.#queue.length === 1) this.#begin(job);
    });
  }

  #begin({ input, transfer }: Job<I, O>): void {
    clearTimeout(this.#idle);
    this.#worker ??= this.#start();
    this.#worker.postMessage({ input } satisfies Message<I>, transfer);
  }

  #drop(job: Job<I, O>): void {
    const wasFirst = this.#queue[0] === job;
    this.#queue.splice(this.#queue.indexOf(job), 1);
    const [next] = this.#queue;
    if (next === undefined) this.#idle = setTimeout(() => this.#end(), IDLE_MS).unref();
    else if (wasFirst) this.#begin(next);
  }

  #start(): Worker {
    const { heapMb } = this.#limits;
    const worker = new Worker(this.#module, {
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: heapMb / 4 },
    });
    worker.unref();
    worker.on('message', (reply: Reply<O>) => void this.#take(worker, reply));
    const failed = (why: string) => {
      if (this.#worker !== worker) return;
      this.#end();
      this.#queue[0]?.settle(new OffLoopError(why));
    };
    worker.on('error', (error) => failed(error.message));
    worker.on('exit', (code) => failed(`the thread ended with ${code}`));
    return worker;
  }

  async #take(worker: Worker, reply: Reply<O>): Promise<void> {
    const [job] = this.#queue;
    if (this.#worker !== worker) return;
    if (reply === 'ready') this.#ready = true;
    if (reply === 'ready' || job === undefined) return;
    if (reply === 'done') job.settle(job.pieces);
    else if ('error' in reply) job.settle(new Error(reply.error));
    else {
      job.pieces.push(reply.piece);
      // Otherwise, Node would deliver all pieces that have arrived in one turn of the loop.
      await turn();
      if (this.#queue[0] === job) worker.postMessage('next' satisfies Message<I>);
    }
  }

  #end(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    this.#ready = false;
    void worker?.terminate();
  }
}

/**
 * Called in the thread: does each task, and passes its result on in pieces. Each piece is copied into the main thread at
 * once, so it must be small enough not to block it.
 */
export function answerOffLoop<I, O>(work: (input: I) => Iterable<O>): void {
  let pieces: Iterator<O> | undefined;
  parentPort?.on('message', (message: Message<I>) => {
    parentPort?.postMessage(answerTo(message));
  });
  parentPort?.postMessage('ready' satisfies Reply<O>);
  const answerTo = (message: Message<I>): Reply<O> => {
    try {
      if (message !== 'next') pieces = work(message.input)[Symbol.iterator]();
      const piece = pieces?.next();
      return piece === undefined || piece.done === true ? 'done' : { piece: piece.value };
    } catch (error) {
      return { error: error instanceof Error ? error.message : String(error) };
    }
  };
}

/** The module `name` beside the calling one, both in the sources (`.ts`) and in the bundle (`.js`). */
export function workerUrl(url: string, name: string): URL {
  return new URL(`./${name}${extname(url)}`, url);
}
