import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import type { Note } from '../decision/index.ts';

/**
 * Finer than the API server's own apiserver_admission_webhook_admission_duration_seconds, whose first bucket ends
 * at 5 ms: an answer of ours takes a tenth of that.
 */
const ADMISSION_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2,
];
const WAIT_SECONDS = [1, 5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 180, 300];

/** Few enough that nearly all are gone before the collector would move them among what lives long: 33 come between two
 * scavenges of 2 MB. */
const MOST_PENDING = 32;

/** A decision, as it is counted. */
export interface Decided {
  readonly outcome: 'inject' | 'audit' | 'skip';
  /** Why it was skipped; empty otherwise. */
  readonly reason: string;
  /** Seconds, where a wait was planned. */
  readonly wait?: number;
  readonly notes: readonly Note[];
}

interface Answer {
  readonly status: number;
  /** From the last byte of a review to its answer handed to the socket. */
  readonly seconds?: number;
}

/**
 * The metrics of the admission path. They are brought up to date many answers at a time, and before every scrape:
 * between two answers, in caches that have just seen TLS and JSON, the same calls take ten times as long, a tenth of
 * the throughput together.
 */
export class AdmissionMetrics {
  readonly #metrics: ReturnType<typeof admissionSeries>;
  #answers: Answer[] = [];
  #decisions: Decided[] = [];

  constructor(registry: Registry) {
    this.#metrics = admissionSeries([registry], () => this.#flush());
  }

  answered(status: number, seconds?: number): void {
    this.#answers.push(seconds === undefined ? { status } : { status, seconds });
    if (this.#answers.length >= MOST_PENDING) this.#flush();
  }

  decided(decided: Decided): void {
    this.#decisions.push(decided);
    if (this.#decisions.length >= MOST_PENDING) this.#flush();
  }

  #flush(): void {
    const { responses, duration, decisions, plannedWait, notes, invalidAnnotations } = this.#metrics;
    for (const { status, seconds } of this.#answers) {
      responses.inc({ code: status });
      if (seconds !== undefined) duration.observe(seconds);
    }
    for (const { outcome, reason, wait, notes: remarks } of this.#decisions) {
      decisions.inc({ outcome, reason });
      if (wait !== undefined) plannedWait.observe({ outcome }, wait);
      for (const { code, subject } of remarks) {
        notes.inc({ code });
        if (code === 'InvalidAnnotation') invalidAnnotations.inc({ annotation: subject ?? '' });
      }
    }
    this.#answers = [];
    this.#decisions = [];
  }
}

/** @param collect called before any of them is read */
function admissionSeries(registers: Registry[], collect: () => void) {
  const common = { registers, collect };
  return {
    decisions: new Counter({
      name: 'linger_decisions_total',
      help: 'Pods decided on, dry runs left out. outcome: inject, audit or skip; reason: why skipped, else empty.',
      labelNames: ['outcome', 'reason'] as const,
      ...common,
    }),
    notes: new Counter({
      name: 'linger_notes_total',
      help: 'Remarks on decisions, by code.',
      labelNames: ['code'] as const,
      ...common,
    }),
    invalidAnnotations: new Counter({
      name: 'linger_invalid_annotations_total',
      help: 'linger.dev annotations that did not parse and were ignored.',
      labelNames: ['annotation'] as const,
      ...common,
    }),
    plannedWait: new Histogram({
      name: 'linger_planned_wait_seconds',
      help: 'Waits planned for pods. outcome: inject or audit.',
      labelNames: ['outcome'] as const,
      buckets: WAIT_SECONDS,
      ...common,
    }),
    duration: new Histogram({
      name: 'linger_admission_duration_seconds',
      help: 'From a review’s last byte read to its answer handed to the socket.',
      buckets: ADMISSION_SECONDS,
      ...common,
    }),
    responses: new Counter({
      name: 'linger_http_responses_total',
      help: 'Answers of the webhook server by HTTP status.',
      labelNames: ['code'] as const,
      ...common,
    }),
  };
}
