import supertest from 'supertest';
import type { ReportResult } from '../../../src/core/catalog/report-results.ts';
import { ConsumerReports } from '../../../src/measure/reports.ts';
import { reportsApp } from '../../../src/serve/reports/app.ts';
import type { Verdict } from '../../../src/serve/reports/verdicts.ts';
import { createLogger } from '../../../src/telemetry/logs.ts';

/** Tokens that the judge of these tests knows. */
export const VERDICTS: Readonly<Record<string, Verdict>> = {
  good: 'Allowed',
  strange: 'TokenRefused',
  'of-another-gateway': 'NotAllowed',
  'while-the-server-is-away': 'NoVerdict',
};

export interface Posted {
  readonly consumer?: string;
  readonly token?: string | undefined;
  readonly body?: string | object;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: { readonly reason?: string; readonly message?: string; readonly cursor?: string };
}

/** The desk of a replica that leads, with the consumers `edge` (reports) and `mesh` (probe), and a clock to be set. */
export class Desk {
  readonly lags: number[] = [];
  readonly counted: [consumer: string, result: ReportResult][] = [];
  readonly logs: string[] = [];
  now = 1_000_000;
  leading = true;
  readonly consumers = new Map([
    ['edge', 'reports'],
    ['inner', 'reports'],
    ['mesh', 'probe'],
  ]);
  reports = this.#newLead();
  readonly app: ReturnType<typeof reportsApp>;

  /** @param heldBackMs how long refusals that could be repeated at once are held back */
  constructor(heldBackMs = 0) {
    this.app = this.#open(heldBackMs);
  }

  readonly #open = (heldBackMs: number) =>
    reportsApp({
      taker: () => (this.leading ? this.reports : undefined),
      measureOf: (name) => this.consumers.get(name),
      judge: { verdict: async (token) => VERDICTS[token] ?? 'TokenRefused' },
      count: (consumer, result) => void this.counted.push([consumer, result]),
      clock: () => this.now,
      logger: createLogger('trace', { write: (line) => void this.logs.push(line) }),
      heldBackMs,
      perToken: { burst: 200, perSecond: 100 },
    });

  /** Another replica leads from now on: it knows nothing of before. */
  changeLeader(): void {
    this.reports = this.#newLead();
  }

  /** The consumers are those of {@link consumers} from now on. */
  keep(): void {
    this.reports.keep(
      new Set([...this.consumers].flatMap(([name, kind]) => (kind === 'reports' ? [name] : []))),
    );
  }

  async post({ consumer = 'edge', token = 'good', body = {}, headers = {} }: Posted): Promise<Answer> {
    const request = supertest(this.app).post(`/v1/consumers/${consumer}/reports`).set(headers);
    if (token !== '') request.set('Authorization', `Bearer ${token}`);
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return (await request.type('application/json').send(text)) as unknown as Answer;
  }

  /** A report of a gateway, and its clock’s own idea of what time it is, which nobody asks for. */
  report(instance: string, cursor?: string, syncSeconds?: number): Promise<Answer> {
    const timed = syncSeconds === undefined ? {} : { syncSeconds };
    return this.post({ body: { instance, ...(cursor === undefined ? {} : { cursor }), ...timed } });
  }

  #newLead(): ConsumerReports {
    const onLag = (_consumer: string, lag: number) => void this.lags.push(lag);
    const reports = new ConsumerReports({ clock: () => this.now, onLag });
    reports.keep(new Set(['edge', 'inner']));
    return reports;
  }
}
