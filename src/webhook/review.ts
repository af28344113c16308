import { isAscii, isUtf8 } from 'node:buffer';
import { FOREIGN_LIMITS, isRecord, isString, memberAt } from '../core/api/index.ts';
import { essentialsOf, type Pod, type PodRequest, type Skip, screen } from '../core/decision/index.ts';

export interface ReviewRequest extends PodRequest {
  readonly uid: string;
  readonly dryRun: boolean;
}

/** A review that has been read. `skip`: the decision, if it depends on the object alone. */
export interface Review {
  readonly review: ReviewRequest;
  readonly skip?: Skip;
}

/** A review, or why the body is not one, which is answered with 400 and this message. */
export type Screened = Review | { readonly refused: string };

/** Uids have 36 characters. Much longer ones are refused, because the uid is echoed in the answer. */
const MAX_UID_LENGTH = 256;

/**
 * Reads an `admission.k8s.io/v1` AdmissionReview. Unknown and missing members of the request are not errors: the decision
 * deals with them, so every review that has a uid gets an answer.
 */
export function readReview(body: Buffer): Screened {
  // Nearly every review is ASCII, which needs no decoding.
  const ascii = isAscii(body);
  // Decoding would silently replace invalid bytes, and the decision would be made for a different pod.
  if (!ascii && !isUtf8(body)) return { refused: 'the body is not valid UTF-8' };
  let review: unknown;
  try {
    review = JSON.parse(body.toString(ascii ? 'latin1' : 'utf8'));
  } catch {
    // V8's message is not passed on: it quotes the text around the error, which may be part of a Secret.
    return { refused: 'the body is not valid JSON' };
  }
  if (!isRecord(review) || review.kind !== 'AdmissionReview')
    return { refused: 'kind: expected AdmissionReview' };
  if (review.apiVersion !== 'admission.k8s.io/v1')
    return { refused: 'apiVersion: expected admission.k8s.io/v1' };
  const { request } = review;
  if (!isRecord(request)) return { refused: 'request: expected an object' };
  const { uid } = request;
  if (typeof uid !== 'string' || uid === '' || uid.length > MAX_UID_LENGTH) {
    return { refused: 'request.uid: expected the uid of the review' };
  }
  return { review: readRequest(uid, request) };
}

/**
 * How many JSON values fit into the thread's heap, at 150 bytes each in the worst case; real reviews have thousands.
 * Exceeding the heap's limit must be avoided, because V8 may then end the whole process.
 */
const MOST_VALUES = FOREIGN_LIMITS.review.parts.most;

function hasTooManyValues(body: Buffer): boolean {
  let values = 0; // Commas and brackets in texts count, too: annotations long enough to matter are TooLarge anyway.
  for (const byte of body) if (byte === 0x2c || byte === 0x5b || byte === 0x7b) values += 1;
  return values > MOST_VALUES;
}

/**
 * Reads a large review, in a worker thread. Only those members of the object that decisions read are returned, so that little
 * has to be copied between threads.
 */
export function screenReview(body: Buffer): Screened {
  if (hasTooManyValues(body)) return tooLargeAtStart(body);
  const read = readReview(body);
  if ('refused' in read) return read;
  const { review } = read;
  const skip = screen(review);
  if (skip !== undefined) return { review: { ...review, object: undefined }, skip };
  return { review: { ...review, object: essentialsOf(review.object as Pod) } };
}

/** How a review from the API server begins (k8s.io/apiserver writes members in the order of the Go structs). */
const START =
  /^\{"kind":"AdmissionReview","apiVersion":"admission\.k8s\.io\/v1","request":\{"uid":"([\w-]{1,256})"/;

/** The result for a review that takes too long, or too much memory, to parse; its uid is read from the start of the body. */
export function tooLargeAtStart(body: Buffer): Screened {
  const [, uid] = START.exec(body.toString('latin1', 0, 2 * MAX_UID_LENGTH)) ?? [];
  if (uid === undefined) return { refused: 'the body takes too long to read' };
  return { review: readRequest(uid, {}), skip: { outcome: 'skip', reason: 'TooLarge', notes: [] } };
}

function readRequest(uid: string, request: Record<string, unknown>): ReviewRequest {
  const { operation, subResource, namespace, object, dryRun } = request;
  const ofObject = memberAt(object, ['metadata', 'namespace']);
  return {
    uid,
    dryRun: dryRun === true,
    operation: text(operation),
    resource: {
      group: text(memberAt(request, ['resource', 'group'])),
      resource: text(memberAt(request, ['resource', 'resource'])),
    },
    subResource: text(subResource),
    namespace: text(namespace) || text(ofObject) || 'default',
    object,
  };
}

function text(value: unknown): string {
  return isString(value) ? value : '';
}
