import { isLingerObject, isRecord, printable, UserError } from '../core/api/index.ts';
import { type ClusterSnapshot, NO_SOURCES, patchInForce, snapshotOf } from '../core/decision/index.ts';
import {
  editDocument,
  type ManifestEdit,
  ManifestError,
  policiesOfMap,
  readDocuments,
  readManifests,
} from '../core/manifest/index.ts';
import {
  becauseOf,
  explanationsIn,
  type ManifestProblem,
  planOf,
  type Reading,
  survey,
  workloadsIn,
} from '../core/report/index.ts';
import type { PlaygroundProblem, PlaygroundReport, PlaygroundRequest } from '../dashboard/index.ts';

import type { Manifests } from './manifests.ts';
import { unifiedDiff } from './rendering.ts';

/** The names of the two texts, in what is said about them. */
const NAMES = { manifest: 'manifest.yaml', policies: 'policies.yaml' } as const;
/** The defaults of `explain`. */
const WITHIN = { namespace: 'default', selector: undefined };

/** What `explain` and `inject --diff` say of a manifest under policies, without a cluster. */
export function explainTexts({ manifest, policies }: PlaygroundRequest): PlaygroundReport {
  const found: PlaygroundProblem[] = [];
  const report = (where: PlaygroundProblem['in'], { message, place }: ManifestProblem) =>
    found.push({
      in: where,
      line: place?.line ?? null,
      column: place?.column ?? null,
      text: printable(place?.problem ?? message),
    });
  const input = { path: NAMES.manifest, name: NAMES.manifest, text: manifest, encoding: 'utf-8' } as const;
  // Several readers of one text say the same of it.
  const distinct = () => [...new Map(found.map((each) => [JSON.stringify(each), each])).values()];
  const reading = { report: (each: ManifestProblem) => void report('manifest', each), failed: false };
  try {
    const { problems, ...known } = survey([input], WITHIN.namespace);
    for (const each of problems) report('manifest', each);
    const manifests = { inputs: [input], failed: false, ...known };
    const files = policiesOfMap({ [NAMES.policies]: policies }, '');
    for (const { message, place } of files.problems) report('policies', { message, place });
    const applied = manifests.documents;
    const snapshot = snapshotOf({ ...NO_SOURCES, modeLimit: 'Enforce', files: files.documents, applied });
    const plans = explanationsIn([input], manifests, snapshot, WITHIN, reading).map((plan) => ({
      ...plan,
      because: becauseOf(plan),
    }));
    reportMisplaced(manifest, reading);
    const diff = diffOf(manifests, snapshot);
    if (diff === undefined) report('manifest', { message: TOO_MANY_CHANGES, place: undefined });
    return { plans, problems: distinct(), diff: diff ?? '' };
  } catch (error) {
    // One that concerns the whole text: the others are collected as they are found.
    if (!(error instanceof UserError)) throw error;
    const place = error instanceof ManifestError ? error.place : undefined;
    report('manifest', { message: error.message, place });
    return { plans: [], problems: distinct(), diff: '' };
  }
}

/** Lines: the time for a diff grows with their square, and here it answers nothing else meanwhile. */
const MOST_CHANGES = 4_000;
const TOO_MANY_CHANGES = 'too many changes to show here: linger inject --diff FILE.yaml prints them';

/** What `inject` changes; what it leaves unchanged is said by the explanation. */
function diffOf(manifests: Manifests, snapshot: ClusterSnapshot): string | undefined {
  const [input] = manifests.inputs;
  if (input === undefined) return '';
  const reading = { report: () => undefined, remark: '', failed: false };
  const parts = [...readDocuments(input.text, input.name)].map((document) => {
    const edits = function* (): Generator<ManifestEdit> {
      for (const found of workloadsIn(document, input, WITHIN, manifests, reading)) {
        const { decision } = planOf(found, snapshot);
        const { pod } = found.workload;
        const operations = patchInForce(pod, decision);
        if (operations.length > 0) yield { object: found.object, operations, at: found.workload.pointer };
      }
    };
    return editDocument(document, edits()).text;
  });
  return unifiedDiff(input.name, input.text, parts.join(''), MOST_CHANGES);
}

/** Policies of the manifest are about to be applied: they are not in force yet. */
function reportMisplaced(manifest: string, { report }: Reading): void {
  const problem = 'a policy counts only in the other text: move it there';
  for (const { value, line } of readManifests(manifest, NAMES.manifest).objects)
    if (isRecord(value) && isLingerObject(value))
      report({ message: `${NAMES.manifest}:${line}: ${problem}`, place: { line, problem } });
}
