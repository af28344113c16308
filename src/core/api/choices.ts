// The words that policies and annotations choose from.

export const MODES = ['Enforce', 'Audit', 'Off'] as const;
export type Mode = (typeof MODES)[number];
export const POD_SCOPES = ['Serving', 'Selected', 'All'] as const;
export type PodScope = (typeof POD_SCOPES)[number];
/** The kinds that own pods directly. Pods of a Deployment belong to its ReplicaSet, those of a CronJob to its Job. */
export const EXCLUDABLE_KINDS = ['Job', 'DaemonSet', 'StatefulSet', 'ReplicaSet'] as const;
export type ExcludableKind = (typeof EXCLUDABLE_KINDS)[number];
export const WAIT_SOURCES = ['Measured', 'Fixed'] as const;
export type WaitSource = (typeof WAIT_SOURCES)[number];
export const EXISTING_HOOK_RULES = ['Keep', 'Extend'] as const;
export type ExistingHookRule = (typeof EXISTING_HOOK_RULES)[number];
export const HOLD_DELIVERIES = ['Auto', 'ConfigMap', 'Image'] as const;
export type HoldDelivery = (typeof HOLD_DELIVERIES)[number];

/** Enforce: waits and Hold consider the consumer’s lag. Observe: the lag is measured and reported, but changes no wait. */
export const CONSUMER_MODES = ['Enforce', 'Observe'] as const;
