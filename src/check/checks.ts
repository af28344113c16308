import {
  ApiReader,
  asFailure,
  type Json,
  type KubeConnection,
  KubeFailure,
  messageOf,
  type RawObject,
} from '../cluster/index.ts';
import { type Explained, UserError } from '../core/api/index.ts';

/** All checks, before and after installation, in the order of the report. */
export const CHECKS = {
  ApiServer: {
    when: 'both',
    means: 'It answers, and is [1.32 or later](../install.md#kubernetes-versions).',
  },
  Rights: {
    when: 'both',
    means:
      "Before: you may apply `deploy/`. After: the replicas' ServiceAccount has all permissions that they need (right: create `subjectaccessreviews`).",
  },
  Kubelets: {
    when: 'both',
    means: "Every node's kubelet supports the native sleep (1.30).",
  },
  Admission: {
    when: 'before',
    means:
      "Before: who rejects a pod like Linger's own with a plan, and who changes its sleep or grace (below), also in `--namespace`.",
  },
  CustomResources: {
    when: 'after',
    means: 'The API server serves the three kinds of `linger.dev`.',
  },
  Webhook: {
    when: 'both',
    means:
      'Before: no Linger in another namespace. After: the configuration leads to ready replicas, covers some namespace, and has [its conditions](../install.md#no-pod-without-linger).',
  },
  Certificate: {
    when: 'after',
    means:
      'The certificate is valid, for the right name, renewed in time, and covered by the `caBundle`. Needs the permission to get that Secret.',
  },
  Replicas: {
    when: 'after',
    means: 'All declared replicas are ready, on more than one node; otherwise why not.',
  },
  Ports: {
    when: 'after',
    means: 'The `targetPort` of each Service is one where replicas listen.',
  },
  Answer: {
    when: 'after',
    means:
      'A dry run of a pod reaches Linger through the real webhook; if its hook is taken away again, by what (below). Without an answer, how far the proxy gets (right: get `services/proxy`).',
  },
  OtherWebhooks: {
    when: 'both',
    means: "Webhooks that fail closed and cover Linger's own pods; mutating ones that run after Linger.",
  },
  Floor: {
    when: 'both',
    means:
      'Before: whether this API server can have [the floor](../when-linger-is-down.md#the-floor), the chart switches it on, and you may create it. After: policy and binding are as this version installs them, up to date, with room for all namespaces, and evaluated without errors (right: get `/metrics`).',
  },
  NetworkPolicy: {
    when: 'after',
    means:
      'Policies allow [the ports](operations.md#ports), also 8445 from namespaces that ask for `Hold`. Addresses are not compared.',
  },
  Leader: {
    when: 'after',
    means: 'The Lease has a holder that renews it and is a pod of Linger.',
  },
  Watches: {
    when: 'after',
    means: 'Each ready replica has read the cluster, and its watches are current (right: get `pods/proxy`).',
  },
  Canary: {
    when: 'after',
    means: 'At least one flip has measured something.',
  },
  Consumers: {
    when: 'after',
    means:
      'No condition is False; each has sent to a held pod within 7 days; and nothing sends that is not [declared](../gateways.md#find-the-consumers).',
  },
  Policies: {
    when: 'after',
    means: 'No policy is broken; the mode of a pod without labels in `--namespace`.',
  },
  HoldHelper: {
    when: 'after',
    means:
      'If policies ask for `Hold`: its port, Service and [helper](operations.md#the-helper-of-hold) are there, on every node; no running pod calls [an address that the Service no longer has](operations.md#the-address-of-hold).',
  },
} as const satisfies Readonly<Record<string, Explained & { readonly when: 'before' | 'after' | 'both' }>>;

export type CheckCode = keyof typeof CHECKS;

/** `unknown`: it could not be checked. */
export type CheckState = 'ok' | 'warning' | 'failure' | 'unknown';

export interface Judgement {
  readonly state: CheckState;
  /** What was found, and its consequence. */
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

/** The problems, or `fine` if there are none. */
export function problemsOr(problems: readonly (Judgement | false)[], fine: Judgement): Seen {
  const found = problems.filter((each) => each !== false);
  return found.length > 0 ? found : fine;
}

export interface CheckOptions {
  readonly connection: KubeConnection;
  /** Linger's own namespace, or the one that it will be installed in. */
  readonly namespace: string;
  /** The name of Linger's webhook configuration. */
  readonly configuration: string;
  /** The namespace for the dry-run pod. */
  readonly tryIn: string;
  /** Seconds since the epoch. */
  readonly now: number;
}

/** An object in a list. Members other than its metadata are not validated. */
export type ListedObject = RawObject & Json;

/** The requests of all checks. Equal reads are sent only once. Every method throws KubeFailure. */
export class Inquiry extends ApiReader {
  readonly options: CheckOptions;
  readonly #texts = new Map<string, Promise<string>>();
  readonly #lists = new Map<string, Promise<readonly ListedObject[]>>();

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

  items(path: string, labelSelector?: string): Promise<readonly ListedObject[]> {
    const query = labelSelector === undefined ? {} : { labelSelector };
    const key = `${path} ${labelSelector}`;
    const known = this.#lists.get(key) ?? this.list({ path, query, project: (raw) => raw as ListedObject });
    this.#lists.set(key, known);
    return known;
  }
}

/** @returns undefined if there is no such object, or if its kind is not served */
export async function unlessNotServed<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (thrown) {
    if (asFailure(thrown).reason === 'NotServed') return undefined;
    throw thrown;
  }
}

/** One judgement for each line of the report. */
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

/** Runs the checks one after the other. If a check cannot be made, its line says so. */
export async function checked(
  inquiry: Inquiry,
  functions: Partial<Readonly<Record<CheckCode, CheckFunction>>>,
): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const code of Object.keys(CHECKS) as readonly CheckCode[]) {
    const seen = (await functions[code]?.(inquiry).catch(unchecked)) ?? [];
    const judgements = [seen].flat();
    checks.push(...judgements.map((judgement) => ({ code, ...judgement })));
    // If the API server does not answer, every further check would fail as well.
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
