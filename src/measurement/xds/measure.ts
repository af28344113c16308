import { EVERY } from '../inspect/inspecting.ts';
import type { Measuring } from '../measure.ts';

const PUSHES = {
  what: 'pushes of',
  limits: [
    'It is known when istiod has pushed a removal, not when each proxy has applied it: syncInterval allows for it.',
    'Only the istiods behind the address are followed, and as a proxy of Linger’s namespace: what a Sidecar or a DestinationRule has for others is not seen.',
    'Removals are timed only where istiod has pushed the pod, or one that became ready later; otherwise it is not known to be gone.',
  ],
};

/** The consumer's proxies follow istiod, and so does Linger. */
export const xds: Measuring<'xds'> = {
  by: 'inspection',
  inspected: (measure) => ({
    inspect: { every: EVERY, syncInterval: 0.25, ...measure.xds },
    followed: PUSHES,
  }),
  follow: async (measure, context) => {
    // Imported on demand, so that clusters without a mesh do not load the gRPC client.
    const { Istiods } = await import('./xds.ts');
    return new Istiods(measure.xds, context);
  },
};
