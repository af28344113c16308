import type { ClusterSnapshot } from '../../../src/core/decision/index.ts';
import {
  type Audited,
  type AuditSubject,
  auditWorkload,
  podsOfAll,
  type RelatedObjects,
  relatedObjectsIn,
} from '../../../src/core/judge/index.ts';
import { ManifestError, readDocuments } from '../../../src/core/manifest/index.ts';
import { survey, withEmbedded, workloadsIn } from '../../../src/core/report/index.ts';

export interface JudgedText {
  readonly subjects: readonly AuditSubject[];
  readonly objects: readonly unknown[];
  readonly related: RelatedObjects;
  readonly audited: readonly Audited[];
}

/** What an audit of this text says. @param webhooks as {@link relatedObjectsIn} takes them; undefined: Linger's is there */
export function judgedText(text: string, snapshot: ClusterSnapshot, webhooks?: []): JudgedText {
  const input = { name: 'x.yaml', text };
  const selection = { namespace: 'default', selector: undefined };
  const surveyed = survey([input], 'default');
  const reading = { report: () => undefined, failed: false };
  const subjects: AuditSubject[] = [];
  const objects: unknown[] = [];
  for (const document of readDocuments(text, input.name)) {
    for (const object of document.objects())
      if (!(object instanceof ManifestError)) objects.push(...withEmbedded(object).map(({ value }) => value));
    for (const { object, ...placed } of workloadsIn(document, input, selection, surveyed, reading))
      subjects.push({ ...placed, object: object.value });
  }
  const around = relatedObjectsIn(objects, 'default', webhooks);
  const related = { ...around, pods: podsOfAll(subjects, around) };
  return {
    subjects,
    objects,
    related,
    audited: subjects.map((each) => auditWorkload(each, snapshot, related)),
  };
}
