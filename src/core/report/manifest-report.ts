import {
  API_VERSION,
  type ClusterTerminationPolicy,
  isLingerObject,
  isRecord,
  NAMESPACE_NAME_LABEL,
  parseDocument,
  printable,
  UserError,
} from '../api/index.ts';
import {
  type ClusterSnapshot,
  NO_SOURCES,
  patchInForce,
  type Sources,
  snapshotOf,
} from '../decision/index.ts';
import {
  type AuditSummary,
  auditWorkload,
  calledBy,
  type RelatedObjects,
  relatedTo,
  summaryOfAudit,
  WEBHOOK_KIND,
} from '../judge/index.ts';
import {
  editDocument,
  type ManifestDocument,
  ManifestError,
  policiesOfMap,
  readDocuments,
} from '../manifest/index.ts';
import type { Chart } from '../timeline/index.ts';
import { blockYaml } from './block-yaml.ts';
import { becauseOf, explanationOf, type WorkloadExplanation } from './explanations.ts';
import { idlePolicies, loneServices, misspeltKinds, type Notice, type PlacedObject } from './notices.ts';
import {
  type JudgedWorkload,
  overviewOf,
  plannedCharts,
  standingOf,
  type WorkloadsOverview,
} from './overview.ts';
import {
  type FoundWorkload,
  type ManifestProblem,
  type ManifestText,
  partsIn,
  planOf,
  type Reading,
  survey,
  withEmbedded,
  workloadsIn,
} from './workloads.ts';

/** A problem of a text. Lines and columns count from 1; null: it concerns the whole text. */
export interface TextProblemAt {
  /** A file, or {@link POLICIES}. */
  readonly file: string;
  readonly line: number | null;
  readonly column: number | null;
  readonly text: string;
}

/** The name under which problems refer to the text of the policies. */
export const POLICIES = 'policies.yaml';

/** How a file was interpreted. */
export interface FileTaken {
  readonly file: string;
  readonly workloads: number;
  readonly others: number;
}

export interface ManifestReport extends WorkloadsOverview {
  readonly files: readonly FileTaken[];
  readonly problems: readonly TextProblemAt[];
  /** Objects that have no effect as they are: a policy that selects no workload, a Service without pods, a misspelt kind. */
  readonly notices: readonly Notice[];
}

/** The details that a list shows when a workload is opened. */
export interface WorkloadDetail {
  readonly plan: WorkloadExplanation;
  /** Its pods already have that plan or need none: the plan describes the present instead of a proposal. */
  readonly stands: boolean;
  /** The plan would stop its loss of requests. */
  readonly helps: boolean;
  readonly because: string;
  /** Charts of its termination as it is, and with the patch; empty: nothing is known of it. */
  readonly charts: readonly Chart[];
  /** Its document before and after the change, or the part that changes; null: nothing changes. */
  readonly patch: { readonly before: string; readonly after: string } | null;
  /** Why some changes could not be made in the text. */
  readonly left: readonly string[];
  /**
   * A policy with the same effect in its namespace, where Linger’s webhook is installed; in mode Audit at first; null: no
   * policy is needed, or none would help.
   */
  readonly policy: string | null;
}

/** The defaults of `explain` and `inject`. */
const SELECTION = { namespace: 'default', selector: undefined };

interface Judged extends JudgedWorkload {
  readonly found: FoundWorkload;
}

export type Progress = (what: string, done: number, total: number) => void;

/** Manifests and policies, judged as `audit -f`, `explain -f` and `inject -f` do, without a cluster. */
export class JudgedManifests {
  readonly report: ManifestReport;
  readonly #inputs: readonly ManifestText[];
  readonly #sources: Sources;
  readonly #snapshot: ClusterSnapshot;
  readonly #related: RelatedObjects;
  /** As if the webhook were installed: explanations describe what it would do. */
  readonly #withWebhook: RelatedObjects;
  /** By address. */
  readonly #judged: ReadonlyMap<string, Judged>;
  readonly #surveyed: ReturnType<typeof survey>;

