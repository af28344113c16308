import type { ObjectFailureReason } from '../kube/object-request.ts';
import type { PublishedObject, Refusal } from '../measure/publication.ts';

/** What is asked of the API server by publishing. A metric's label. */
export const PUBLISH_OBJECTS = ['lease', 'planned', 'history', 'consumers', 'status'] as const;
export type PublishTarget = (typeof PUBLISH_OBJECTS)[number];

/** One of the ConfigMaps, as far as this replica knows. */
export interface PublishedState {
  /** When what is in use was written, by its writer's clock. Seconds since the epoch. */
  writtenAt: number | undefined;
  /** Of its contents. */
  bytes: number | undefined;
  /** By this replica. */
  writes: number;
  /** Why what is there now is not used; undefined: it is used, or there is nothing. */
  refusal: Refusal | undefined;
}

/** How publishing stands; grows as it goes on. What its metrics are made of. */
export interface PublishStatus {
  leading: boolean;
  /** Who leads; empty where nobody can say. */
  holder: string;
  /** The lease's transitions, as last seen. */
  term: number | undefined;
  readonly failures: Record<PublishTarget, Partial<Record<ObjectFailureReason, number>>>;
  /** `status`: of DiscoveryConsumers. */
  readonly published: Readonly<Record<PublishedObject | 'status', PublishedState>>;
}

export function newStatus(): PublishStatus {
  const nothing = () => ({ writtenAt: undefined, bytes: undefined, writes: 0, refusal: undefined });
  return {
    leading: false,
    holder: '',
    term: undefined,
    failures: { lease: {}, planned: {}, history: {}, consumers: {}, status: {} },
    published: { planned: nothing(), history: nothing(), consumers: nothing(), status: nothing() },
  };
}
