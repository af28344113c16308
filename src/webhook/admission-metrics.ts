import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import { ANNOTATION, type OwnStatus } from '../core/api/index.ts';
import { NOTES, type Note } from '../core/decision/index.ts';

/**
 * Finer than the API server's own apiserver_admission_webhook_admission_duration_seconds, whose first bucket ends at 5 ms:
 * Linger answers in a tenth of that.
 */
const ADMISSION_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2,
];
const WAIT_SECONDS = [1, 5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 180, 300];

/**
 * Two entries for each of 32 reviews. So few, that nearly all are processed before the garbage collector would promote them
 * (33 reviews come between two scavenges of 2 MB).
 */
const MOST_PENDING = 64;

/** A decision, as counted. */
interface Decided {
  readonly outcome: 'inject' | 'audit' | 'skip';
  /** Why the pod was skipped; empty if it was not. */
  readonly reason: string;
  /** Seconds, if a wait was planned. */
  readonly wait?: number | undefined;
  readonly notes: readonly Note[];
}

type Series = ReturnType<typeof admissionSeries>;

/**
 * The metrics of the admission path. They are updated for batches of answers, and before every scrape. If they were updated
 * after each answer, with processor caches full of TLS and JSON, the same calls would take ten times as long and cost a
 * tenth of the throughput.
 */
export class AdmissionMetrics {
  readonly #series: Series;
  readonly #recent: RecentDecisions;
  #pending: ((series: Series) => void)[] = [];

  /** @param clock monotonic milliseconds */
  constructor(registry: Registry, clock = () => performance.now()) {
    this.#recent = new RecentDecisions(clock);
    this.#series = admissionSeries([registry], () => this.#flush());
    // Prometheus sees no increase in a series that begins with 1, so series that alerts use begin with 0.
    const { decisions, notes, invalidAnnotations, responses } = this.#series;
    decisions.inc({ outcome: 'skip', reason: 'InternalError' }, 0);
    responses.inc({ code: 500 }, 0);
    for (const code of Object.keys(NOTES)) notes.inc({ code }, 0);
    for (const annotation of Object.values(ANNOTATION)) invalidAnnotations.inc({ annotation }, 0);
  }

  /** @param seconds from receiving the last byte of a review to handing its answer to the socket */
  answered(status: number, seconds?: number): void {
    this.#later(({ responses, duration }) => {
      responses.inc({ code: status });
      if (seconds !== undefined) duration.observe(seconds);
    });
  }

  decided({ outcome, reason, wait, notes: remarks }: Decided): void {
    const step = this.#recent.now();
    this.#later(({ decisions, plannedWait, notes, invalidAnnotations }) => {
      decisions.inc({ outcome, reason });
      this.#recent.add(step, outcome, reason);
      if (wait !== undefined) plannedWait.observe({ outcome }, wait);
      for (const { code, subject } of remarks) {
        notes.inc({ code });
        if (code === 'InvalidAnnotation') invalidAnnotations.inc({ annotation: subject ?? '' });
      }
    });
  }

  /** The decisions of the last hour, to within five minutes. */
  recent(): OwnStatus['decisions'] {
    this.#flush();
    return this.#recent.totals();
  }

  #later(update: (series: Series) => void): void {
    this.#pending.push(update);
    if (this.#pending.length >= MOST_PENDING) this.#flush();
  }

  #flush(): void {
    for (const update of this.#pending) update(this.#series);
    this.#pending = [];
  }
}

const RECENT_STEP_MS = 5 * 60_000;
const RECENT_STEPS = 12;
const HOUR_MS = RECENT_STEP_MS * RECENT_STEPS;

/** Counts of the last hour, because a command that looks only once cannot compute the rate of a counter. */
class RecentDecisions {
  readonly #clock: () => number;
  readonly #startedAt: number;
  /** By the number of the step; at most twelve steps. */
  readonly #steps = new Map<number, Map<string, number>>();

  constructor(clock: () => number) {
    this.#clock = clock;
    this.#startedAt = clock();
  }

  /** @param step the one in which the decision was made */
  add(step: number, outcome: string, reason: string): void {
    if (!this.#steps.has(step)) this.#forget();
    const counts = this.#steps.get(step) ?? new Map<string, number>();
    this.#steps.set(step, counts);
    const key = `${outcome} ${reason}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }

  totals(): OwnStatus['decisions'] {
    this.#forget();
    const outcomes: Record<string, number> = {};
    const skips: Record<string, number> = {};
    for (const counts of this.#steps.values())
      for (const [key, count] of counts) {
        const [outcome = '', reason = ''] = key.split(' ');
        outcomes[outcome] = (outcomes[outcome] ?? 0) + count;
        if (outcome === 'skip') skips[reason] = (skips[reason] ?? 0) + count;
      }
    const seconds = Math.min(HOUR_MS, this.#clock() - this.#startedAt) / 1000;
    return { outcomes, skips, seconds };
  }

  /** Drops steps older than an hour. */
  #forget(): void {
    const oldest = this.now() - RECENT_STEPS;
    for (const step of this.#steps.keys()) if (step <= oldest) this.#steps.delete(step);
  }

  /** The current step. */
  now(): number {
    return Math.floor(this.#clock() / RECENT_STEP_MS);
  }
}

/** @param collect called before any of them is read */
function admissionSeries(registers: Registry[], collect: () => void) {
  const counter = <L extends string>(name: string, label: readonly L[], help: string, reference: string) =>
    new Counter<L>({ name, help, reference, labelNames: [...label], registers, collect });
  const histogram = <L extends string>(
    name: string,
    buckets: number[],
    label: readonly L[],
    help: string,
    reference?: string,
  ) => new Histogram<L>({ name, help, reference, labelNames: [...label], buckets, registers, collect });
  return {
    decisions: counter(
      'linger_decisions_total',
      ['outcome', 'reason'],
      'Pods decided on, dry runs left out. outcome: inject, audit or skip; reason: why skipped, else empty.',
      'Pods decided on, without dry runs. `outcome`: `inject`, `audit`, `skip`. `reason`: [why skipped](reasons.md#skip-reasons), otherwise empty.',
    ),
    notes: counter(
      'linger_notes_total',
      ['code'],
      'Notes on decisions, by code.',
      'Notes on decisions, by [note](reasons.md#notes).',
    ),
    invalidAnnotations: counter(
      'linger_invalid_annotations_total',
      ['annotation'],
      'linger.dev annotations that did not parse and were ignored.',
      '`linger.dev` annotations that did not parse and were ignored.',
    ),
    plannedWait: histogram(
      'linger_planned_wait_seconds',
      WAIT_SECONDS,
      ['outcome'],
      'Waits planned for pods. outcome: inject or audit.',
      'Waits planned for pods: `inject`, or `audit`.',
    ),
    duration: histogram(
      'linger_admission_duration_seconds',
      ADMISSION_SECONDS,
      [],
      'From a review’s last byte read to its answer handed to the socket.',
    ),
    responses: counter(
      'linger_http_responses_total',
      ['code'],
      'Answers of the webhook server by HTTP status.',
      "Answers of the webhook's port, by HTTP status; those to reports count in `linger_reports_total`.",
    ),
  };
}
