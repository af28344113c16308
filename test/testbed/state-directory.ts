import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type ClusterSettings, statePaths } from './settings.ts';

/**
 * Makes a cluster's state directory, or makes sure that an existing one is its own:
 * everything in it is deleted sooner or later. Throws when it belongs to another cluster or holds other files.
 */
export function claimStateDirectory({ name, cacheDir, stateDir }: ClusterSettings): void {
  mkdirSync(stateDir, { recursive: true });
  const { owner } = statePaths(stateDir);
  const known = ownerOf(owner);
  // Below our own cache nobody else keeps anything.
  const unclaimed = readdirSync(stateDir).length === 0 || stateDir.startsWith(`${cacheDir}/`);
  if (known === undefined && !unclaimed) {
    throw new Error(
      `LINGER_CLUSTER_DIR: ${stateDir} holds files that are no cluster's; name an empty directory`,
    );
  }
  if (known !== undefined && known !== name) {
    throw new Error(`LINGER_CLUSTER_DIR: ${stateDir} belongs to cluster ${known}, not to ${name}`);
  }
  if (known === undefined) writeFileSync(owner, name);
}

function ownerOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return undefined;
  }
}
