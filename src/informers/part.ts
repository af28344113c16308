import { watchReporting, watchReportingOf } from '../cluster/index.ts';
import { type FactsOf, fewOf } from '../core/api/index.ts';
import type { EndpointsChoice } from '../core/lag/index.ts';
import { type PartContext, part } from '../manager/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  type CustomKind,
  type CustomObjects,
  customKey,
  DISCOVERY_CONSUMERS,
  effectOf,
  followCustomResources,
  TERMINATION_POLICIES,
} from './custom-resources.ts';
import { followCluster } from './follow.ts';

/**
 * Follows Namespaces, Services, nodes, pods and endpoints: puts them into the snapshot, and passes their events to all
 * parts.
 */
export const clusterPart = part({
  name: 'cluster',
  needs: {},
  start(_, context: PartContext<{ readonly endpoints: EndpointsChoice }>) {
    const { connection, options, place, snapshot, sync, manager, logger, signal, clock, random } = context;
    const source = followCluster(
      connection,
      {
        onSnapshot: (change) => snapshot.apply(change),
        onEvent: manager.event,
        onPod: manager.pod,
        ...watchReporting(logger),
      },
      { signal, clock, random, namespace: place?.namespace, endpoints: options.endpoints },
    );
    return {
      provides: source,
      runnables: [
        {
          name: 'cluster',
          status: (): FactsOf<'cluster'> => ({ synced: sync.state === 'synced' }),
          watches: () => source.watches,
        },
      ],
      read: source.synced,
    };
  },
});

/** @param unread by the plural of a kind: the namespaces of which something is unknown, because they have no room */
export function unreadProblems(
  unread: Readonly<Record<string, ReadonlyMap<string, unknown>>>,
): readonly string[] {
  return Object.entries(unread).flatMap(([plural, namespaces]) =>
    namespaces.size === 0
      ? []
      : [
          `${plural} too large to keep, or without room in their namespace, unknown, in: ${fewOf([...namespaces.keys()])}`,
        ],
  );
}

/** Follows policies and consumers of the cluster: puts them into the snapshot, and logs those that cannot be used. */
export const declaredPart = part({
  name: 'declared',
  needs: {},
  start(_, context: PartContext<unknown>) {
    const { snapshot, changePolicies } = context;
    const consumers = follow(DISCOVERY_CONSUMERS, context, (values) =>
      snapshot.apply({ kind: 'consumers', consumers: values }),
    );
    const clusterPolicies = follow(CLUSTER_TERMINATION_POLICIES, context, (values) =>
      changePolicies({ kind: 'clusterPolicies', clusterPolicies: values }),
    );
    const policies = follow(TERMINATION_POLICIES, context, (values) =>
      changePolicies({ kind: 'policies', policies: values }),
    );
    const kinds: Readonly<Record<string, CustomObjects<unknown>>> = {
      discoveryconsumers: consumers,
      clusterterminationpolicies: clusterPolicies,
      terminationpolicies: policies,
    };
    // A kind that may not be read is included, so that alerts fire.
    const followed = () => Object.entries(kinds).filter(([, objects]) => objects.served() !== false);
    const read = Promise.all(Object.values(kinds).map((each) => each.read));
    return {
      provides: {
        consumers,
        clusterPolicies,
        policies,
        /** Which policies and consumers are invalid, and what applies instead. */
        problems: () =>
          Object.entries(kinds).flatMap(([plural, { objects, leftOut }]) => [
            ...objects()
              .filter(({ problem }) => problem !== undefined)
              .map((object) => `${customKey(object)}: ${object.problem}; ${effectOf(object)}`),
            ...(leftOut().length === 0 ? [] : [`no room for these ${plural}: ${fewOf(leftOut())}`]),
          ]),
        /** How many of each kind are invalid or have no room. */
        refused: () =>
          Object.fromEntries(
            followed().map(([plural, { objects, leftOut }]) => [
              plural,
              objects().filter(({ problem }) => problem !== undefined).length + leftOut().length,
            ]),
          ),
        /** Resolves once the API server has answered for each kind, even with a refusal. */
        read,
      },
      runnables: [
        {
          name: 'declared',
          watches: () => Object.fromEntries(followed().map(([plural, { stats }]) => [plural, stats])),
        },
      ],
      read,
    };
  },
});

function follow<T>(
  kind: CustomKind<T>,
  { connection, logger, signal, clock, random }: PartContext<unknown>,
  onValues: (values: readonly T[]) => Promise<void> | void,
): CustomObjects<T> {
  const of = { kind: kind.kind };
  let wasAbsent = false;
  const handlers = {
    onValues,
    onProblem: (name: string, problem: string | undefined) => {
      if (problem === undefined) logger.info({ ...of, name }, 'rejected object was fixed or deleted');
      else logger.warn({ ...of, name, problem }, 'object rejected');
    },
    onServed: (served: boolean) => {
      if (!served) logger.info(of, 'CRD not installed; only objects from files count');
      else if (wasAbsent) logger.info(of, 'CRD installed; its objects count');
      wasAbsent = !served;
    },
    ...watchReportingOf(kind.path.slice(kind.path.lastIndexOf('/') + 1), logger),
  };
  return followCustomResources(kind, connection, handlers, { signal, clock, random });
}
