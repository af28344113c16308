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

/** What is checked before and after installation, in the order of the report. */
export const CHECKS = {
  ApiServer: {
    when: 'both',
    means: 'It answers, and is 1.32 or later: [what has been run](../operations.md#kubernetes-versions).',
  },
  Rights: {
    when: 'both',
    means:
      "Before: you may get, create and patch each kind of `deploy/`; and the API server lets you grant the rights in its Roles. After: the replicas' ServiceAccount has all rights of `deploy/` that the flags of the Deployment need: follow the cluster, lead and publish, keep the certificate, flip the canary, audit, test the helper of Hold, write reports (right: create `subjectaccessreviews`).",
  },
  Kubelets: {
    when: 'both',
    means: "Every node's kubelet supports the native sleep (1.30).",
  },
  Admission: {
    when: 'before',
    means:
      "A dry run of a pod like Linger's own, with a plan (Pod Security *restricted*, and the resources of `deploy/deployment.yaml`), in its namespace if that exists (otherwise in `--namespace`, whose quotas then do not count): who rejects it, whether its native sleep and grace come back unchanged, and if not, what changes them (below). If Linger's namespace exists, the same in `--namespace`, as for an application's pod.",
  },
  CustomResources: {
    when: 'after',
    means: 'The API server serves the three kinds of `linger.dev`.',
  },
  Webhook: {
    when: 'both',
    means:
      "Before: no Linger in another namespace, whose webhook and rights an installation would take over, since their names are the same. After: the configuration exists and leads to ready replicas in this namespace, by a port of its Service; covers some namespace; leaves out Linger's own pods; has its conditions, and if it [fails closed](../operations.md#no-pod-without-linger) also those that a starting cluster needs.",
  },
  Certificate: {
    when: 'after',
    means:
      'The certificate in the Secret is valid, for the right name, renewed in time, and covered by the `caBundle`. Needs the right to get that Secret.',
  },
  Replicas: {
    when: 'after',
    means:
      'All declared replicas are ready, on more than one node; otherwise why not, by their status and the Events `FailedMount`.',
  },
  Ports: {
    when: 'after',
    means:
      "The `targetPort` of each Service that selects the replicas is a port of the containers, and one where replicas listen by the Deployment's flags.",
  },
  Answer: {
    when: 'after',
    means:
      "A dry run of a pod through the real webhook, with an unparsable annotation, so that Linger's warning identifies its answer in every mode. If the hook is taken away again, by what (below). In mode Audit it does not show what other webhooks do to hooks: `linger check --pre --namespace NAMESPACE` does. Without an answer, how far the API server's proxy gets (right: get `services/proxy`).",
  },
  OtherWebhooks: {
    when: 'both',
    means:
      "Webhooks that fail closed and cover pods of Linger's namespace, and whether they have endpoints; which mutating ones run after Linger. `Admission` and `Answer` name what those took from one pod.",
  },
  Floor: {
    when: 'both',
    means:
      'Before: whether this API server can have [the floor](../when-linger-is-down.md#the-floor), whether the chart switches it on, and from 1.37 on whether you may create it. After: its policy is there, and bound to the ConfigMap `linger-floor` in this namespace; that is not out of date, has room for all namespaces and no line that cannot be read; the API server that answers has evaluated the policy without errors (right: get `/metrics`). Without a floor, how to switch it on.',
  },
  NetworkPolicy: {
    when: 'after',
    means:
      "The policies that select the replicas allow ingress to 8443, the admin port and 8445 (or what the Deployment's flags say), and egress to the API servers' port: that of the EndpointSlices of `default/kubernetes`, or 443 or 6443 if these may not be listed. In namespaces where policies ask for hook `Hold`, no policy keeps pods from 8445 in Linger's namespace. Addresses are not compared.",
  },
  Leader: {
    when: 'after',
    means:
      'The Lease has a holder that renews it and is a pod of Linger: another process that renews it keeps every replica from leading.',
  },
  Watches: {
    when: 'after',
    means:
      'Each ready replica has read the cluster, and its watches are current: its `/status`, through the API server’s proxy (right: get `pods/proxy`).',
  },
  Canary: {
    when: 'after',
    means: 'At least one flip has measured something, read in the same way.',
  },
  Consumers: {
    when: 'after',
    means:
      "No consumer's condition is False, as [the leader publishes it](consumers.md#linger-consumers); each has sent to a held pod within 7 days, as far as its instances are known; and nothing sends that is not declared, by the [catalogue](../guide.md#find-the-consumers) and by what held pods have seen.",
  },
  Policies: {
    when: 'after',
    means:
      "No policy object's condition `Ready` is False, and no document of the ConfigMap `linger-policies` is broken. The number of policies in files and as objects, and the mode of a pod without labels in `--namespace`, with its origin.",
  },
  HoldHelper: {
    when: 'after',
    means:
      'If policies ask for hook `Hold`: it is not off (`--hold-port=0`), the Service `linger-hold` exists, its [ConfigMap](../operations.md#the-helper-of-hold) exists and is not being deleted, and pods that may run on any node get it; otherwise the reason, as in the note `HoldUnavailable`. In any case, how many running pods call [an address that the Service no longer has](../operations.md#the-address-of-hold).',
  },
} as const satisfies Readonly<Record<string, Explained & { readonly when: 'before' | 'after' | 'both' }>>;

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
export type ListedObject = RawObject & Json;

/** The requests of all checks; equal reads are sent once. Every method throws KubeFailure. */
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
