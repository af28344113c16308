import type { ClusterSnapshot } from '../../../src/core/decision/index.ts';
import {
  type Audited,
  type AuditSubject,
  auditWorkload,
  type RelatedObjects,
  relatedTo,
} from '../../../src/core/judge/index.ts';
import { partsIn, survey, withEmbedded } from '../../../src/core/report/index.ts';

/** The reasons of all findings that a file of tests has made. */
export const reported = new Set<string>();

/** As an audit does, and remembers what is {@link reported}. */
export const judged: typeof auditWorkload = (...given) => {
  const audited = auditWorkload(...given);
  for (const { reason } of audited.findings) reported.add(reason);
  return audited;
};

export interface JudgedText {
  readonly subjects: readonly AuditSubject[];
  readonly objects: readonly unknown[];
  readonly related: RelatedObjects;
  readonly audited: readonly Audited[];
}

/** What an audit of this text says. @param webhooks as {@link relatedTo} takes them; undefined: Linger's is there */
export function judgedText(text: string, snapshot: ClusterSnapshot, webhooks?: []): JudgedText {
  const input = { name: 'x.yaml', text };
  const selection = { namespace: 'default', selector: undefined };
  const surveyed = survey([input], 'default');
  const reading = { report: () => undefined, failed: false };
  const subjects: AuditSubject[] = [];
  const objects: unknown[] = [];
  for (const part of partsIn(input, selection, surveyed, reading)) {
    objects.push(...part.objects.flatMap(withEmbedded).map(({ value }) => value));
    for (const { object, ...placed } of part.workloads) subjects.push({ ...placed, object: object.value });
  }
  const placed = objects.map((value) => ({ value, origin: '' }));
  const related = relatedTo(subjects, placed, 'default', webhooks);
  return {
    subjects,
    objects,
    related,
    audited: subjects.map((each) => judged(each, snapshot, related)),
  };
}
