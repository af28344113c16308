import type { Termination } from '../../../src/core/timeline/index.ts';

/** Held until everything had dropped it. */
export const CLEAR: Termination = {
  namespace: 'shop',
  pod: 'web-1',
  uid: 'u1',
  owner: 'Deployment/web',
  deletedAt: 1_700_000_000,
  hook: 'Hold',
  withdrawals: [
    { source: 'Endpoints', service: 'web', after: 0.2 },
    { source: 'EndpointSlice', service: 'web', after: 0.1 },
  ],
  consumers: [
    { name: 'edge', after: 9, by: 'seen' },
    { name: 'cluster-ip', after: 1.2, by: 'computed' },
  ],
  omitted: 0,
  witness: { last: 8.5, open: 0 },
  sigterm: { after: 9.1, by: 'seen' },
  release: 'Gone',
  gone: 12,
};

/** A fixed sleep that was too short for a gateway. */
export const SENT: Termination = {
  ...CLEAR,
  pod: 'web-2',
  uid: 'u2',
  hook: 'Sleep',
  witness: null,
  release: '',
  consumers: CLEAR.consumers.map((each) => ({ ...each, by: 'computed' })),
  sigterm: { after: 5, by: 'computed' },
};

/** The watches were behind, and nothing is known of a consumer. */
export const UNKNOWN: Termination = {
  ...SENT,
  pod: 'web-3',
  uid: 'u3',
  owner: '',
  withdrawals: null,
  gone: null,
  consumers: [{ name: 'mesh', after: null, by: 'unknown' }],
};
