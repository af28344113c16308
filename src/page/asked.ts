import type { AuditFinding } from '../core/judge/index.ts';
import type {
  ListQuery,
  ManifestReport,
  ManifestText,
  PolicyFields,
  WhatIf,
  WorkloadDetail,
  WorkloadList,
} from '../core/report/index.ts';
import type { DroppedFile, TakenFor } from './dropped.ts';

/** The questions that the page sends to its worker, and the answers: one function for each question. */
export interface Questions {
  /** Reads files, and keeps them until others are dropped. */
  readonly read: (files: readonly DroppedFile[]) => readonly TakenFor[];
  /** Judges the files and the pasted text, and keeps the result for the other questions. */
  readonly judge: (pasted: string, policies: string) => Overview;
  readonly list: (query: ListQuery) => WorkloadList<AuditFinding>;
  /** @returns undefined: there is no such workload any more */
  readonly detail: (address: string) => WorkloadDetail | undefined;
  /** All texts as `inject` writes them. */
  readonly patched: () => readonly ManifestText[];
  readonly whatIf: (fields: PolicyFields) => WhatIf;
  /** The part of the texts that may leave the machine in a link. */
  readonly shareable: () => { readonly text: string; readonly unread: number };
}

/** Everything except the workloads, of which there may be thousands. */
export type Overview = Omit<ManifestReport, 'rows'>;

export interface Asked {
  readonly id: number;
  readonly question: keyof Questions;
  readonly given: readonly unknown[];
}

export type Answered = { readonly id: number } & ({ readonly answer: unknown } | { readonly failed: string });

/** The worker's progress with an answer that takes a while: `files read`, 3 of 40. */
export interface Progressed {
  readonly progress: { readonly what: string; readonly done: number; readonly total: number };
}
