import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { holdConfigMap, holdKey, type Labels } from '../core/api/index.ts';

/** The architectures for which there is a helper, in the spelling of Nodes. */
export const HELPER_ARCHITECTURES: ReadonlySet<string> = new Set(['amd64', 'arm64']);

const LABELS = { 'app.kubernetes.io/name': 'linger', 'app.kubernetes.io/component': 'hold' };

/** Reads the helpers, which are files next to the program, as the ConfigMap that delivers them into a namespace. */
export function readHelperObject() {
  const files = [...HELPER_ARCHITECTURES].map((architecture) => {
    const key = holdKey(architecture);
    return { key, bytes: readFileSync(new URL(`./helper/${key}`, import.meta.url)) };
  });
  const hash = createHash('sha256');
  for (const { key, bytes } of files) hash.update(`${key}\0`).update(bytes);
  const digest = hash.digest('hex').slice(0, 16);
  const name = holdConfigMap(digest);
  const binaryData = Object.fromEntries(files.map(({ key, bytes }) => [key, bytes.toString('base64')]));
  return {
    /** The digest of its contents, with which its name ends. */
    digest,
    name,
    /** @param namespace undefined: left to `kubectl apply --namespace` */
    manifest: (namespace?: string, annotations?: Labels): object => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: {
        name,
        ...(namespace && { namespace }),
        labels: LABELS,
        ...(annotations && { annotations }),
      },
      immutable: true,
      binaryData,
    }),
  };
}
