export { DISCOVERY_KINDS, type Discovered, type DiscoveredConsumer, discover } from './discover.ts';
