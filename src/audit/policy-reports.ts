import { createHash } from 'node:crypto';
import {
  asFailure,
  CONCERNS_ONE_NAMESPACE,
  callApi,
  type KubeConnection,
  listSome,
} from '../cluster/index.ts';
import { API_VERSION, GROUP } from '../core/api/index.ts';
import type { AuditFinding } from '../core/judge/index.ts';
import type { Leadership } from '../manager/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { pause } from '../timing/index.ts';
import { WORKLOAD_KINDS } from './kinds.ts';

/** The APIs of reports, which are equal in the fields that are used here. */
const REPORT_APIS = {
  'wgpolicyk8s.io': { version: 'v1alpha2', kind: 'PolicyReport', plural: 'policyreports' },
  'openreports.io': { version: 'v1alpha1', kind: 'Report', plural: 'reports' },
} as const;
export type ReportApi = keyof typeof REPORT_APIS;

/** The findings of an audit of the whole cluster. */
export interface ClusterFindings {
  /** The findings to report, unprotected workloads first; bounded. */
  readonly kept: readonly AuditFinding[];
  /** The counts of all findings, by namespace. */
  readonly namespaces: ReadonlyMap<string, NamespaceCounts>;
}

/** The numbers of protected and skipped workloads, and of failing and warning findings. */
export type NamespaceCounts = Record<'pass' | 'fail' | 'warn' | 'skip', number>;

interface PolicyReportsOptions {
  readonly connection: KubeConnection;
  readonly api: ReportApi;
  readonly logger: Logger;
  readonly epochSeconds: () => number;
}

/** The same name in each namespace, so that rights can be limited to it. */
const NAME = 'linger';
/** The annotations of a report. */
export const REPORT_ANNOTATION = {
  /** The digest of its content without times, so that an unchanged report is not written again. */
  digest: `${GROUP}/digest`,
  /** How many findings were left out. */
  leftOut: `${GROUP}/left-out`,
} as const;
/** 200 results take some 120 KB; etcd accepts 1.5 MB. */
const MOST_RESULTS = 200;
const LONGEST_MESSAGE = 500;
/** At most four writes a second, since there may be a storm at the same time. */
const WRITE_EVERY_MS = 250;
const REQUEST_MS = 10_000;
const MOST_REPORTS = 5_000;

/** Writes an audit's findings as reports, one for each namespace with findings, and deletes all others. */
export class PolicyReports {
  readonly #options: PolicyReportsOptions;
  readonly #once: LogOnce;

  constructor(options: PolicyReportsOptions) {
    this.#options = options;
    this.#once = new LogOnce(options.logger);
  }

