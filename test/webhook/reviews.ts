import { type JsonObject, pod } from '../core/decision/sample-pod.ts';

export const UID = '359d400e-3c27-485d-b29e-c6a940233df5';

/** An AdmissionReview for the creation of this object, as the API server sends it. */
export function reviewOf(object: unknown = pod(), request: JsonObject = {}): JsonObject {
  return {
    kind: 'AdmissionReview',
    apiVersion: 'admission.k8s.io/v1',
    request: {
      uid: UID,
      kind: { group: '', version: 'v1', kind: 'Pod' },
      resource: { group: '', version: 'v1', resource: 'pods' },
      namespace: 'shop',
      operation: 'CREATE',
      userInfo: { username: 'system:serviceaccount:kube-system:replicaset-controller' },
      object,
      oldObject: null,
      dryRun: false,
      options: { kind: 'CreateOptions', apiVersion: 'meta.k8s.io/v1' },
      ...request,
    },
  };
}

export const bodyOf = (object?: unknown, request?: JsonObject): string =>
  JSON.stringify(reviewOf(object, request));

/** A member whose text is given, where JSON.stringify would need the value (or could not write it). */
export function bodyWith(objectText: string): string {
  return bodyOf('OBJECT').replace('"OBJECT"', () => objectText);
}
