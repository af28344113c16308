export { Delivery, type DeliverySettings } from './delivery.ts';
export type { HeldPod } from './held-pods.ts';
export { readHelperObject } from './helper-object.ts';
export type { HeldView, Release } from './holds.ts';
export { NodeShutdowns } from './node-shutdown.ts';
export { type HoldSettings, startHold } from './start.ts';
