import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import type { Mode } from '../../../src/core/api/index.ts';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import type { PodRequest } from '../../../src/core/decision/decide.ts';
import type { Operation } from '../../../src/core/decision/patch.ts';
import type { NoteCode, SkipReason } from '../../../src/core/decision/reasons.ts';
import { creationOf, type JsonObject, NAMESPACE } from './sample-pod.ts';
import { type Circumstances, fleet, snapshotOf } from './sample-snapshot.ts';

/** What a golden case expects of the decision. */
export interface GoldenExpectation {
  readonly outcome: 'inject' | 'skip';
  /** Absent for `inject`. */
  readonly reason?: SkipReason;
  /** The mode in force. In Audit an answer holds no patch, whatever the operations are. */
  readonly mode: Mode;
  readonly operations: readonly Operation[];
  /** The exact text of the linger.dev/plan annotation; absent for `skip`. */
  readonly plan?: string;
  /** Codes in alphabetical order. */
  readonly notes: readonly NoteCode[];
  readonly warnings: readonly string[];
}

export interface GoldenCase {
  /** The file's name without its extension. */
  readonly name: string;
  readonly title: string;
  /** Namespaces, Services and linger.dev documents, as in files of `--policies`. */
  readonly policies: readonly JsonObject[];
  readonly circumstances: Circumstances;
  readonly snapshot: ClusterSnapshot;
  /** A Pod that a Kubernetes API server accepts. */
  readonly pod: JsonObject;
  /** The recorded AdmissionReview that the pod is from, where there is one. */
  readonly review?: JsonObject;
  readonly request: PodRequest;
  readonly expected: GoldenExpectation;
}

interface GoldenFile {
  readonly title: string;
  readonly policies?: readonly JsonObject[];
  readonly modeLimit?: Mode;
  readonly fleet?: { readonly apiServer: string; readonly kubelets: readonly string[] };
  readonly servicesComplete?: boolean;
  readonly pod?: JsonObject;
  /** Path of an AdmissionReview, from the case's own folder. */
  readonly review?: string;
  readonly expected: Partial<GoldenExpectation> & Pick<GoldenExpectation, 'outcome'>;
}

const FOLDER = new URL('../../testdata/golden/', import.meta.url);

/** Every case of test/testdata/golden, in the order of the files' names. */
export function loadGoldenCases(): readonly GoldenCase[] {
  const files = readdirSync(fileURLToPath(FOLDER)).filter((file) => file.endsWith('.yaml'));
  return files.toSorted().map((file) => {
    const content = parse(readFileSync(new URL(file, FOLDER), 'utf8')) as GoldenFile;
    return goldenCase(file.replace(/\.yaml$/, ''), content);
  });
}

function goldenCase(name: string, file: GoldenFile): GoldenCase {
  const { title, policies = [], expected } = file;
  const circumstances = circumstancesOf(file);
  const review = file.review === undefined ? {} : { review: readReview(file.review) };
  return {
    name,
    title,
    policies,
    circumstances,
    snapshot: snapshotOf(policies, circumstances),
    ...review,
    ...askedBy(name, file.pod, review.review),
    expected: {
      mode: 'Enforce',
      operations: [],
      warnings: [],
      ...expected,
      notes: (expected.notes ?? []).toSorted(),
    },
  };
}

function circumstancesOf({ modeLimit, fleet: versions, servicesComplete }: GoldenFile): Circumstances {
  return {
    ...(modeLimit === undefined ? {} : { modeLimit }),
    ...(servicesComplete === undefined ? {} : { servicesComplete }),
    ...(versions === undefined ? {} : { fleet: fleet(versions.apiServer, ...versions.kubelets) }),
  };
}

function readReview(path: string): JsonObject {
  return JSON.parse(readFileSync(new URL(path, FOLDER), 'utf8')) as JsonObject;
}

function askedBy(name: string, pod: JsonObject | undefined, review: JsonObject | undefined) {
  if (review === undefined) {
    if (pod === undefined) throw new Error(`golden case ${name}: expected a pod or a review`);
    return { pod, request: creationOf(pod) };
  }
  const asked = review.request as { object: JsonObject; namespace?: string };
  const request = creationOf(asked.object, { namespace: asked.namespace ?? NAMESPACE });
  return { pod: asked.object, request };
}
