import type { Fleet } from '../core/cluster/fleet.ts';
import { type ServiceIndex, serviceIndex } from '../core/cluster/services.ts';
import { CLUSTER_IP, type Consumer, consumerOf } from '../core/consumers/consumer.ts';
import type { LagSource } from '../core/lag/distribution.ts';
import { EMPTY_WORLD, type World } from '../core/plan/world.ts';
import { policySet } from '../core/policy/policies.ts';
import type { Mode } from '../core/schema/choices.ts';
import type { Documents } from './documents.ts';

/**
 * What can change the world. Sources emit these; each later source adds a kind of its own.
 *
 * `namespaces` and `services` are what the cluster has: from the first of them on, the Namespaces and Services of the
 * documents no longer count, since files can only say what somebody once believed of the cluster. `consumers` are those
 * that the cluster declares; they stand beside those of the documents, and win where both have one of the same name.
 */
export type WorldEvent =
  | { readonly kind: 'documents'; readonly documents: Documents }
  | { readonly kind: 'namespaces'; readonly namespaces: World['namespaces'] }
  | { readonly kind: 'services'; readonly services: ServiceIndex }
  | { readonly kind: 'consumers'; readonly consumers: readonly Consumer[] }
  | { readonly kind: 'fleet'; readonly fleet: Fleet }
  | { readonly kind: 'lags'; readonly lags: LagSource };

/** The world in force, and the one function that replaces it. */
export interface WorldHolder {
  /** The current world: a value that never changes under its reader. */
  current(): World;
  apply(event: WorldEvent): void;
  /** The consumers of the documents that do not count, because the cluster has others of their names. */
  shadowed(): readonly string[];
}

/** The single writer: an event comes in, and a new immutable world is swapped in as a whole. */
export function holdWorld(modeLimit: Mode): WorldHolder {
  let world: World = { ...EMPTY_WORLD, modeLimit };
  const ofCluster: { -readonly [K in 'namespaces' | 'services']?: World[K] } = {};
  const declared: { files: readonly Consumer[]; cluster: readonly Consumer[] } = { files: [], cluster: [] };
  return {
    current: () => world,
    apply: (event) => {
      if (event.kind === 'namespaces') ofCluster.namespaces = event.namespaces;
      if (event.kind === 'services') ofCluster.services = event.services;
      if (event.kind === 'documents') declared.files = consumersIn(event.documents);
      if (event.kind === 'consumers') declared.cluster = event.consumers;
      world = { ...changed(world, event), ...ofCluster };
      if (event.kind === 'documents' || event.kind === 'consumers')
        world = { ...world, consumers: joinConsumers(declared.files, declared.cluster) };
    },
    shadowed: () => {
      const names = new Set(declared.cluster.map(({ name }) => name));
      return declared.files.filter(({ name }) => names.has(name)).map(({ name }) => name);
    },
  };
}

/** The built-in ones, those of files, and those of the cluster, which win. */
export function joinConsumers(files: readonly Consumer[], cluster: readonly Consumer[]): readonly Consumer[] {
  const names = new Set(cluster.map(({ name }) => name));
  return [CLUSTER_IP, ...files.filter(({ name }) => !names.has(name)), ...cluster];
}

export function consumersIn({ consumers }: Documents): readonly Consumer[] {
  return consumers.map(({ metadata, spec }) => consumerOf(metadata.name, spec));
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
    consumers: joinConsumers(consumersIn(documents), []),
  };
}
