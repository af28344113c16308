import { hostname } from 'node:os';
import { expect, it } from 'vitest';
import { placeOf } from '../../src/server/cluster.ts';

/** A pod's connection knows the ServiceAccount's namespace, a kubeconfig's that of its context. */
const connection = (namespace?: string) => ({
  server: new URL('https://10.96.0.1'),
  credentials: async () => ({}),
  ...(namespace === undefined ? {} : { namespace }),
});
const settings = { namespace: undefined, identity: undefined, kubeconfig: undefined };

it.each([
  { name: 'in a pod', given: {}, home: 'linger', place: { namespace: 'linger', identity: hostname() } },
  {
    name: 'in a pod that is told its name',
    given: { identity: 'linger-7d9f-x' },
    home: 'other',
    place: { namespace: 'other', identity: 'linger-7d9f-x' },
  },
  {
    name: 'where a namespace is named',
    given: { namespace: 'mine', kubeconfig: 'f' },
    home: 'default',
    place: { namespace: 'mine', identity: hostname() },
  },
  { name: 'by somebody’s kubeconfig', given: { kubeconfig: 'f' }, home: 'linger', place: undefined },
  { name: 'where nobody says', given: {}, home: undefined, place: undefined },
])('replicas share in their own namespace: $name', ({ given, home, place }) => {
  expect(placeOf({ ...settings, ...given }, connection(home))).toEqual(place);
});
