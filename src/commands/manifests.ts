import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { LingerError } from '../core/catalog/errors.ts';
import { decide } from '../core/plan/decide.ts';
import type { Decision } from '../core/plan/plan.ts';
import { type Workload, workloadOf } from '../core/plan/workload.ts';
import { EMPTY_WORLD, type World } from '../core/plan/world.ts';
import type { Mode } from '../core/schema/choices.ts';
import { isLingerObject } from '../core/schema/documents.ts';
import { isRecord } from '../core/schema/shape.ts';
import { type ManifestFile, type ManifestObject, readManifests } from '../manifest/index.ts';
import { readPolicyFiles } from '../sources/policy-files.ts';
import { type Documents, joinDocuments, NO_DOCUMENTS } from '../world/documents.ts';
import { sortDocuments } from '../world/sort-documents.ts';
import { withDocuments } from '../world/world.ts';

/** What `inject` and `explain` have in common: where things come from. */
export interface ManifestSettings {
  readonly files: readonly string[];
  readonly policies: string | undefined;
  readonly namespace: string;
  readonly modeLimit: Mode;
}

/** The decision for the pods of one workload of a manifest. */
export interface PlannedWorkload {
  readonly file: ManifestFile;
  readonly object: ManifestObject;
  readonly workload: Workload;
  readonly namespace: string;
  readonly decision: Decision;
}

export interface PlannedManifests {
  readonly files: readonly ManifestFile[];
  readonly planned: readonly PlannedWorkload[];
}

/**
 * Reads manifests and decides for the pods of each workload in them, with the policies given and the Services and
 * Namespaces of both.
 * @throws LingerError
 */
export async function planManifests(settings: ManifestSettings): Promise<PlannedManifests> {
  const files = await Promise.all(settings.files.map(readManifestFile));
  const policies =
    settings.policies === undefined ? NO_DOCUMENTS : (await readPolicyFiles(settings.policies)).parse();
  const documents = joinDocuments(policies, clusterObjects(files, settings.namespace));
  const world = withDocuments({ ...EMPTY_WORLD, modeLimit: settings.modeLimit }, documents);
  return { files, planned: files.flatMap((file) => planFile(file, world, settings.namespace)) };
}

async function readManifestFile(path: string): Promise<ManifestFile> {
  const name = path === '-' ? 'stdin' : path;
  let text: string;
  try {
    text = path === '-' ? await readAll(process.stdin) : await readFile(path, 'utf8');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new LingerError('manifest-invalid', `${name}: cannot be read (${why})`, { cause });
  }
  return readManifests(text, name);
}

/** Policies among the manifests are left out: they are about to be applied and not in force. */
function clusterObjects(files: readonly ManifestFile[], defaultNamespace: string): Documents {
  const objects = files.flatMap((file) => file.objects);
  const others = objects.filter(({ value }) => !(isRecord(value) && isLingerObject(value)));
  return sortDocuments(others, defaultNamespace);
}

function planFile(file: ManifestFile, world: World, defaultNamespace: string): readonly PlannedWorkload[] {
  return file.objects.flatMap((object) => {
    const workload = workloadOf(object.value);
    if (workload === undefined) return [];
    const namespace = workload.namespace ?? defaultNamespace;
    const request = {
      operation: 'CREATE',
      resource: { group: '', resource: 'pods' },
      subResource: undefined,
      namespace,
      object: workload.pod,
      ...(workload.ownerKind === undefined ? {} : { ownerKind: workload.ownerKind }),
    };
    return [{ file, object, workload, namespace, decision: decide(request, world) }];
  });
}
