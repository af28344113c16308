/** The facts that show whether pods created now get a hook. A member is undefined if it is not known. */
export interface HookFacts {
  /** The name of the MutatingWebhookConfiguration. */
  readonly configuration: string;
  readonly configured: boolean | undefined;
  /** The replicas of Linger. */
  readonly replicas?: { readonly wanted: number; readonly ready: number } | undefined;
  /** Why the configuration, though it exists, leads to no ready replica or is never used. */
  readonly astray?: Way | undefined;
  /** Whether the configuration trusts the certificate that replicas serve. */
  readonly trusted: boolean | undefined;
  /** Whether pods are rejected when Linger does not answer. */
  readonly failsClosed?: boolean | undefined;
  /** Whether the floor's policy in the API server gives pods a wait instead. */
  readonly floor?: boolean | undefined;
}

/** An obstacle, and how to remove it. */
export interface Way {
  readonly text: string;
  readonly cure?: string | undefined;
}

export interface HooksNow {
  /** null: not known. */
  readonly given: boolean | null;
  /** Why pods get no hooks, as a clause. */
  readonly why?: string;
  /** A full sentence, present if pods get no hooks: the first line of every summary of Linger's state. */
  readonly headline?: string;
}

const RESTORE = 'kubectl apply --kustomize deploy/, or helm upgrade';

/** Whether pods get hooks at this moment. Shared by status, check, audit, the page and the metric. */
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
