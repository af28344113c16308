import {
  ApiReader,
  asFailure,
  type Json,
  type KubeConnection,
  KubeFailure,
  messageOf,
  type RawObject,
} from '../cluster/index.ts';
import { UserError } from '../core/api/index.ts';

/** What is checked before and after installation, in the order of the report. */
export const CHECKS = {
  ApiServer: 'The API server answers, and is new enough.',
  Rights:
    'You may create and change what an installation consists of; replicas have the rights that their flags need.',
  Kubelets: 'Every kubelet supports the native sleep hook.',
  Admission: 'A pod with a hook, as Linger’s own are, is admitted and keeps it.',
  CustomResources: 'The API server serves the kinds of linger.dev.',
  Webhook: 'The webhook configuration points at Linger, and excludes its own pods.',
  Certificate: 'The caBundle matches the serving certificate, and that is valid.',
  Replicas: 'All replicas are ready, on more than one node.',
  Ports: 'Each Service of Linger targets a port that its containers listen on.',
  Answer: 'A pod that is created reaches Linger, and its answer reaches the pod.',
  OtherWebhooks: 'No other webhook keeps the replicas from starting.',
  NetworkPolicy: 'NetworkPolicies let API servers and helpers in, and Linger out to API servers.',
  Leader: 'One of the replicas leads.',
  Watches: 'Each replica follows the cluster.',
  Canary: 'The canary measures.',
  Consumers: 'The lag of every consumer is known.',
  Policies: 'Every policy is in force.',
  HoldHelper: 'The helper is where policies ask for hook Hold.',
} as const satisfies Record<string, string>;

export type CheckCode = keyof typeof CHECKS;

/** `unknown`: it could not be checked. */
export type CheckState = 'ok' | 'warning' | 'failure' | 'unknown';

export interface Judgement {
  readonly state: CheckState;
  /** What was found, and what follows. */
  readonly text: string;
  readonly cure?: string | undefined;
}

export interface Check extends Judgement {
  readonly code: CheckCode;
}

export const ok = (text: string): Judgement => ({ state: 'ok', text });
export const warning = (text: string, cure: string): Judgement => ({ state: 'warning', text, cure });
export const failure = (text: string, cure: string): Judgement => ({ state: 'failure', text, cure });
export const unknown = (text: string, cure?: string): Judgement => ({ state: 'unknown', text, cure });

/** The problems, or `fine` without any. */
export function problemsOr(problems: readonly (Judgement | false)[], fine: Judgement): Seen {
  const found = problems.filter((each) => each !== false);
  return found.length > 0 ? found : fine;
}

export interface CheckOptions {
  readonly connection: KubeConnection;
  /** Linger's own namespace, or the one that it will be installed in. */
  readonly namespace: string;
  /** The name of its webhook configuration. */
  readonly configuration: string;
  /** The namespace for the dry-run pod. */
  readonly tryIn: string;
  /** Seconds since the epoch. */
  readonly now: number;
}

/** An object of a list; what lies deeper than its metadata is not validated. */
type Listed = RawObject & Json;

/** The requests of all checks; equal reads are sent once. Every method throws KubeFailure. */
export class Inquiry extends ApiReader {
  readonly options: CheckOptions;
  readonly #texts = new Map<string, Promise<string>>();
  readonly #lists = new Map<string, Promise<readonly Listed[]>>();

  constructor(options: CheckOptions) {
    super(options.connection);
    this.options = options;
  }

  override text(path: string): Promise<string> {
    const known = this.#texts.get(path) ?? super.text(path);
    this.#texts.set(path, known);
    return known;
  }

  /** @returns undefined if there is no such object */
  find(path: string): Promise<Json | undefined> {
    return unlessNotServed(this.json(path));
  }

  items(path: string, labelSelector?: string): Promise<readonly Listed[]> {
    const query = labelSelector === undefined ? {} : { labelSelector };
    const key = `${path} ${labelSelector}`;
    const known = this.#lists.get(key) ?? this.list({ path, query, project: (raw) => raw as Listed });
    this.#lists.set(key, known);
    return known;
  }
}

/** @returns undefined if there is no such object, or none of its kind */
export async function unlessNotServed<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (thrown) {
    if (asFailure(thrown).reason === 'NotServed') return undefined;
    throw thrown;
  }
}

/** A judgement for each line of the report. */
export type Seen = Judgement | readonly Judgement[];
type CheckFunction = (inquiry: Inquiry) => Promise<Seen>;

export async function inquire<T>(options: CheckOptions, work: (inquiry: Inquiry) => Promise<T>): Promise<T> {
  const inquiry = new Inquiry(options);
  try {
    return await work(inquiry);
  } finally {
    inquiry.close();
  }
}

/** Runs the checks one after the other; one that cannot be done becomes a line that says so. */
export async function checked(
  inquiry: Inquiry,
  functions: Partial<Readonly<Record<CheckCode, CheckFunction>>>,
): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const code of Object.keys(CHECKS) as readonly CheckCode[]) {
    const seen = (await functions[code]?.(inquiry).catch(unchecked)) ?? [];
    const judgements = [seen].flat();
    checks.push(...judgements.map((judgement) => ({ code, ...judgement })));
    // Without an answer, every further check would fail, too.
    const version = code === 'ApiServer' && inquiry.json('/version').catch(() => undefined);
    if (version !== false && (await version) === undefined) break;
  }
  return checks;
}

export function unchecked(thrown: unknown): Judgement {
  if (!(thrown instanceof KubeFailure) && !(thrown instanceof UserError)) throw thrown;
  const denied = thrown instanceof KubeFailure && thrown.reason === 'Forbidden';
  return unknown(
    `could not be checked: ${messageOf(thrown)}`,
    denied ? 'Use an account that has this right.' : undefined,
  );
}
