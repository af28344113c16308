export {
  type Discovered,
  type DiscoveredConsumer,
  discover,
  discovering,
  ROUTING_KINDS,
  SENDER_KINDS,
  type UndeclaredSenders,
  undeclaredAmong,
} from './discover.ts';
export { reduced } from './reduced-objects.ts';
export { backendsOf, groupKindOf, marksIn, TRAFFIC_SOURCE_KINDS } from './traffic-kinds.ts';
