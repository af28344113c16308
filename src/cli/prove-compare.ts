import { LingerError } from '../core/api/index.ts';
import {
  type Chart,
  type Comparison,
  compare,
  copyRights,
  drawingOf,
  drawingOfBoth,
  fullName,
  namespaceOf,
  newRunName,
  ORIGINAL_RIGHTS,
  obstacleTo,
  obstacleToCopy,
  type ProveResult,
  readOriginal,
  referencesOf,
  reportOf,
  rightsFor,
  type Side,
  WorkloadAccess,
  WorkloadCopy,
  type WorkloadName,
  wordsOf,
} from '../prove/index.ts';
import { nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import {
  confirmed,
  imageOf,
  needsOf,
  noteTo,
  type ProveSetting,
  proveOne,
  requireRights,
} from './prove-run.ts';

/** `--compare`: makes the same disturbance to two copies, with and without the waits that Linger gives. */
export async function compareCopies(
  setting: ProveSetting,
  target: WorkloadName,
): Promise<{ readonly found: Comparison; readonly drawing: () => Chart }> {
  const { connection, settings, surroundings, disturbance, urls, stopping } = setting;
  const { signal } = stopping;
  if (urls.length > 0 || settings.urlsOnly)
    throw usageError('--compare: expected no --url, since a gateway leads to the original and not to a copy');
  if (disturbance.type === 'drain')
    throw usageError(
      '--compare: expected a disturbance other than --drain, since other workloads use the node, too',
    );
  const access = new WorkloadAccess(connection, target);
  const here = `namespace ${target.namespace}`;
  const [get = ''] = rightsFor(target, disturbance, { service: false, job: false });
  await requireRights(setting, access, [get, ...ORIGINAL_RIGHTS], here);
  const workload = await access.read(signal);
  const original = await readOriginal(connection, workload, signal);
  const references = referencesOf(original);
  const pods = Array.from({ length: workload.replicas }, (_, index) => ({ name: `${index}`, createdAt: 0 }));
  const obstacle =
    obstacleTo(disturbance, workload, pods) ?? obstacleToCopy(original, references, settings.copySecrets);
  if (obstacle !== undefined) throw new LingerError('prove-refused', obstacle);
  const { configMaps, secrets } = references;
  const reads = [
    ...(configMaps.length > 0 ? ['get configmaps'] : []),
    ...(secrets.length > 0 ? ['get secrets'] : []),
  ];
  await requireRights(setting, access, reads, here);
  const run = newRunName();
  const there = new WorkloadAccess(connection, { ...target, namespace: namespaceOf(run, 'with') });
  const rights = [...copyRights(original, references), ...rightsFor(target, disturbance, needsOf(setting))];
  await requireRights(setting, there, rights, 'new namespaces');
  const image = await imageOf(setting, access);
  const copied = [
    ...configMaps.map((name) => `ConfigMap ${name}`),
    ...secrets.map((name) => `Secret ${name}`),
  ];
  const withThem = copied.length === 0 ? '' : `, each with ${copied.join(', ')}`;
  await confirmed(
    `${wordsOf(disturbance)} of two copies of ${fullName(target)} in ${nameOf(connection)}, one after the other, ${original.replicas} pods each in a namespace of its own${withThem}. They use the databases, queues and services that their configuration names, as the original does`,
    setting,
  );
  const side = async (which: Side): Promise<ProveResult> => {
    const note = noteTo(surroundings);
    const lost = (why: string) => stopping.abort(new LingerError('cluster-unreachable', why));
    const copy = new WorkloadCopy(connection, { original, references, side: which, run, image, note, lost });
    try {
      const notes = await copy.start(signal);
      const result = await proveOne(setting, { ...target, namespace: copy.namespace }, true);
      return { ...result, notes: [...notes, ...result.notes] };
    } finally {
      await copy
        .remove()
        .catch((thrown: Error) =>
          note(
            `namespace ${copy.namespace} could not be removed; it ends by itself within two minutes: ${thrown.message}`,
          ),
        );
    }
  };
  // Losses leave stale entries in conntrack, so the side that should lose nothing comes first.
  const protectedBy = await side('with');
  const without = await side('without');
  const about = { workload: fullName(target), disturbance: wordsOf(disturbance) };
  const found = compare(reportOf(without, about), reportOf(protectedBy, about));
  return { found, drawing: () => drawingOfBoth(found, drawingOf(without, ''), drawingOf(protectedBy, '')) };
}