  /** @param progress called with the name of the step, how much of it is done, and its total */
  constructor(inputs: readonly ManifestText[], policies: string, progress: Progress = () => undefined) {
    const problems: TextProblemAt[] = [];
    const at =
      (file: string) =>
      ({ message, place }: ManifestProblem) =>
        void problems.push({
          file,
          line: place?.line ?? null,
          column: place?.column ?? null,
          text: printable(place?.problem ?? message),
        });
    const { texts, surveyed } = surveyedOf(inputs, at);
    this.#inputs = texts;
    this.#surveyed = surveyed;
    const files = policiesOfMap({ [POLICIES]: policies }, '');
    for (const { message, place } of files.problems) at(POLICIES)({ message, place });
    const applied = surveyed.documents;
    this.#sources = { ...NO_SOURCES, modeLimit: 'Enforce', files: files.documents, applied };
    this.#snapshot = snapshotOf(this.#sources);
    const found: { readonly input: ManifestText; readonly found: FoundWorkload }[] = [];
    const objects: PlacedObject[] = [];
    const taken = texts.map((input, index): FileTaken => {
      progress('files read', index, texts.length);
      const [workloads, others] = [found.length, objects.length];
      const reading = { report: at(input.name), failed: false };
      for (const each of placedIn(input, surveyed, reading, objects)) found.push({ input, found: each });
      const ours = found.length - workloads;
      return { file: input.name, workloads: ours, others: Math.max(0, objects.length - others - ours) };
    });
    const subjects = found.map(({ input, found: { object, ...placed } }) => ({
      ...placed,
      object: object.value,
      file: input.name,
      line: object.line,
      column: object.column,
    }));
    const values = objects.map(({ value }) => value);
    const brought = values.filter(isRecord).filter(({ kind }) => kind === WEBHOOK_KIND.kind);
    const placed = objects.map(({ value, file }) => ({ value, origin: file }));
    this.#related = relatedTo(subjects, placed, SELECTION.namespace, brought);
    this.#withWebhook = { ...this.#related, ...calledBy(undefined) };
    const judged = subjects.map((subject, index): Judged | undefined => {
      progress('workloads judged', index, subjects.length);
      const each = found[index]?.found;
      return each && { found: each, subject, audited: auditWorkload(subject, this.#snapshot, this.#related) };
    });
    const all = judged.filter((each) => each !== undefined);
    const overview = wholeOf(overviewOf(all, this.#snapshot));
    this.#judged = new Map(all.map((each, index) => [overview.rows[index]?.address ?? '', each]));
    const given = { subjects, objects, snapshot: this.#snapshot, namespace: SELECTION.namespace };
    const notices = [
      ...misspeltKinds(objects),
      ...loneServices(given),
      ...idlePolicies(given, { text: policies, file: POLICIES }),
    ];
    // Several readers of a text may report the same problem.
    const distinct = [...new Map(problems.map((each) => [JSON.stringify(each), each])).values()];
    this.report = { ...overview, files: taken, problems: distinct, notices };
  }

  /** @returns undefined: no such workload exists any more */
  detail(address: string): WorkloadDetail | undefined {
    const judged = this.#judged.get(address);
    if (judged === undefined) return undefined;
    const { subject } = judged;
    const plan = explanationOf(subject, this.#snapshot, this.#withWebhook);
    const { text: after, before, left } = this.#edited(subject.file ?? '', address);
    const patch = before === after ? null : { before, after };
    return {
      plan,
      ...standingOf(judged, this.#snapshot),
      because: becauseOf(plan),
      charts: plannedCharts(judged, plan, this.#snapshot),
      patch,
      left,
      policy: patch === null ? null : policyText([subject.namespace], {}, 'Audit'),
    };
  }

  /** All texts as `inject` writes them. */
  patched(): readonly ManifestText[] {
    return this.#inputs.map(({ name }) => ({ name, text: this.#edited(name).text }));
  }

  /** @param address the only workload to change; the texts then contain only its document */
  #edited(file: string, address?: string) {
    const input = this.#inputs.find(({ name }) => name === file);
    const before: string[] = [];
    const after: string[] = [];
    const left: string[] = [];
    if (input === undefined) return { before: '', text: '', left };
    const only = address === undefined ? undefined : this.#judged.get(address)?.found;
    const reading = { report: () => undefined, remark: '', failed: false };
    for (const document of readDocuments(input.text, input.name)) {
      if (only !== undefined && !holds(document, only.object.line)) continue;
      const snapshot = this.#snapshot;
      const surveyed = this.#surveyed;
      const edits = function* () {
        for (const found of workloadsIn(document, input, SELECTION, surveyed, reading)) {
          if (only !== undefined && found.object.where !== only.object.where) continue;
          const { pod, pointer } = found.workload;
          const operations = patchInForce(pod, planOf(found, snapshot).decision);
          if (operations.length > 0) yield { object: found.object, operations, at: pointer };
        }
      };
      const edited = editDocument(document, edits());
      before.push(document.source.text.slice(document.start, document.end));
      after.push(edited.text);
      left.push(...[...edited.left.values()].flat());
    }
    return { before: before.join(''), text: after.join(''), left };
  }

  /**
   * The effect of a policy for all namespaces of the manifests, with Linger’s webhook installed. @throws LingerError
   * `policy-invalid`
   */
  whatIf(fields: PolicyFields): WhatIf {
    const namespaces = [...new Set([...this.#judged.values()].map(({ subject }) => subject.namespace))];
    const enforced = policyOf(namespaces, fields, 'Enforce');
    const policy = parseDocument(enforced, 'what if') as ClusterTerminationPolicy;
    const { files } = this.#sources;
    const clusterPolicies = [...files.clusterPolicies, policy];
    const snapshot = snapshotOf({ ...this.#sources, files: { ...files, clusterPolicies } });
    const after = [...this.#judged.values()].map(({ subject }) =>
      auditWorkload(subject, snapshot, this.#withWebhook),
    );
    return {
      before: this.report.summary,
      after: summaryOfAudit(after),
      audit: policyText(namespaces, fields, 'Audit'),
      enforce: blockYaml(enforced),
    };
  }
}

/** Fields of a policy’s spec. */
export type PolicyFields = Readonly<Record<string, unknown>>;

export interface WhatIf {
  readonly before: AuditSummary;
  readonly after: AuditSummary;
  /** The policy to apply first: it changes no pods. */
  readonly audit: string;
  /** The policy to apply after that. */
  readonly enforce: string;
}

function policyOf(namespaces: readonly string[], fields: PolicyFields, mode: 'Audit' | 'Enforce') {
  const selected = { key: NAMESPACE_NAME_LABEL, operator: 'In', values: [...namespaces] };
  return {
    apiVersion: API_VERSION,
    kind: 'ClusterTerminationPolicy',
    metadata: { name: 'linger-these-namespaces' },
    spec: { mode, namespaceSelector: { matchExpressions: [selected] }, ...fields },
  };
}

export function policyText(
  namespaces: readonly string[],
  fields: PolicyFields,
  mode: 'Audit' | 'Enforce',
): string {
  return blockYaml(policyOf(namespaces, fields, mode));
}

/** Surveys the texts. A text that cannot be read at all is left out, with its problem. */
function surveyedOf(
  inputs: readonly ManifestText[],
  at: (file: string) => (problem: ManifestProblem) => void,
) {
  const attempt = (texts: readonly ManifestText[]) => survey(texts, SELECTION.namespace);
  const readable = inputs.filter((input) => {
    try {
      attempt([input]);
      return true;
    } catch (thrown) {
      if (!(thrown instanceof UserError)) throw thrown;
      const place = thrown instanceof ManifestError ? thrown.place : undefined;
      at(input.name)({ message: thrown.message, place });
      return false;
    }
  });
  const surveyed = attempt(readable);
  const byName = new Map(readable.map(({ name }) => [name, at(name)]));
  for (const problem of surveyed.problems) {
    const name = [...byName.keys()].find((each) => problem.message.startsWith(`${each} document`));
    at(name ?? '')(problem);
  }
  return { texts: readable, surveyed };
}

function* placedIn(
  input: ManifestText,
  surveyed: ReturnType<typeof survey>,
  reading: Reading,
  objects: PlacedObject[],
): Generator<FoundWorkload> {
  const problem = 'a policy counts only among the policies: move it there';
  for (const part of partsIn(input, SELECTION, surveyed, reading)) {
    for (const object of part.objects) {
      const file = input.name;
      objects.push(...withEmbedded(object).map(({ value, line }) => ({ value, file, line })));
      const { value, line } = object;
      if (isRecord(value) && isLingerObject(value))
        reading.report({ message: problem, place: { line, column: 1, problem } });
    }
    yield* part.workloads;
  }
}

function wholeOf<T>(steps: Generator<void, T>): T {
  for (let step = steps.next(); ; step = steps.next()) if (step.done === true) return step.value;
}

function holds({ start, end, source }: ManifestDocument, line: number): boolean {
  return line >= source.at(start).line && line <= source.at(Math.max(start, end - 1)).line;
}
