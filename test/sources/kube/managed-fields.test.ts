import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withoutManagedFields } from '../../../src/sources/kube/managed-fields.ts';

const MANAGED = [
  { manager: 'kubelet', fieldsType: 'FieldsV1', fieldsV1: { 'f:status': { 'k:{"ip":"[::1]"}': {} } } },
];
const MARK = ',"managedFields":[';

/** A watch event of metadata only, its fields in the order in which Go writes them. */
function event(metadata: object, managedFields: readonly object[] = MANAGED): string {
  const object = {
    kind: 'PartialObjectMetadata',
    apiVersion: 'meta.k8s.io/v1',
    metadata: { ...metadata, managedFields },
  };
  return JSON.stringify({ type: 'MODIFIED', object });
}

const metadataOf = (text: string) => (JSON.parse(text) as { object: { metadata: object } }).object.metadata;

describe('an event of metadata only', () => {
  it('loses its managedFields and nothing else, whatever its strings are', () => {
    const text = fc.oneof(fc.string(), fc.constantFrom(MARK, `x${MARK}{"manager":"y"}]}}}`, '"}]}}}', ','));
    const map = fc.dictionary(fc.oneof(text, fc.constant('managedFields')), text);
    const metadata = fc.record({
      name: text,
      uid: text,
      deletionTimestamp: text,
      labels: map,
      annotations: map,
    });
    fc.assert(
      fc.property(metadata, (given) => {
        const short = withoutManagedFields(event(given));
        expect(metadataOf(short)).toEqual(metadataOf(JSON.stringify({ object: { metadata: given } })));
      }),
    );
  });

  it.each([
    {
      name: 'without managedFields',
      text: JSON.stringify({ type: 'ADDED', object: { metadata: { name: 'a' } } }),
    },
    {
      name: 'with a spec after the metadata',
      text: JSON.stringify({
        type: 'ADDED',
        object: { metadata: { name: 'a', managedFields: MANAGED }, spec: {} },
      }),
    },
    {
      name: 'with another field after managedFields',
      text: JSON.stringify({
        type: 'ADDED',
        object: { metadata: { name: 'a', managedFields: MANAGED, uid: 'u' } },
      }),
    },
    { name: 'without entries', text: event({ name: 'a' }, []) },
  ])('$name stays as it is', ({ text }) => {
    expect(withoutManagedFields(text)).toBe(text);
  });
});
