import { isRecord } from '../api/index.ts';
import { readManifests } from '../manifest/index.ts';
import { blockYaml } from './block-yaml.ts';
import type { ManifestText } from './workloads.ts';

/** kubectl keeps a copy of the whole object in this annotation. */
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/**
 * Rewrites manifests so that they may leave the machine in a link: no comments, no data of Secrets and ConfigMaps, and no
 * values of environment variables.
 * @returns one text; `unread`: how many documents could not be read and were left out
 */
export function shareable(inputs: readonly ManifestText[]): {
  readonly text: string;
  readonly unread: number;
} {
  const read = inputs.map(({ text, name }) => readManifests(text, name));
  const objects = read.flatMap(({ objects: found }) => found.map(({ value }) => withoutValues(value)));
  return {
    text: objects.map((each) => blockYaml(each)).join('---\n'),
    unread: read.reduce((sum, { problems }) => sum + problems.length, 0),
  };
}

/** Recurses, because objects may contain other objects, as in an OpenShift Template. */
function withoutValues(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutValues);
  if (!isRecord(value)) return value;
  const { data: _, stringData: __, binaryData: ___, ...rest } = value;
  return membersOf(value.kind === 'Secret' || value.kind === 'ConfigMap' ? rest : value);
}

function membersOf(value: Readonly<Record<string, unknown>>): unknown {
  const kept = Object.entries(value).filter(([key]) => key !== LAST_APPLIED);
  return Object.fromEntries(
    kept.map(([key, member]) => [
      key,
      key === 'env' && Array.isArray(member) ? member.map(withoutValue) : withoutValues(member),
    ]),
  );
}

function withoutValue(variable: unknown): unknown {
  if (!isRecord(variable)) return null;
  const { value: _, ...rest } = variable;
  return withoutValues(rest);
}
