import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { readCommandLine } from '../../src/cli/command-line.ts';
import { explain, explainManifests } from '../../src/cli/explain.ts';
import { inject } from '../../src/cli/inject.ts';
import { type Explanation, NO_DOCUMENTS } from '../../src/core/decision/index.ts';
import { type GoldenCase, loadGoldenCases } from '../core/decision/golden-cases.ts';
import type { JsonObject } from '../core/decision/sample-pod.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { bodyOf } from '../webhook/reviews.ts';
import { applied, responseOf, startWebhook } from '../webhook/webhook.ts';
import { emptyDirectory } from './linger.ts';

const atEnd = atEndOfFile();

/** What each of the three surfaces says of a pod, in the same words. */
interface Answer {
  /** `Injected`, `Audit`, or the skip reason. */
  readonly reason: string;
  readonly wait: number | undefined;
  readonly grace: number | undefined;
  readonly containers: readonly string[];
}

interface WrittenPlan {
  readonly wait: number;
  readonly grace: number;
  readonly containers: readonly string[];
}

const answered = (reason: string, plan: WrittenPlan | undefined): Answer => ({
  reason,
  wait: plan?.wait,
  grace: plan?.grace,
  containers: plan?.containers ?? [],
});

const planIn = ({ metadata }: JsonObject): WrittenPlan | undefined => {
  const { annotations } = metadata as { annotations?: Record<string, string> };
  const text = annotations?.['linger.dev/plan'];
  return text === undefined ? undefined : (JSON.parse(text) as WrittenPlan);
};

/** What `serve` answers to the review, and the pod with its patch. */
async function served({ snapshot, pod, request }: GoldenCase) {
  const webhook = await startWebhook({ snapshot });
  const response = responseOf(await webhook.post(bodyOf(pod, { namespace: request.namespace })));
  const { reason = '', plan } = response.auditAnnotations ?? {};
  const result = applied(pod, response);
  if (reason === 'Injected' || reason === 'AlreadyInjected')
    return { answer: answered(reason, planIn(result)), result };
  return {
    answer: answered(reason, plan === undefined ? undefined : (JSON.parse(plan) as WrittenPlan)),
    result,
  };
}

/** The case as files: its policies and its pod. */
async function filesOf({ policies, pod }: GoldenCase) {
  const directory = await emptyDirectory(atEnd);
  const [documents, manifest] = [join(directory, 'policies.yaml'), join(directory, 'pod.json')];
  await writeFile(documents, policies.map((each) => stringify(each)).join('---\n'));
  await writeFile(manifest, JSON.stringify(pod));
  return { documents, manifest };
}

/** Runs `inject` or `explain` as the command line does, and returns what it prints. */
async function printed(command: 'inject' | 'explain', golden: GoldenCase, flags: readonly string[] = []) {
  const { documents, manifest } = await filesOf(golden);
  const argv = [
    command,
    '--policies',
    documents,
    '--namespace',
    golden.request.namespace,
    ...flags,
    manifest,
  ];
  const invocation = readCommandLine(argv, {}, '0.0.0', 'linger');
  if (invocation.command === 'none') throw new Error('expected a command');
  const printed: string[] = [];
  const context = {
    print: (text: string) => void printed.push(text),
    write: (bytes: Uint8Array) => void printed.push(Buffer.from(bytes).toString()),
    stdin: Readable.from([]),
    warn: () => undefined,
    overwrite: () => undefined,
    progress: () => undefined,
    kube: invocation.kube,
    interactive: false,
    version: '0.0.0',
    commit: undefined,
    colour: false,
    outputColumns: () => undefined,
    errorColumns: () => undefined,
    now: () => 0,
  };
  if (invocation.command === 'inject') expect(await inject(invocation.settings, context)).toBe(0);
  else if (invocation.command === 'explain') expect(await explain(invocation.settings, context)).toBe(0);
  else throw new Error(`expected ${command}, got ${invocation.command}`);
  return printed.join('');
}

function answerIn({
  outcome,
  mode,
  reason,
  waitSeconds,
  graceSeconds,
  containers,
}: Omit<Explanation, 'outcome' | 'notes'> & { readonly outcome: string }): Answer {
  const said = outcome === 'skip' ? reason : mode === 'Audit' ? 'Audit' : 'Injected';
  return {
    reason: said ?? '',
    wait: waitSeconds ?? undefined,
    grace: graceSeconds ?? undefined,
    containers,
  };
}

/** What `explain` says, with what the case knows of a cluster; files alone cannot say which versions it has. */
async function explained(golden: GoldenCase): Promise<Answer | undefined> {
  const { circumstances, snapshot } = golden;
  const { modeLimit = 'Enforce', fleet, servicesComplete } = circumstances;
  if (fleet === undefined && servicesComplete === undefined) {
    const text = await printed('explain', golden, ['--mode-limit', modeLimit, '--output', 'json']);
    const { plans } = JSON.parse(text) as { plans: readonly Explanation[] };
    return plans.map(answerIn)[0];
  }
  const { documents, manifest } = await filesOf(golden);
  const settings = {
    operands: [manifest],
    filename: undefined,
    recursive: false,
    selector: undefined,
    policies: documents,
    namespace: golden.request.namespace,
    modeLimit,
  };
  const cluster = {
    namespaces: snapshot.namespaces,
    services: snapshot.services,
    fleet: fleet ?? { apiServer: undefined, oldestKubelet: undefined, nodes: [] },
    consumers: [],
    additions: new Map(),
    lags: snapshot.lags,
    files: NO_DOCUMENTS,
    fileProblems: [],
    filesUnread: undefined,
  };
  const context = { stdin: Readable.from([]), warn: () => undefined };
  return (await explainManifests(settings, context, cluster)).plans.map(answerIn)[0];
}

const CASES = loadGoldenCases();
/** What `inject` is not told: it has no cluster, and no flag that limits modes. */
const WITHOUT_CLUSTER = CASES.filter(({ circumstances }) => Object.keys(circumstances).length === 0);

describe('the pod of each golden case is decided identically', () => {
  test.each(CASES.map((each) => [each.name, each] as const))(
    '%s: by serve and explain',
    async (_, golden) => {
      const { answer } = await served(golden);
      expect(answer.reason).toBe(
        golden.expected.outcome === 'skip'
          ? golden.expected.reason
          : golden.expected.mode === 'Audit'
            ? 'Audit'
            : 'Injected',
      );
      expect(await explained(golden)).toEqual(answer);
    },
  );

  test.each(WITHOUT_CLUSTER.map((each) => [each.name, each] as const))(
    '%s: by serve and inject',
    async (_, golden) => {
      const { result } = await served(golden);
      expect(parse(await printed('inject', golden))).toEqual(result);
    },
  );

  test('most cases need no cluster', () => {
    expect(WITHOUT_CLUSTER.length).toBeGreaterThan(20);
  });
});
