import {
  fewOf,
  isRecord,
  isStringMap,
  type Labels,
  memberAt,
  NO_LABELS,
  objectKey,
  printable,
  selectedLabels,
  selects,
  selectsNamespace,
  selectsPod,
  textOf,
  unseenNamespace,
} from '../api/index.ts';
import { type ClusterSnapshot, meantKind } from '../decision/index.ts';
import type { AuditSubject } from '../judge/index.ts';
import { readManifests } from '../manifest/index.ts';

/** Something in a text that has no effect as it is. Lines count from 1. */
export interface Notice {
  readonly file: string;
  readonly line: number | null;
  readonly column: null;
  readonly text: string;
}

/** An object with its place. */
export interface PlacedObject {
  readonly value: unknown;
  readonly file: string;
  readonly line: number;
}

interface Given {
  readonly subjects: readonly AuditSubject[];
  readonly objects: readonly PlacedObject[];
  readonly snapshot: ClusterSnapshot;
  /** The namespace of objects that name none. */
  readonly namespace: string;
}

const noticeAt = ({ file, line }: Omit<PlacedObject, 'value'>, text: string): Notice => ({
  file,
  line,
  column: null,
  text: printable(text),
});

const nameOf = (value: unknown) => textOf(memberAt(value, ['metadata', 'name']) ?? '(no name)');

/** Objects of a kind that does not exist, but resembles one that creates pods. */
export function misspeltKinds(objects: readonly PlacedObject[]): readonly Notice[] {
  return objects.flatMap(({ value, ...place }) => {
    if (!isRecord(value)) return [];
    const meant = meantKind(textOf(value.apiVersion), textOf(value.kind));
    if (meant === undefined) return [];
    const is = `${textOf(value.apiVersion)} ${textOf(value.kind)}`;
    return [noticeAt(place, `${nameOf(value)}: there is no ${is}: is ${meant} meant?`)];
  });
}

/** Services whose selector matches no pod, in one notice for each file. */
export function loneServices({ subjects, objects, snapshot, namespace }: Given): readonly Notice[] {
  const podsIn = new Map<string, PodLabels>();
  for (const subject of subjects) {
    const known = podsIn.get(subject.namespace) ?? new PodLabels();
    podsIn.set(subject.namespace, known);
    known.add(subject);
  }
  const places = new Map(
    objects.flatMap(({ value, ...place }) => {
      const isService = isRecord(value) && value.apiVersion === 'v1' && value.kind === 'Service';
      const own = textOf(memberAt(value, ['metadata', 'namespace']) || namespace);
      return isService ? [[objectKey({ namespace: own, name: nameOf(value) }), place] as const] : [];
    }),
  );
  const lone = [...snapshot.services.byNamespace.values()].flat().flatMap((service) => {
    const place = places.get(objectKey(service));
    const labels = Object.entries(selectedLabels(service));
    if (place === undefined || service.unreadable || service.externalName || labels.length === 0) return [];
    if (podsIn.get(service.namespace)?.mayHave(labels, (pod) => selectsPod(service, pod))) return [];
    const words = labels.map(([key, value]) => `${key}=${value}`).join(',');
    return [{ place, name: `${service.namespace}/${service.name} (${words})` }];
  });
  return [...Map.groupBy(lone, ({ place }) => place.file).values()].flatMap((all) => {
    const [first] = all;
    const names = fewOf(all.map(({ name }) => name));
    const text = `${all.length === 1 ? 'Service' : `${all.length} Services:`} ${names}: no pod here has these labels: add the workloads that belong to it, or correct the selector`;
    return first === undefined ? [] : [noticeAt(first.place, text)];
  });
}

/**
 * The labels of a namespace’s pods, indexed by label because thousands of Services are compared with thousands of workloads.
 */
class PodLabels {
  readonly #byLabel = new Map<string, Labels[]>();
  /** The labels of some pods are not known, so any Service may select them. */
  #open = false;

  add({ workload: { pod }, unknown }: AuditSubject): void {
    const labels = labelsOf(pod);
    if (labels === undefined || unknown !== undefined) this.#open = true;
    for (const label of Object.entries(labels ?? NO_LABELS)) {
      const key = label.join('=');
      const known = this.#byLabel.get(key);
      if (known === undefined) this.#byLabel.set(key, [labels ?? NO_LABELS]);
      else known.push(labels ?? NO_LABELS);
    }
  }

  mayHave(labels: readonly (readonly [string, string])[], selects: (labels: Labels) => boolean): boolean {
    if (this.#open) return true;
    const each = labels.map((label) => this.#byLabel.get(label.join('=')) ?? []);
    const [fewest = []] = each.toSorted((a, b) => a.length - b.length);
    return fewest.some(selects);
  }
}

/** @returns undefined: they cannot be read */
function labelsOf(pod: unknown): Labels | undefined {
  if (!isRecord(pod)) return undefined;
  const labels = memberAt(pod, ['metadata', 'labels']) ?? NO_LABELS;
  return isStringMap(labels) ? labels : undefined;
}

/** Policies that apply to no workload. @param text of the policies; @param file its name */
export function idlePolicies(
  { subjects, snapshot }: Given,
  { text, file }: { readonly text: string; readonly file: string },
): readonly Notice[] {
  const { policies, namespaces } = snapshot;
  const all = [...policies.cluster, ...[...policies.byNamespace.values()].flat()];
  if (subjects.length === 0 || all.length === 0) return [];
  const places = readManifests(text, file).objects.map(({ value, line }) => ({ value, line, file }));
  return all.flatMap((policy) => {
    const unseen = new Set<string>();
    const isSelected = subjects.some(({ namespace, workload: { pod } }) => {
      if (policy.namespace !== '' && policy.namespace !== namespace) return false;
      if (!selects(policy.podSelector, labelsOf(pod) ?? NO_LABELS)) return false;
      const record = namespaces.get(namespace) ?? unseenNamespace(namespace);
      const selected = selectsNamespace(policy.namespaceSelector, record);
      if (selected === 'unknown') unseen.add(namespace);
      return selected === true;
    });
    if (isSelected) return [];
    const place = places.find(
      ({ value }) =>
        nameOf(value) === policy.name &&
        textOf(memberAt(value, ['metadata', 'namespace'])) === policy.namespace,
    );
    const because =
      unseen.size > 0
        ? `it selects namespaces by labels, and those of ${fewOf([...unseen])} are not here: add the Namespace`
        : 'compare its selectors with the namespaces and labels of the pods';
    return [
      noticeAt(place ?? { file, line: 1 }, `${policy.origin} selects none of these workloads: ${because}`),
    ];
  });
}
