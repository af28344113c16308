import type { Fleet } from '../core/cluster/fleet.ts';
import { EVERYTHING } from '../core/cluster/selector.ts';
import { type ServiceIndex, serviceIndex } from '../core/cluster/services.ts';
import type { LagSource } from '../core/lag/distribution.ts';
import type { ConsumerRecord } from '../core/plan/serving.ts';
import { EMPTY_WORLD, type World } from '../core/plan/world.ts';
import { policySet } from '../core/policy/policies.ts';
import type { Mode } from '../core/schema/choices.ts';
import type { DiscoveryConsumer } from '../core/schema/documents.ts';
import type { Documents } from './documents.ts';

/**
 * What can change the world. Sources emit these; each later source adds a kind of its own.
 *
 * `namespaces` and `services` are what the cluster has: from the first of them on, the Namespaces and Services of the
 * documents no longer count, since files can only say what somebody once believed of the cluster.
 */
export type WorldEvent =
  | { readonly kind: 'documents'; readonly documents: Documents }
  | { readonly kind: 'namespaces'; readonly namespaces: World['namespaces'] }
  | { readonly kind: 'services'; readonly services: ServiceIndex }
  | { readonly kind: 'fleet'; readonly fleet: Fleet }
  | { readonly kind: 'lags'; readonly lags: LagSource };

/** The world in force, and the one function that replaces it. */
export interface WorldHolder {
  /** The current world: a value that never changes under its reader. */
  current(): World;
  apply(event: WorldEvent): void;
}

/** The single writer: an event comes in, and a new immutable world is swapped in as a whole. */
export function holdWorld(modeLimit: Mode): WorldHolder {
  let world: World = { ...EMPTY_WORLD, modeLimit };
  const ofCluster: { -readonly [K in 'namespaces' | 'services']?: World[K] } = {};
  return {
    current: () => world,
    apply: (event) => {
      if (event.kind === 'namespaces') ofCluster.namespaces = event.namespaces;
      if (event.kind === 'services') ofCluster.services = event.services;
      world = { ...changed(world, event), ...ofCluster };
    },
  };
}

function changed(world: World, event: WorldEvent): World {
  switch (event.kind) {
    case 'documents':
      return withDocuments(world, event.documents);
    case 'fleet':
      return { ...world, fleet: event.fleet };
    case 'lags':
      return { ...world, lags: event.lags };
    default:
      return world;
  }
}

/** The world in which these documents, and no others, are in force. */
export function withDocuments(world: World, documents: Documents): World {
  return {
    ...world,
    policies: policySet(documents.clusterPolicies, documents.policies),
    namespaces: new Map(documents.namespaces.map((namespace) => [namespace.name, namespace])),
    // Files say what they say; that a namespace has no Service in them does not mean that it has none.
    services: serviceIndex(documents.services, false),
    consumers: documents.consumers.map(consumerRecord),
  };
}

function consumerRecord({ metadata, spec }: DiscoveryConsumer): ConsumerRecord {
  const { namespaceSelector = EVERYTHING, podSelector } = spec.appliesTo ?? {};
  return { name: metadata.name, namespaceSelector, podSelector };
}
