import { createHash } from 'node:crypto';
import { HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME, type HoldToken } from '../../../src/core/api/index.ts';
import type { ClusterSnapshot, HoldSupply } from '../../../src/core/decision/cluster-snapshot.ts';
import { type Fleet, nodeKind } from '../../../src/core/decision/fleet.ts';
import {
  type ContainerObject,
  exec,
  type JsonObject,
  NAMESPACE,
  type PodObject,
  preStop,
} from './sample-pod.ts';
import { type Circumstances, fleet, snapshotOf } from './sample-snapshot.ts';

/** When the sample's tokens are made, in seconds since the epoch. */
export const NOW = 1_800_000_000;

let made = 0;

/** A token that no other sample has. */
export function holdToken(seconds = NOW): HoldToken {
  const bytes = Buffer.alloc(16);
  bytes.writeUInt32BE(seconds);
  made += 1;
  bytes.writeUInt32BE(made, 12);
  return { text: bytes.toString('base64url'), hashOf: sha256 };
}

export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

export const HOLD_ADDRESS = '10.201.0.7:8445';
export const HOLD_DIGEST = '0123456789abcdef';

/** All that Hold needs, for the sample's namespace and these nodes. */
export function holdSupply({ nodes }: Fleet, more: Partial<HoldSupply> = {}): HoldSupply {
  return {
    address: HOLD_ADDRESS,
    digest: HOLD_DIGEST,
    namespaces: new Set([NAMESPACE]),
    tested: new Set(nodes.map(nodeKind)),
    architectures: new Set(['amd64', 'arm64']),
    ...more,
  };
}

/** A snapshot in which pods can be held. */
export function heldSnapshot(
  documents: readonly JsonObject[],
  { supply, ...circumstances }: Circumstances & { readonly supply?: Partial<HoldSupply> } = {},
): ClusterSnapshot {
  const nodes = circumstances.fleet ?? fleet('v1.36.3', 'v1.36.3');
  return snapshotOf(documents, { ...circumstances, fleet: nodes, hold: holdSupply(nodes, supply) });
}

export function holdHook({ text }: HoldToken, wait: number, max: number): JsonObject {
  return exec(HOLD_HELPER, HOLD_ADDRESS, text, String(wait), String(max));
}

export const HOLD_MOUNTS = [{ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true }];
export const HOLD_VOLUMES = [
  {
    name: HOLD_VOLUME,
    configMap: {
      name: `linger-hold-${HOLD_DIGEST}`,
      defaultMode: 365,
      optional: true,
      items: [{ key: 'hold-amd64', path: 'hold' }],
    },
  },
];

/** A container that Hold holds. */
export function held(
  container: ContainerObject,
  token: HoldToken,
  wait: number,
  max: number,
): ContainerObject {
  return { ...container, ...preStop(holdHook(token, wait, max)), volumeMounts: HOLD_MOUNTS };
}

/** The token in the hooks of a pod; undefined where none is held. */
export function tokenIn({ spec }: PodObject): unknown {
  const commands = spec.containers.map(
    ({ lifecycle }) =>
      (lifecycle as { preStop?: { exec?: { command?: unknown[] } } } | undefined)?.preStop?.exec?.command,
  );
  return commands.find((command) => command?.[0] === HOLD_HELPER)?.[2];
}
