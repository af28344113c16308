export { type Delivery, type DeliverySettings, registerDeliveryMetrics, startDelivery } from './delivery.ts';
export { readHelperObject } from './helper-object.ts';
export type { HeldView } from './holds.ts';
export { RELEASE_REASONS } from './release-rules.ts';
export { type HoldSettings, type RunningHold, startHold } from './start.ts';
