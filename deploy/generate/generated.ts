import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { VERBS } from '../../src/cli/commands.ts';
import { flagName } from '../../src/cli/flags.ts';
import { readHelperObject } from '../../src/hold/helper-object.ts';
import { alertsText } from './alerts.ts';
import { annotationPolicyText } from './annotation-policy.ts';
import { CHART } from './chart.ts';
import { CLUSTER_TERMINATION_POLICY, crdText, DISCOVERY_CONSUMER, TERMINATION_POLICY } from './crd.ts';
import { floorText } from './floor.ts';
import { installedText } from './installed.ts';
import { drainPicture, TABLE_PAGES } from './tables.ts';

const VALUES_SCHEMA = 'deploy/chart/values.schema.json';
const HOLD_RIGHTS = ['deploy/rbac-hold.yaml', 'deploy/rbac-view.yaml'];

/** The file as it stands, with the name of the helper's ConfigMap as it is now. */
function holdRights(path: string): string {
  const text = readFileSync(join(import.meta.dirname, '../..', path), 'utf8');
  return text.replaceAll(/linger-hold-[\da-f]{16}/g, readHelperObject().name);
}

/** The file as it stands, with the flags of `serve` as they are now: one that is unknown keeps replicas from starting. */
function valuesSchema(): string {
  const text = readFileSync(join(import.meta.dirname, '../..', VALUES_SCHEMA), 'utf8');
  const flags = Object.entries<{ readonly argument: string | undefined }>(VERBS.serve.flags);
  const names = (isToggle: boolean) =>
    flags.flatMap(([key, { argument }]) => ((argument === undefined) === isToggle ? flagName(key) : []));
  const pattern = `^--((${names(true).join('|')})$|(${names(false).join('|')})=)`;
  return text.replace(/"pattern": "\^--.*"/, () => `"pattern": ${JSON.stringify(pattern)}`);
}

/** Every file of the repository that is made from the source, and its text. A test holds them against each other. */
export const GENERATED: readonly { readonly path: string; readonly text: () => string }[] = [
  ...[DISCOVERY_CONSUMER, CLUSTER_TERMINATION_POLICY, TERMINATION_POLICY].map((kind) => ({
    path: `deploy/crds/${kind.plural}.yaml`,
    text: () => crdText(kind),
  })),
  { path: 'deploy/alerts.yaml', text: alertsText },
  { path: 'deploy/annotation-policy.yaml', text: annotationPolicyText },
  { path: 'deploy/floor/floor.yaml', text: floorText },
  ...HOLD_RIGHTS.map((path) => ({ path, text: () => holdRights(path) })),
  { path: VALUES_SCHEMA, text: valuesSchema },
  // Last: they are made from the files above.
  { path: 'src/check/installed.json', text: installedText },
  ...CHART,
  ...TABLE_PAGES,
  { path: 'bench/results/drain.svg', text: drainPicture },
];
