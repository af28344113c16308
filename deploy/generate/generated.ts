import { crdText, DISCOVERY_CONSUMER } from './crd.ts';

/** Every file of the repository that is made from the source, and its text. A test holds them against each other. */
export const GENERATED: readonly { readonly path: string; readonly text: () => string }[] = [
  { path: 'deploy/crds/discoveryconsumers.yaml', text: () => crdText(DISCOVERY_CONSUMER) },
];
