import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sparingParser } from '../../src/cluster/list.ts';

const MANAGED = [
  { manager: 'kubelet', fieldsType: 'FieldsV1', fieldsV1: { 'f:status': { 'k:{"ip":"[::1]"}': {} } } },
];
const MARK = ',"managedFields":[';

const text = fc.oneof(
  fc.string(),
  fc.constantFrom(
    MARK,
    `x${MARK}{"manager":"y"}]}}}`,
    '"}]}}}',
    '}]}}',
    '}]},',
    '}]},"spec":',
    '"},"spec":{',
    ',',
  ),
);
const map = fc.dictionary(fc.oneof(text, fc.constantFrom('managedFields', 'spec')), text);
const metadata = fc.record({ name: text, uid: text, deletionTimestamp: text, labels: map, annotations: map });
/** Whoever writes an object chooses the name of the manager, and of some of the fields. */
const entry = fc.record({
  manager: text,
  fieldsV1: fc.dictionary(text, fc.dictionary(text, fc.constant({}))),
});
const entries = fc.array(entry, { minLength: 1 });

type Frame = 'item' | 'event';

/** As it comes in a list or in a watch. */
const framed = (object: object, frame: Frame): Buffer =>
  Buffer.from(JSON.stringify(frame === 'item' ? object : { type: 'MODIFIED', object }));

/** What is expected of a frame. */
const frameOf = (object: object, frame: Frame): unknown => JSON.parse(framed(object, frame).toString());

describe.each(['item', 'event'] as const)('an object as %s', (frame) => {
  it('of metadata only loses its managedFields and nothing else, whatever its strings are', () => {
    const parse = sparingParser({ metadataOnly: true });
    fc.assert(
      fc.property(metadata, entries, (given, managedFields) => {
        const bytes = framed({ kind: 'Pod', metadata: { ...given, managedFields } }, frame);
        expect(parse(bytes)).toEqual(frameOf({ kind: 'Pod', metadata: given }, frame));
      }),
    );
  });

  it('with more than metadata loses its managedFields and nothing else, whatever its strings are', () => {
    const parse = sparingParser({ afterMetadata: 'spec' });
    const spec = fc.record({ selector: map, ports: fc.array(map) });
    fc.assert(
      fc.property(metadata, entries, spec, (given, managedFields, rest) => {
        const bytes = framed({ metadata: { ...given, managedFields }, spec: rest, status: {} }, frame);
        expect(parse(bytes)).toEqual(frameOf({ metadata: given, spec: rest, status: {} }, frame));
      }),
    );
  });

  it.each([
    { name: 'without managedFields', object: { metadata: { name: 'a' }, spec: {} } },
    { name: 'without entries', object: { metadata: { name: 'a', managedFields: [] }, spec: {} } },
    {
      name: 'with another field after managedFields',
      object: { metadata: { name: 'a', managedFields: MANAGED, uid: 'u' }, spec: {} },
    },
    {
      name: 'with another field after the metadata',
      object: { metadata: { name: 'a', managedFields: MANAGED }, data: {} },
    },
    {
      name: 'with an array in an entry',
      object: { metadata: { managedFields: [{ a: [{ b: 1 }] }, { c: [] }] }, other: { x: [{}] } },
    },
  ])('$name is parsed as it is', ({ object }) => {
    for (const parse of [
      sparingParser({ metadataOnly: true }),
      sparingParser({ afterMetadata: 'spec' }),
      sparingParser({}),
    ]) {
      expect(parse(framed(object, frame))).toEqual(frameOf(object, frame));
    }
  });

  it('that is no JSON is refused', () => {
    const bytes = Buffer.from(`{"metadata":{"name":"a"${MARK}{}]}`);
    expect(sparingParser({ metadataOnly: true })(bytes)).toBeUndefined();
  });
});
