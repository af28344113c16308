export { Delivery, type DeliverySettings, registerDeliveryMetrics, TRIED_ANNOTATION } from './delivery.ts';
export type { HeldPod } from './held-pods.ts';
export { readHelperObject } from './helper-object.ts';
export type { HeldView, Release } from './holds.ts';
export { NodeShutdowns, registerNodeShutdownMetrics } from './node-shutdown.ts';
export { registerHoldMetrics } from './release-reporting.ts';
export { RELEASE_REASONS } from './release-rules.ts';
export { type HoldSettings, startHold } from './start.ts';
