import type { Logger } from 'pino';

type Members = Readonly<Record<string, unknown>> & { readonly reason?: string };

/**
 * Logs the trouble of a subject (a kind of objects, a consumer) once for each message and `reason`, and once more when it is
 * over, so that an outage takes two lines instead of a line a second.
 */
export class LogOnce {
  readonly #logger: Logger;
  readonly #troubles = new Map<string, string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  info(subject: string, members: Members, message: string): void {
    this.#log('info', subject, members, message);
  }

  warn(subject: string, members: Members, message: string): void {
    this.#log('warn', subject, members, message);
  }

  error(subject: string, members: Members, message: string): void {
    this.#log('error', subject, members, message);
  }

  /** Records that the subject's trouble is over, if it had any. */
  over(subject: string, members: Members, message: string): void {
    if (this.#troubles.delete(subject)) this.#logger.info(members, message);
  }

  #log(level: 'info' | 'warn' | 'error', subject: string, members: Members, message: string): void {
    const trouble = `${members.reason ?? ''} ${message}`;
    if (this.#troubles.get(subject) === trouble) return;
    this.#troubles.set(subject, trouble);
    this.#logger[level](members, message);
  }
}
