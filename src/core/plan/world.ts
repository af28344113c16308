import type { Fleet } from '../cluster/fleet.ts';
import type { NamespaceRecord } from '../cluster/namespaces.ts';
import { NO_SERVICES, type ServiceIndex } from '../cluster/services.ts';
import { CLUSTER_IP, type Consumer } from '../consumers/consumer.ts';
import type { LagSource } from '../lag/distribution.ts';
import { NONE_YET } from '../lag/planned-lags.ts';
import { NO_POLICIES, type PolicySet } from '../policy/policies.ts';
import type { Mode } from '../schema/choices.ts';

/** All that a decision knows beside the pod: one immutable value, replaced as a whole. */
export interface World {
  readonly policies: PolicySet;
  readonly namespaces: ReadonlyMap<string, NamespaceRecord>;
  readonly services: ServiceIndex;
  /** The built-in ones as well. */
  readonly consumers: readonly Consumer[];
  /** undefined: no cluster to ask; taken for a current one. */
  readonly fleet: Fleet | undefined;
  readonly lags: LagSource;
  /** The operator's cap on every layer's mode. */
  readonly modeLimit: Mode;
}

/** What is known before anything has been read. */
export const EMPTY_WORLD: World = {
  policies: NO_POLICIES,
  namespaces: new Map(),
  services: NO_SERVICES,
  consumers: [CLUSTER_IP],
  fleet: undefined,
  lags: NONE_YET,
  modeLimit: 'Enforce',
};
