export { type DeliverySettings, registerDeliveryMetrics, TRIED_ANNOTATION } from './delivery.ts';
export type { HeldPod } from './held-pods.ts';
export { readHelperObject } from './helper-object.ts';
export type { HeldView, Release } from './holds.ts';
export { registerNodeShutdownMetrics } from './node-shutdown.ts';
export { holdDeliveryPart, holdPart, nodeShutdownsPart } from './part.ts';
export { registerHoldMetrics } from './release-reporting.ts';
export { RELEASE_REASONS } from './release-rules.ts';
export type { HoldSettings } from './start.ts';
