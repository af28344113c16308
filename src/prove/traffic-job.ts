import { asFailure, ask, type KubeConnection, LineReader, newAgent } from '../cluster/index.ts';
import { pause } from '../timing/index.ts';
import { LeasedJob, type LeasedJobOptions } from './leased-job.ts';
import { CALL_MS } from './provable-workload.ts';
import { readLine, type TrafficPlan, type TrafficReport, type Way } from './traffic-plan.ts';

const POLL_MS = 500;

interface TrafficJobOptions extends Omit<LeasedJobOptions, 'args' | 'account'> {
  /** Its rate is that of all pods together. */
  readonly plan: TrafficPlan;
}

/** Sends traffic from pods of its own, which end soon after this process does, whatever ends the process. */
export class TrafficJob {
  readonly #connection: KubeConnection;
  readonly #namespace: string;
  readonly #job: LeasedJob;
  readonly ways: readonly Way[];
  /** How many pods send. */
  readonly senders: number;

  constructor(connection: KubeConnection, options: TrafficJobOptions, signal: AbortSignal) {
    const { plan, ...job } = options;
    this.#connection = connection;
    this.#namespace = job.namespace;
    this.ways = plan.ways;
    this.senders = job.pods;
    const each = { ...plan, rate: plan.rate / job.pods };
    const args = ['prove-traffic', '--plan', JSON.stringify(each)];
    this.#job = new LeasedJob(connection, { ...job, args }, signal);
  }

  /**
   * @param report called with the reports of each sender, and its number
   * @param lost called if the senders can no longer be kept or heard
   * @returns the names of the nodes on which they run, once all of them are running
   * @throws LingerError, KubeFailure
   */
  async start(
    report: (sender: number, each: TrafficReport) => void,
    lost: (why: string) => void,
  ): Promise<readonly string[]> {
    const started = await this.#job.start(lost);
    for (const [index, { name }] of started.entries())
      void this.#follow(name, (each) => report(index, each), lost);
    return [...new Set(started.map(({ node }) => node))];
  }

  /** Removes the Job and its pods, and waits until they are gone. Also works after the command was interrupted. */
  remove(): Promise<boolean> {
    return this.#job.remove();
  }

  /** A log that breaks off is read again from its beginning; repeated reports are recognised by their numbers. */
  async #follow(
    pod: string,
    report: (each: TrafficReport) => void,
    lost: (why: string) => void,
  ): Promise<void> {
    const signal = this.#job.stopping;
    const path = `/api/v1/namespaces/${this.#namespace}/pods/${pod}/log?container=prove&follow=true`;
    let next = 0;
    let failed = 0;
    while (!signal.aborted) {
      const agent = newAgent(this.#connection, 1, signal);
      const before = next;
      try {
        const request = { path, accept: '*/*', agent, signal, answerMs: CALL_MS };
        const response = await ask(this.#connection, request);
        const lines = new LineReader();
        for await (const chunk of response)
          for (const line of lines.push(chunk as Buffer)) {
            const each = readLine(line.toString());
            if (each === undefined || each.sequence < next) continue;
            next = each.sequence + 1;
            report(each);
          }
      } catch (thrown) {
        if (signal.aborted) return;
        failed = next > before ? 1 : failed + 1;
        if (failed > 5) return lost(`the log of pod ${pod} cannot be read: ${asFailure(thrown).message}`);
      } finally {
        agent.destroy();
      }
      await pause(POLL_MS, signal);
    }
  }
}
