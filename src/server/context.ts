import type { SnapshotChange, SnapshotHolder } from '../core/decision/index.ts';
import type { Manager } from '../manager/index.ts';
import type { Logger, Metrics } from '../telemetry/index.ts';
import type { connectionsThatFit } from '../webhook/index.ts';
import type { ServerOptions } from './options.ts';

/** What the files of this folder share. */
export interface ServerContext {
  readonly options: ServerOptions;
  readonly manager: Manager;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly snapshot: SnapshotHolder;
  /** Applies policies in steps, between which reviews are answered; resolves once decisions follow them. */
  readonly changePolicies: (change: SnapshotChange) => Promise<void>;
  /** How many connections the file descriptors of this process allow. */
  readonly fitting: Awaited<ReturnType<typeof connectionsThatFit>>;
  /** Aborts when the server ends; everything in the background ends with it. */
  readonly signal: AbortSignal;
}