  /** Never throws. Failed writes are repeated after the next audit. */
  async write(findings: ClusterFindings, lead: Leadership): Promise<void> {
    const wanted = reportsOf(findings);
    const { api } = this.#options;
    try {
      const present = await this.#digests(lead.signal);
      for (const namespace of new Set([...wanted.keys(), ...present.keys()])) {
        const report = wanted.get(namespace);
        const isWritten = report !== undefined && present.get(namespace) === digestOf(report);
        if (!isWritten) await this.#change(namespace, report, lead);
      }
      this.#once.over('reports', { api }, 'writing policy reports recovered');
    } catch (thrown) {
      if (lead.signal.aborted) return;
      const { reason, message: problem } = asFailure(thrown);
      this.#once.warn(
        'reports',
        { api, reason, problem },
        'writing policy reports failed; the next audit tries again',
      );
    }
  }

  /** A namespace that rejects its report (because it is terminating, or its quota is used up) must not affect others. */
  async #change(namespace: string, report: Report | undefined, lead: Leadership): Promise<void> {
    if (!lead.holds() || !(await pause(WRITE_EVERY_MS, lead.signal))) return;
    const { connection, api } = this.#options;
    const { version, plural } = REPORT_APIS[api];
    const target = { group: api, version, plural, namespace, name: NAME };
    const applied = report && { body: this.#bodyOf(namespace, report), fieldManager: 'linger', force: true };
    const call = { signal: lead.signal, withinMs: REQUEST_MS, patch: 'apply-patch' } as const;
    try {
      await callApi(connection, 'CustomObjectsApi', call, (objects) =>
        applied === undefined
          ? objects.deleteNamespacedCustomObject(target)
          : objects.patchNamespacedCustomObject({ ...target, ...applied }),
      );
      this.#once.over(namespace, { namespace }, 'writing the policy report of a namespace recovered');
    } catch (thrown) {
      const { reason, message: problem } = asFailure(thrown);
      if (lead.signal.aborted || !CONCERNS_ONE_NAMESPACE.has(reason)) throw thrown;
      const members = { namespace, reason, problem };
      this.#once.warn(namespace, members, 'writing the policy report of a namespace failed');
    }
  }

  /** The digests of existing reports, by namespace. */
  async #digests(signal: AbortSignal): Promise<ReadonlyMap<string, string | undefined>> {
    const { connection, api } = this.#options;
    const { version, plural } = REPORT_APIS[api];
    const found = await listSome(
      {
        path: `/apis/${api}/${version}/${plural}`,
        query: { fieldSelector: `metadata.name=${NAME}` },
        metadataOnly: true,
        project: ({ metadata: { namespace = '', annotations } }) =>
          [namespace, annotations?.[REPORT_ANNOTATION.digest]] as const,
      },
      connection,
      { signal, answerMs: REQUEST_MS, most: MOST_REPORTS },
    );
    return new Map(found);
  }

  #bodyOf(namespace: string, report: Report): object {
    const { api, epochSeconds } = this.#options;
    const { version, kind } = REPORT_APIS[api];
    const timestamp = { seconds: Math.floor(epochSeconds()), nanos: 0 };
    const { leftOut, summary, results } = report;
    return {
      apiVersion: `${api}/${version}`,
      kind,
      metadata: {
        name: NAME,
        namespace,
        labels: { 'app.kubernetes.io/managed-by': 'linger' },
        annotations: {
          [REPORT_ANNOTATION.digest]: digestOf(report),
          ...(leftOut > 0 && { [REPORT_ANNOTATION.leftOut]: String(leftOut) }),
        },
      },
      summary,
      results: results.map((result) => ({ ...result, timestamp })),
    };
  }
}

/** The report of a namespace. */
interface Report {
  readonly leftOut: number;
  readonly summary: Readonly<NamespaceCounts & { readonly error: number }>;
  readonly results: readonly object[];
}

/** @returns the reports by namespace; namespaces without findings have none */
export function reportsOf({ kept, namespaces }: ClusterFindings): ReadonlyMap<string, Report> {
  const byNamespace = Map.groupBy(kept, ({ namespace }) => namespace);
  const reported = [...namespaces].filter(([, { fail, warn }]) => fail + warn > 0);
  return new Map(
    reported.slice(0, MOST_REPORTS).map(([namespace, counts]) => {
      const { pass, fail, warn, skip } = counts;
      const results = (byNamespace.get(namespace) ?? []).slice(0, MOST_RESULTS).map(resultOf);
      const summary = { pass, fail, warn, error: 0, skip };
      return [namespace, { leftOut: fail + warn - results.length, summary, results }];
    }),
  );
}

function resultOf(finding: AuditFinding): object {
  const { kind, namespace, name, reason, text } = finding;
  const apiVersion = WORKLOAD_KINDS.find((each) => each.kind === kind)?.apiVersion;
  const isWarning = finding.level === 'warning';
  const { waitSeconds, graceSeconds, exposureSeconds, evidence } = finding;
  // Not the text of the evidence, because every report would then change with each measured removal.
  const basis = evidence?.basis ?? null;
  const known = Object.entries({ waitSeconds, graceSeconds, exposureSeconds, basis }).filter(
    ([, value]) => value !== null,
  );
  return {
    source: 'linger',
    policy: 'graceful-termination',
    rule: reason,
    category: 'Availability',
    result: isWarning ? 'fail' : 'warn',
    severity: isWarning ? 'medium' : 'low',
    message: text.length > LONGEST_MESSAGE ? `${text.slice(0, LONGEST_MESSAGE - 3)}...` : text,
    resources: [{ apiVersion, kind, namespace, name }],
    properties: Object.fromEntries(known.map(([key, value]) => [key, String(value)])),
  };
}

function digestOf(report: Report): string {
  return createHash('sha256')
    .update(API_VERSION + JSON.stringify(report))
    .digest('hex')
    .slice(0, 16);
}
