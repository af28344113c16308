/** What decides whether pods that are created now get a hook. A member is undefined where it is not known. */
export interface HookFacts {
  /** The name of the MutatingWebhookConfiguration. */
  readonly configuration: string;
  readonly configured: boolean | undefined;
  /** Linger’s own. */
  readonly replicas?: { readonly wanted: number; readonly ready: number } | undefined;
  /** Why the configuration leads to no ready replica, or is never used, though it is there. */
  readonly astray?: Way | undefined;
  /** Whether the configuration trusts the certificate that replicas serve. */
  readonly trusted: boolean | undefined;
  /** Whether pods are rejected where Linger does not answer. */
  readonly failsClosed?: boolean | undefined;
  /** Whether a policy in the API server gives pods a wait meanwhile. */
  readonly floor?: boolean | undefined;
}

/** An obstacle, and the way out. */
export interface Way {
  readonly text: string;
  readonly cure?: string | undefined;
}

export interface HooksNow {
  /** null: not known. */
  readonly given: boolean | null;
  /** Why not, as a clause. */
  readonly why?: string;
  /** A full sentence: the first line of whatever sums Linger up, where pods get none. */
  readonly headline?: string;
}

const RESTORE = 'kubectl apply --kustomize deploy/, or helm upgrade';

/** Whether pods get hooks at this moment: asked by status, check, audit, the page and the metric. */
export function hooksNow(facts: HookFacts): HooksNow {
  const { configured, replicas, trusted, failsClosed, floor } = facts;
  const obstacle = obstacleIn(facts);
  if (obstacle === undefined) {
    const isKnown = configured === true && (replicas !== undefined || trusted !== undefined);
    return { given: isKnown ? true : null };
  }
  const { text: why, cure } = obstacle;
  const instead = floor ? 'get the wait of the floor instead of a hook' : 'get no hook';
  const effect = failsClosed && configured !== false ? 'cannot be created' : instead;
  const way = cure === undefined ? '' : `; to cure it: ${cure.replace(/\.$/, '')}`;
  return { given: false, why, headline: `New pods ${effect} at this moment: ${why}${way}.` };
}

function obstacleIn({ configuration, configured, replicas, astray, trusted }: HookFacts): Way | undefined {
  if (configured === false)
    return { text: `there is no MutatingWebhookConfiguration ${configuration}`, cure: RESTORE };
  if (replicas?.wanted === 0)
    return {
      text: 'the Deployment linger is scaled to 0 replicas',
      cure: 'kubectl scale deployment/linger --replicas=2, in its namespace',
    };
  if (replicas?.ready === 0) return { text: 'no replica of Linger is ready', cure: 'linger check says why' };
  if (astray !== undefined) return astray;
  if (trusted === false)
    return {
      text: `the caBundle of ${configuration} does not match the certificate of the replicas`,
      cure: 'linger check, line Certificate',
    };
  return undefined;
}
