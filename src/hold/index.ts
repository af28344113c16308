export { type Delivery, type DeliverySettings, registerDeliveryMetrics, startDelivery } from './delivery.ts';
export { readHelperObject } from './helper-object.ts';
