import { CLUSTER_TERMINATION_POLICY, crdText, DISCOVERY_CONSUMER, TERMINATION_POLICY } from './crd.ts';

/** Every file of the repository that is made from the source, and its text. A test holds them against each other. */
export const GENERATED: readonly { readonly path: string; readonly text: () => string }[] = [
  DISCOVERY_CONSUMER,
  CLUSTER_TERMINATION_POLICY,
  TERMINATION_POLICY,
].map((kind) => ({ path: `deploy/crds/${kind.plural}.yaml`, text: () => crdText(kind) }));
