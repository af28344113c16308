import { canonicalAddress, PageFindings } from '../../core/api/index.ts';
import { CopiedEndpoints, copyOf } from '../../informers/index.ts';
import { EVERY } from '../inspect/inspecting.ts';
import type { Measuring } from '../measure.ts';
import { problem } from '../requests/probe.ts';

const COPIES = {
  what: 'copies in',
  limits: [
    'What reads the copies in the other cluster is not seen: syncInterval allows for it.',
    'Removals are timed only where a copy has listed the pod, or one that became ready later; otherwise it is not known to be gone.',
  ],
};

/** The consumer reads copies of the endpoints in another cluster. */
export const copies: Measuring<'endpoints'> = {
  by: 'inspection',
  // In that cluster, kube-proxy programs a change at most a second after the previous one (k8s.io/kube-proxy
  // config/v1alpha1, iptables.minSyncPeriod).
  inspected: ({ endpoints }) => ({
    inspect: { every: EVERY, syncInterval: 1, ...endpoints },
    followed: COPIES,
  }),
  follow: async ({ endpoints }, { files, clock, signal }) => {
    const copied = new CopiedEndpoints(endpoints, {
      folder: files,
      clock,
      signal,
      canonical: canonicalAddress,
    });
    return {
      instances: async () => {
        const page = { name: copied.server.host, address: '', url: copied.server };
        return { pages: [page], isWhole: true };
      },
      find: (_, { wanted, services }) => {
        const inThere = new Set(services.map((service) => copyOf(endpoints, service)));
        const found = copied.find(
          wanted.map(({ address }) => address),
          (service) => inThere.has(service),
        );
        return typeof found === 'string' ? problem('Unreachable', found) : PageFindings.at(found);
      },
    };
  },
};
