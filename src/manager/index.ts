export { Listeners, Manager, NO_STATUS, registerManagerMetrics } from './manager.ts';
export {
  type AnyPart,
  inOrder,
  type PartContext,
  type Place,
  part,
  type Started,
  startParts,
} from './part.ts';
export type { Leadership, PodEvent, Runnable } from './runnable.ts';
