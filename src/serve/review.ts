import { isAscii, isUtf8 } from 'node:buffer';
import type { PodRequest } from '../core/plan/decide.ts';
import { isRecord } from '../core/schema/shape.ts';

/** The request of an AdmissionReview, as far as it is read. */
export interface ReviewRequest extends PodRequest {
  readonly uid: string;
  readonly dryRun: boolean;
}

/** A body that is no AdmissionReview v1: answered with 400 and this message. */
export class ReviewError extends Error {}

/** A uid is 36 characters; whatever is much longer is not one, and it is echoed into the answer. */
const MAX_UID_LENGTH = 256;

/**
 * Reads an `admission.k8s.io/v1` AdmissionReview. Unknown and missing members of the request are no errors: the
 * decision says what it makes of them, so that whatever has a uid gets an answer.
 * @throws ReviewError
 */
export function readReview(body: Buffer): ReviewRequest {
  // Decoding would replace invalid bytes silently, and a pod must not be judged by other bytes than its own.
  if (!isUtf8(body)) throw new ReviewError('the body is not valid UTF-8');
  const review = parse(body);
  if (!isRecord(review) || review.kind !== 'AdmissionReview')
    throw new ReviewError('kind: expected AdmissionReview');
  if (review.apiVersion !== 'admission.k8s.io/v1')
    throw new ReviewError('apiVersion: expected admission.k8s.io/v1');
  const { request } = review;
  if (!isRecord(request)) throw new ReviewError('request: expected an object');
  const { uid } = request;
  if (typeof uid !== 'string' || uid === '' || uid.length > MAX_UID_LENGTH) {
    throw new ReviewError('request.uid: expected the uid of the review');
  }
  return readRequest(uid, request);
}

function parse(body: Buffer): unknown {
  try {
    // Nearly every review is ASCII, which needs no decoding.
    return JSON.parse(body.toString(isAscii(body) ? 'latin1' : 'utf8'));
  } catch (cause) {
    // V8's message quotes the text around the error, which may be anything, a Secret too.
    throw new ReviewError('the body is not valid JSON', { cause });
  }
}

function readRequest(uid: string, request: Record<string, unknown>): ReviewRequest {
  const resource = isRecord(request.resource) ? request.resource : {};
  return {
    uid,
    dryRun: request.dryRun === true,
    operation: text(request.operation),
    resource: { group: text(resource.group), resource: text(resource.resource) },
    subResource: text(request.subResource),
    namespace: namespaceOf(request),
    object: request.object,
  };
}

function namespaceOf({ namespace, object }: Record<string, unknown>): string {
  if (typeof namespace === 'string' && namespace !== '') return namespace;
  const metadata = isRecord(object) && isRecord(object.metadata) ? object.metadata : {};
  return typeof metadata.namespace === 'string' && metadata.namespace !== '' ? metadata.namespace : 'default';
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
