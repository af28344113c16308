import supertest from 'supertest';
import type { SigningKeys } from '../../../src/certs/index.ts';
import type { ReportResult } from '../../../src/core/api/index.ts';
import type { StageVersions } from '../../../src/core/lag/index.ts';
import { ConsumerReports } from '../../../src/measurement/index.ts';
import { createLogger } from '../../../src/telemetry/index.ts';

import type { AccessVerdict, Judge } from '../../../src/webhook/report-access.ts';
import { reportsApp } from '../../../src/webhook/report-endpoint.ts';

/** Tokens that the judge of these tests knows; any other is the token of the pod of that name. */
export const VERDICTS: Readonly<Record<string, AccessVerdict>> = {
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
  readonly judged: string[] = [];
  readonly logs: string[] = [];
  readonly keys = (): SigningKeys => [Buffer.alloc(32, 1)];
  now = 1_000_000;
  /** No two reports come at the same instant. */
  readonly #clock = () => {
    this.now += 0.01;
    return this.now;
  };
  leading = true;
  versions: StageVersions = { EndpointSlice: '100', Endpoints: '90' };
  readonly consumers = new Map([
    ['edge', 'reports'],
    ['inner', 'reports'],
    ['mesh', 'probe'],
  ]);
  reports = this.#newLead();
  readonly app: ReturnType<typeof reportsApp>;

  /** @param heldBackMs how long refusals that could be repeated at once are held back */
  constructor(heldBackMs = 0, judge: Judge = this.#judge()) {
    this.app = this.#open(heldBackMs, judge);
  }

  #judge(): Judge {
    return {
      verdict: async (token) => {
        this.judged.push(token);
        return VERDICTS[token] ?? { key: `uid-of-${token}`, name: token };
      },
    };
  }

  readonly #open = (heldBackMs: number, judge: Judge) =>
    reportsApp({
      taker: () => (this.leading ? this.reports : undefined),
      measureOf: (name) => this.consumers.get(name),
      judge,
      count: (consumer, result) => void this.counted.push([consumer, result]),
      clock: this.#clock,
      logger: createLogger('trace', { write: (line) => void this.logs.push(line) }),
      heldBackMs,
    });

  /** Another replica leads from now on: it knows nothing of before but the key. */
  changeLeader(): void {
    this.now += 5_000_000;
    this.reports = this.#newLead();
  }

  /** The consumers are those of {@link consumers} from now on. */
  keep(): void {
    this.reports.keep(
      new Set([...this.consumers].flatMap(([name, kind]) => (kind === 'reports' ? [name] : []))),
    );
  }

  async post({ consumer = 'edge', token = 'gw-1', body = {}, headers = {} }: Posted): Promise<Answer> {
    const request = supertest(this.app).post(`/v1/consumers/${consumer}/reports`).set(headers);
    if (token !== '') request.set('Authorization', `Bearer ${token}`);
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return (await request.type('application/json').send(text)) as unknown as Answer;
  }

  /** A report of a gateway, by the token of its pod. */
  report(pod: string, cursor?: string): Promise<Answer> {
    return this.post({ token: pod, body: cursor === undefined ? {} : { cursor } });
  }

  #newLead(): ConsumerReports {
    const onLag = (_consumer: string, lag: number) => void this.lags.push(lag);
    const { keys } = this;
    const reports = new ConsumerReports({ keys, newest: () => this.versions, clock: this.#clock, onLag });
    reports.keep(new Set(['edge', 'inner']));
    return reports;
  }
}
