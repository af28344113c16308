import fastJsonPatch from 'fast-json-patch';
import { isRecord, memberAt } from '../api/index.ts';
import { type ClusterSnapshot, patchInForce } from '../decision/index.ts';
import { type AuditSubject, patched } from '../judge/index.ts';
import { blockYaml } from './block-yaml.ts';
import { planOf } from './workloads.ts';

type Path = readonly string[];

/**
 * The change that Linger would make to an object whose text is not available: only the members that change, with the names
 * by which lists are merged. Suitable for `kubectl apply --server-side`, and as a patch in a kustomization.
 * @returns null: nothing changes
 */
export function outlinedPatch(
  subject: AuditSubject,
  snapshot: ClusterSnapshot,
): { readonly before: string; readonly after: string } | null {
  const { workload, namespace, object } = subject;
  const operations = patchInForce(workload.pod, planOf(subject, snapshot).decision);
  if (operations.length === 0) return null;
  const paths = operations.map(({ path }) =>
    path.split('/').slice(1).map(fastJsonPatch.unescapePathComponent),
  );
  const around = (pod: unknown) => {
    const steps = workload.pointer.split('/').slice(1);
    const inner = picked(pod, paths);
    const nested = steps.reduceRight<unknown>((value, step) => ({ [step]: value }), inner);
    return blockYaml({
      apiVersion: memberAt(object, ['apiVersion']),
      kind: workload.kind,
      metadata: { name: workload.name, namespace },
      ...(nested as Readonly<Record<string, unknown>>),
    });
  };
  return { before: around(workload.pod), after: around(patched(workload.pod, operations)) };
}

/** The members at certain paths; items of lists keep their names. */
function picked(value: unknown, paths: readonly Path[]): unknown {
  if (paths.some((path) => path.length === 0)) return value;
  const byStep = Map.groupBy(paths, ([step = '']) => step);
  const inner = [...byStep].flatMap(([step, all]) => {
    const member = memberOf(value, step);
    const rest = all.map((path) => path.slice(1));
    return member === undefined ? [] : [[step, picked(member, rest)] as const];
  });
  if (!Array.isArray(value)) return Object.fromEntries(inner);
  return inner.map(([step, member]) => {
    const name = memberAt(value[Number(step)], ['name']);
    return isRecord(member) ? { name, ...member } : member;
  });
}

function memberOf(value: unknown, step: string): unknown {
  return Array.isArray(value) ? value[Number(step)] : memberAt(value, [step]);
}
