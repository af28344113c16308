import jsonPatch, { type Operation as JsonPatchOperation } from 'fast-json-patch';
import type { PodRequest } from '../../../src/core/decision/decide.ts';
import type { Operation } from '../../../src/core/decision/patch.ts';
import type { Plan } from '../../../src/core/decision/plan.ts';
import { parsePlan } from '../../../src/core/decision/plan-codec.ts';
import type { Note } from '../../../src/core/decision/reasons.ts';

/** A piece of a manifest, as JSON has it. */
export type JsonObject = { [member: string]: unknown };

export interface PodObject extends JsonObject {
  metadata: JsonObject;
  spec: JsonObject & { containers: ContainerObject[] };
}

export interface ContainerObject extends JsonObject {
  name: string;
}

/** The namespace of every sample. */
export const NAMESPACE = 'shop';

/** A container that says nothing about traffic. */
export function container(name: string, more: JsonObject = {}): ContainerObject {
  return { name, image: `registry.example/${name}:1`, ...more };
}

/** A container with a port, so that its pod serves. */
export function server(name = 'app', more: JsonObject = {}): ContainerObject {
  return container(name, { ports: [{ containerPort: 8080 }], ...more });
}

/** A pod that gets a wait under the built-in policy: one container with a port, the default grace. */
export function pod(spec: JsonObject = {}, metadata: JsonObject = {}): PodObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web', labels: { app: 'web' }, ...metadata },
    spec: { containers: [server()], ...spec },
  };
}

export function podOf(...containers: ContainerObject[]): PodObject {
  return pod({ containers });
}

export function annotated(annotations: JsonObject, spec: JsonObject = {}): PodObject {
  return pod(spec, { annotations });
}

export function annotationsOf({ metadata }: PodObject): Record<string, string> {
  return (metadata.annotations ?? {}) as Record<string, string>;
}

/** The plan that the pod carries. */
export function planIn(object: PodObject): Plan | undefined {
  return parsePlan(annotationsOf(object)['linger.dev/plan'] ?? '');
}

export function codesOf({ notes }: { readonly notes: readonly Note[] }): readonly Note['code'][] {
  return notes.map(({ code }) => code);
}

/** ownerReferences with one controller. */
export function ownedBy(kind: string, apiVersion = 'apps/v1'): JsonObject {
  const owner = { apiVersion, kind, name: 'owner', uid: '6d1b3c1e-6a4c-4d0e-9d53-6d8b8f3c0f11' };
  return { ownerReferences: [{ ...owner, controller: true }] };
}

export function preStop(handler: unknown): JsonObject {
  return { lifecycle: { preStop: handler } };
}

export function sleep(seconds: unknown): JsonObject {
  return { sleep: { seconds } };
}

export function exec(...command: unknown[]): JsonObject {
  return { exec: { command } };
}

/** The question that the API server asks when this object is created in {@link NAMESPACE}. */
export function creationOf(object: unknown, more: Partial<PodRequest> = {}): PodRequest {
  return {
    operation: 'CREATE',
    resource: { group: '', resource: 'pods' },
    subResource: undefined,
    namespace: NAMESPACE,
    object,
    ...more,
  };
}

/** A copy of the object with the operations applied, each of them validated against RFC 6902. */
export function patched<T>(object: T, operations: readonly Operation[]): T {
  const copy = structuredClone(object);
  return jsonPatch.applyPatch(copy, structuredClone(operations) as JsonPatchOperation[], true).newDocument;
}
