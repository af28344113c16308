/** What a process listens for; `process` in production. */
export interface SignalSource {
  on(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
  off(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
}

export interface Shutdown {
  /** Resolves at the first SIGTERM: finish what is under way, then end. */
  readonly requested: Promise<void>;
  /** Resolves at SIGINT or a second signal with the exit code: end at once. */
  readonly forced: Promise<number>;
  /** Stops listening. */
  readonly release: () => void;
}

/** By the shell's convention a process ended by signal N exits with 128 + N. */
const EXIT_CODE = { SIGINT: 130, SIGTERM: 143 } as const;

/** SIGTERM asks to drain; SIGINT (somebody at a terminal) and any second signal end the process at once. */
export function listenForShutdown(source: SignalSource): Shutdown {
  const requested = Promise.withResolvers<void>();
  const forced = Promise.withResolvers<number>();
  let terminating = false;
  const onTerminate = () => {
    if (terminating) forced.resolve(EXIT_CODE.SIGTERM);
    terminating = true;
    requested.resolve();
  };
  const onInterrupt = () => forced.resolve(EXIT_CODE.SIGINT);
  source.on('SIGTERM', onTerminate);
  source.on('SIGINT', onInterrupt);
  const release = () => {
    source.off('SIGTERM', onTerminate);
    source.off('SIGINT', onInterrupt);
  };
  return { requested: requested.promise, forced: forced.promise, release };
}
