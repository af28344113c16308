import { isString, type LingerKind, listOf } from '../api/index.ts';
import {
  type CustomObject,
  type CustomObjects,
  customKey,
  type GoodSpec,
  type KubeConnection,
  type LastGood,
} from '../cluster/index.ts';
import { Backoff, pause, Schedule } from '../timing/index.ts';
import { type ConfigMap, LAST_GOOD_KEY, notOurs, packPart, SHARED_NAMES, unpackPart } from './codec.ts';
import { type PublishContext, publish } from './publish-status.ts';
import { readConfigMap } from './store.ts';

/** The last good specs, by kind and then by namespace and name. */
type Specs = ReadonlyMap<string, ReadonlyMap<string, GoodSpec>>;

/** One entry of what is stored: kind, key, uid, spec. */
type Entry = readonly [kind: string, key: string, uid: string, spec: string];

/** Characters of JSON, which compress to a tenth: some 1,500 policies of the usual size. */
const MOST_CHARACTERS = 900_000;

async function specsIn(configMap: ConfigMap | undefined): Promise<Specs> {
  const packed = notOurs(configMap) === undefined ? configMap?.binaryData?.[LAST_GOOD_KEY] : undefined;
  const json = packed === undefined ? undefined : (await unpackPart(packed)).json;
  const specs = new Map<string, Map<string, GoodSpec>>();
  for (const entry of listOf(json)) {
    if (!Array.isArray(entry) || !entry.every(isString)) continue;
    const [kind = '', key = '', uid = '', spec = ''] = entry;
    const ofKind = specs.get(kind) ?? new Map<string, GoodSpec>();
    specs.set(kind, ofKind.set(key, { uid, spec }));
  }
  return specs;
}

/** How long policies wait for the shared specs; after that a broken policy is judged without them. */
const SETTLED_WITHIN_MS = 4_000;
const REQUEST_MS = 2_000;

/** Reads the shared last good specs once, retrying until it succeeds. */
export function readLastGood(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
  onFailure: (thrown: unknown, pauseMs: number) => void,
): LastGood {
  let specs: Specs | undefined;
  const read = (async () => {
    const backoff = new Backoff({ firstPauseMs: 500, longestPauseMs: 60_000 }, Math.random);
    while (!signal.aborted) {
      try {
        const call = { signal, withinMs: REQUEST_MS };
        specs = await specsIn(await readConfigMap(connection, namespace, SHARED_NAMES.policies, call));
        return;
      } catch (thrown) {
        const pauseMs = backoff.next();
        if (!signal.aborted) onFailure(thrown, pauseMs);
        await pause(pauseMs, signal);
      }
    }
    await new Promise<never>(() => undefined);
  })();
  return {
    read,
    settled: Promise.race([read, pause(SETTLED_WITHIN_MS, signal)]),
    of: (kind) => specs && (specs.get(kind) ?? new Map()),
  };
}

/** The policies whose good specs are to be stored. */
export interface SharedPolicies {
  readonly policies: Readonly<Partial<Record<LingerKind, Pick<CustomObjects<unknown>, 'known' | 'objects'>>>>;
  /** What was stored when this replica started. */
  readonly stored: LastGood;
}

/** Stores the good spec of every policy for as long as this replica leads: whenever one has changed. */
export class LastGoodPublisher {
  readonly #term: PublishContext;
  readonly #shared: SharedPolicies;
  readonly #schedule: Schedule;
  #lookAt = Number.NEGATIVE_INFINITY;
  #written: string | undefined;

  constructor(term: PublishContext, shared: SharedPolicies) {
    const { limits, time } = term;
    this.#term = term;
    this.#shared = shared;
    this.#schedule = new Schedule({ everyMs: limits.statusLookMs, ...limits }, time.clock(), time.random);
  }

  /** To be called again and again. Never throws. */
  async tick(signal: AbortSignal): Promise<void> {
    const { limits, time } = this.#term;
    const { policies, stored } = this.#shared;
    const now = time.clock();
    if (now < this.#lookAt || !this.#schedule.due(now)) return;
    this.#lookAt = now + limits.statusLookMs;
    // Writing before the stored specs have been read would lose them.
    if (stored.of('TerminationPolicy') === undefined) return;
    if (!Object.values(policies).every((each) => each.known())) return;
    const text = JSON.stringify(this.#entries());
    if (text === this.#written) return;
    const contentOf = async () => ({ binaryData: { [LAST_GOOD_KEY]: await packPart(text) } });
    if (await publish(this.#term, 'policies', this.#schedule, signal, contentOf)) this.#written = text;
  }

  /**
   * As many specs as there is room for: first those of broken objects, which need them now; namespaces take turns, so
   * that none crowds out the others.
   */
  #entries(): readonly Entry[] {
    const found: { readonly entry: Entry; readonly rank: number }[] = [];
    for (const [kind, { objects }] of Object.entries(this.#shared.policies)) {
      const ranks = new Map<string, number>();
      for (const object of objects()) {
        const spec = object.good ?? this.#storedOf(kind as LingerKind, object);
        if (spec === undefined) continue;
        const rank = ranks.get(object.namespace) ?? 0;
        ranks.set(object.namespace, rank + 1);
        const entry = [kind, customKey(object), object.uid, spec] as const;
        found.push({ entry, rank: object.problem === undefined ? rank : -1 });
      }
    }
    let left = MOST_CHARACTERS;
    return found
      .toSorted((a, b) => a.rank - b.rank)
      .flatMap(({ entry }) => {
        left -= entry.reduce((sum, { length }) => sum + 2 * length, 16);
        return left < 0 ? [] : [entry];
      });
  }

  /** The stored spec, kept because a newer version may be able to read it. */
  #storedOf(kind: LingerKind, object: CustomObject<unknown>): string | undefined {
    const stored = this.#shared.stored.of(kind)?.get(customKey(object));
    return stored?.uid === object.uid ? stored.spec : undefined;
  }
}
