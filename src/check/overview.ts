import { messageOf } from '../cluster/index.ts';
import { fewOf, type Overview, type ReplicaStatus } from '../core/api/index.ts';
import type { Inquiry } from './checks.ts';
import { floorState } from './floor.ts';
import { hooksNowIn } from './hooks-now.ts';
import {
  isHolder,
  leaseOf,
  replicaPods,
  replicaStatuses,
  sumOf,
  UNREACHED_UNKNOWN,
  unreachedIn,
} from './replicas.ts';

/** What ready replicas report, of which there is at least one. */
interface Said {
  /** By the names of their pods. */
  readonly replicas: ReadonlyMap<string, ReplicaStatus>;
  /** Names of pods that are not ready, and so were not asked. */
  readonly unasked: readonly string[];
  readonly leader: Overview['leader'];
  /** Called with the reason why something is unknown. */
  readonly unseen: (line: string) => void;
}

/**
 * How the reports of all replicas are combined into one fact of the overview. `elsewhere`: checks or the headline show it.
 */
type Combined<Fact> = Fact extends keyof Overview ? (said: Said) => Overview[Fact] : 'elsewhere';

const FACTS: { readonly [Fact in keyof ReplicaStatus]-?: Combined<Fact> } = {
  synced: 'elsewhere',
  watches: 'elsewhere',
  trusted: 'elsewhere',
  flips: 'elsewhere',
  /** The sum, because each review reaches only one replica. */
  decisions({ replicas, unasked, unseen }) {
    if (unasked.length > 0)
      unseen(`decisions: those of ${fewOf(unasked)}, which ${unasked.length === 1 ? 'is' : 'are'} not ready`);
    const all = [...replicas].map(([replica, { decisions }]) => ({ replica, ...decisions }));
    return {
      outcomes: sumOf(all.map(({ outcomes }) => outcomes)),
      skips: sumOf(all.map(({ skips }) => skips)),
      started: all
        .map(({ replica, seconds }) => ({ replica, seconds: seconds ?? null }))
        .filter(({ seconds }) => seconds === null || seconds < 3_600),
    };
  },
  /** The leader's number, because other replicas hold no pods. */
  held({ replicas, leader, unseen }) {
    if ([...replicas.values()].every(hasNoHold)) return 0;
    const notKnown = (why: string) => {
      unseen(`held: ${why}`);
      return null;
    };
    if (leader === null) return notKnown('which replica leads is not known');
    const status = [...replicas].find(([pod]) => isHolder(leader.name, pod))?.[1];
    if (status === undefined) return notKnown(`${leader.name} leads and was not asked: it is not ready`);
    if (hasNoHold(status)) return 0;
    const { held } = status;
    return held ?? notKnown(`${leader.name} does not know yet: hooks call a new leader within seconds`);
  },
  /** The maximum, because all replicas see the same pods. */
  unreached({ replicas, unseen }) {
    const unreached = unreachedIn([...replicas.values()]);
    if (unreached === undefined) unseen(UNREACHED_UNKNOWN);
    return unreached ?? null;
  },
  /** The leader's audit, because other replicas make none. */
  audit({ replicas }) {
    const audit = [...replicas.values()].map((each) => each.audit).find((each) => each !== null);
    return audit === undefined ? null : { verdicts: audit.verdicts, findings: counted(audit.findings) };
  },
};

/** Makes each request independently, so that a missing right costs only one line. */
export async function overviewOf(inquiry: Inquiry): Promise<Overview> {
  const lines: string[] = [];
  const unseen = (line: string) => void lines.push(line);
  const attempt = async <T>(what: string, ask: () => Promise<T>): Promise<T | null> => {
    try {
      return await ask();
    } catch (thrown) {
      unseen(`${what}: ${messageOf(thrown)}`);
      return null;
    }
  };
  const hooks = await hooksNowIn(inquiry);
  const pods = await attempt('replicas', () => replicaPods(inquiry));
  const leader = (await attempt('leader', () => leaseOf(inquiry))) ?? null;
  const replicas = await attempt('status', () => replicaStatuses(inquiry));
  if (replicas?.size === 0) unseen('status: no replica is ready, so none was asked');
  const unasked = (pods ?? []).filter(({ ready }) => !ready).map(({ name }) => name);
  const combined = <T>(combine: (said: Said) => T) =>
    replicas === null || replicas.size === 0 ? null : combine({ replicas, unasked, leader, unseen });
  return {
    hooks,
    replicas: pods && { ready: pods.filter(({ ready }) => ready).length, all: pods.length },
    leader,
    decisions: combined(FACTS.decisions),
    held: combined(FACTS.held),
    unreached: combined(FACTS.unreached),
    audit: combined(FACTS.audit),
    floor: await attempt('floor', () => floorState(inquiry)),
    unseen: lines,
  };
}

/** Replicas of an earlier version without a Hold Service do not report `unreached`. */
function hasNoHold({ held, unreached }: ReplicaStatus): boolean {
  return held === null && unreached == null;
}

function counted(findings: NonNullable<ReplicaStatus['audit']>['findings']) {
  const counts = [...Map.groupBy(findings, ({ reason }) => reason)].map(([reason, each]) => ({
    reason,
    workloads: each.reduce((sum, { count }) => sum + count, 0),
    namespaces: each.map(({ namespace }) => namespace),
  }));
  return counts.toSorted((a, b) => b.workloads - a.workloads);
}
