export { Listeners, Manager, NO_STATUS, registerManagerMetrics } from './manager.ts';
export {
  type AnyPart,
  inOrder,
  type OwnReplica,
  type PartContext,
  part,
  type Started,
  startParts,
} from './part.ts';
export type { Leadership, PodEvent, Runnable } from './runnable.ts';
