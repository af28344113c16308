const KIB = 1024;
const MIB = 1024 * KIB;

/** Bounds on foreign input, applied before it is parsed or kept. */
export interface ForeignLimit {
  readonly from: string;
  /** The most bytes of one input that are read; a longer one is rejected or left out. */
  readonly bytes: number;
  /** The most parts of one input; undefined: as many as fit into its bytes. */
  readonly parts?: { readonly most: number; readonly what: string };
  /** The deepest nesting; undefined: reading takes no recursion, so any depth that fits into its bytes. */
  readonly depth?: number;
  /** The most steps for reading one input, as its reader counts them ({@link Budget}); undefined: its reader counts none. */
  readonly steps?: number;
  /** The most bytes that are parsed on the event loop at a time. */
  readonly loopBytes: number;
  /** What happens to an input beyond the limits. */
  readonly beyond: string;
}

/**
 * Every source of bytes that are not Linger's own. Parsers take their limits from here. The threat model contains this
 * table, and a test compares the two.
 */
export const FOREIGN_LIMITS = {
  review: {
    from: 'clients of port 8443',
    bytes: 7 * MIB,
    parts: { most: 500_000, what: 'JSON values' },
    loopBytes: 32 * KIB,
    beyond: 'a thread, for 3 s',
  },
  hook: {
    from: 'authors of pods, by the commands of hooks',
    bytes: 4 * KIB,
    parts: { most: 64, what: 'words' },
    // Levels of nested shells.
    depth: 2,
    // Four for each character, because a script inside a script is read twice, and words count as well.
    steps: 16 * KIB,
    loopBytes: 4 * KIB,
    beyond: 'the hook waits for an unknown time',
  },
  watch: {
    from: 'writers of followed objects: tenants',
    bytes: 16 * MIB,
    parts: { most: 128, what: 'labels' },
    loopBytes: 32 * KIB,
    beyond: 'labels and annotations are skipped as bytes',
  },
  related: {
    from: 'writers of what audits read beside workloads: tenants',
    // A page of a list; an API server stores objects of up to 1.5 MiB.
    bytes: 16 * MIB,
    parts: { most: 8 * KIB, what: 'entries of lists and labels' },
    depth: 8,
    // One step for each entry or label: some 10 ms.
    steps: 8 * KIB,
    loopBytes: 16 * MIB,
    beyond: 'the object counts as unknown, and the audit says so',
  },
  page: {
    from: 'inspected gateways',
    bytes: 16 * MIB,
    parts: { most: 200, what: 'columns' },
    loopBytes: 16 * KIB,
    beyond: 'in pieces, for a fifth of the time',
  },
  push: {
    from: 'followed istiods',
    // A push of all Services: istiod writes some 200 bytes for an endpoint. Two of them, and what is kept, leave the container
    // half of its 512 MiB.
    bytes: 16 * MIB,
    parts: { most: 2_000_000, what: 'fields' },
    loopBytes: 16 * KIB,
    beyond: 'nothing is known of it',
  },
  report: {
    from: 'consumers that report',
    bytes: 4 * KIB,
    loopBytes: 4 * KIB,
    beyond: 'refused',
  },
  attempts: {
    from: 'node timers',
    bytes: 64 * KIB,
    parts: { most: 1_024, what: 'attempts' },
    loopBytes: 64 * KIB,
    beyond: 'refused',
  },
  helper: {
    from: 'helpers in held pods',
    bytes: 512,
    parts: { most: 16, what: 'addresses' },
    loopBytes: 512,
    beyond: 'the connection is closed',
  },
  policy: {
    from: 'operators, by policy files',
    bytes: 4 * MIB,
    parts: { most: 100_000, what: 'aliased nodes' },
    depth: 500,
    loopBytes: 0,
    beyond: 'a thread',
  },
  certificate: {
    from: 'writers of the Secret or of files',
    bytes: 1 * MIB,
    loopBytes: 1 * MIB,
    beyond: 'refused',
  },
  proc: {
    from: 'the helper’s own pod',
    bytes: 16 * KIB,
    parts: { most: 16, what: 'addresses' },
    loopBytes: 0,
    beyond: 'read in the pod, piece by piece',
  },
} as const satisfies Readonly<Record<string, ForeignLimit>>;

export type ForeignSource = keyof typeof FOREIGN_LIMITS;

/** The limits of a reader that counts its steps. */
export interface ReaderLimits extends Required<Pick<ForeignLimit, 'bytes' | 'depth' | 'steps'>> {
  readonly parts: { readonly most: number };
}

/**
 * What reading one foreign input may still cost, counted in steps of its reader rather than in time, so that a busy machine
 * makes no difference. A reader that has spent it answers *unknown*.
 */
export class Budget {
  readonly limits: ReaderLimits;
  #spent = 0;

  constructor(limits: ReaderLimits) {
    this.limits = limits;
  }

  spend(steps = 1): void {
    this.#spent += steps;
  }

  get spent(): number {
    return this.#spent;
  }

  get isSpent(): boolean {
    return this.#spent > this.limits.steps;
  }
}

/**
 * Sets an entry of a Map that keeps a limited number: those that were set last. Relies on the order of insertion in a Map.
 */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > most) map.delete(oldest as K);
}
