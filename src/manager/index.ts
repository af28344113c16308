export { Listeners, Manager, registerManagerMetrics } from './manager.ts';
export type { Leadership, PodEvent, Runnable } from './runnable.ts';
