import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { LingerError } from '../core/catalog/errors.ts';
import type { Fleet } from '../core/cluster/fleet.ts';
import type { NamespaceRecord } from '../core/cluster/namespaces.ts';
import { type ServiceRecord, serviceIndex } from '../core/cluster/services.ts';
import type { Consumer } from '../core/consumers/consumer.ts';
import type { LagDistribution, LagSource } from '../core/lag/distribution.ts';
import { decide, plannedLagOf } from '../core/plan/decide.ts';
import type { Decision } from '../core/plan/plan.ts';
import type { Pod } from '../core/plan/pod.ts';
import { type Workload, workloadOf } from '../core/plan/workload.ts';
import { EMPTY_WORLD, type World } from '../core/plan/world.ts';
import type { Mode } from '../core/schema/choices.ts';
import { isLingerObject } from '../core/schema/documents.ts';
import { isRecord } from '../core/schema/shape.ts';
import { type ManifestFile, type ManifestObject, readManifests } from '../manifest/index.ts';
import { readPolicyFiles } from '../sources/policy-files.ts';
import { type Documents, joinDocuments, NO_DOCUMENTS } from '../world/documents.ts';
import { sortDocuments } from '../world/sort-documents.ts';
import { consumersIn, joinConsumers, withDocuments } from '../world/world.ts';

/** What `inject` and `explain` have in common: where things come from. */
export interface ManifestSettings {
  readonly files: readonly string[];
  readonly policies: string | undefined;
  readonly namespace: string;
  readonly modeLimit: Mode;
}

/** What is known of the cluster that the manifests are for. */
export interface KnownCluster {
  readonly namespaces: readonly NamespaceRecord[];
  /** All of them. */
  readonly services: readonly ServiceRecord[];
  readonly fleet: Fleet;
  /** That it declares; they win over those of the policy files. */
  readonly consumers: readonly Consumer[];
  readonly lags: LagSource;
}

/** The decision for the pods of one workload of a manifest. */
export interface PlannedWorkload {
  readonly file: ManifestFile;
  readonly object: ManifestObject;
  readonly workload: Workload;
  readonly namespace: string;
  readonly decision: Decision;
  /** The planned lag that it was made with. */
  readonly lag: LagDistribution | undefined;
}

export interface PlannedManifests {
  readonly files: readonly ManifestFile[];
  readonly planned: readonly PlannedWorkload[];
}

/**
 * Reads manifests and decides for the pods of each workload in them, with the policies given, and the Services and
 * Namespaces of the manifests and of the cluster, or without one of the policy files.
 * @throws LingerError
 */
export async function planManifests(
  settings: ManifestSettings,
  cluster?: KnownCluster,
): Promise<PlannedManifests> {
  const files = await Promise.all(settings.files.map(readManifestFile));
  const policies =
    settings.policies === undefined ? NO_DOCUMENTS : (await readPolicyFiles(settings.policies)).parse();
  const applied = clusterObjects(files, settings.namespace);
  const empty = { ...EMPTY_WORLD, modeLimit: settings.modeLimit };
  const world =
    cluster === undefined
      ? withDocuments(empty, joinDocuments(policies, applied))
      : withCluster(empty, policies, cluster, applied);
  return { files, planned: files.flatMap((file) => planFile(file, world, settings.namespace)) };
}

/** The cluster's Namespaces and Services as they will be once the manifests are applied; files only believe to know. */
function withCluster(empty: World, policies: Documents, cluster: KnownCluster, applied: Documents): World {
  const { namespaces, services, fleet, consumers, lags } = cluster;
  const documents = joinDocuments({ ...policies, namespaces, services }, applied);
  const world = withDocuments(empty, documents);
  return {
    ...world,
    fleet,
    lags,
    consumers: joinConsumers(consumersIn(documents), consumers),
    services: serviceIndex(documents.services, true),
  };
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
    const decision = decide(request, world);
    // Only what could be read as a pod is injected.
    const lag =
      decision.outcome === 'inject' ? plannedLagOf(workload.pod as Pod, namespace, world) : undefined;
    return [{ file, object, workload, namespace, decision, lag }];
  });
}
