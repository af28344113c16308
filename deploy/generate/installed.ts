import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import { isRecord, memberAt, recordsAt } from '../../src/core/api/index.ts';

const DEPLOY = join(import.meta.dirname, '..');
const read = (file: string) => readFileSync(join(DEPLOY, file), 'utf8');

/** What `linger check` compares a cluster with: the objects of an installation, and the rights that it gives to its ServiceAccount. */
export function installedText(): string {
  const { resources } = parse(read('kustomization.yaml')) as { readonly resources: readonly string[] };
  const objects = [...new Set(resources.flatMap((file) => objectsIn(file).map(resourceOf)))].toSorted();
  const files = readdirSync(DEPLOY).filter((file) => /^(rbac|role)-?.*\.yaml$/.test(file));
  const floor = objectsIn(join('floor', 'floor.yaml'));
  const [policy, binding] = floor.map(({ spec }) => spec);
  const installed = {
    objects,
    floor: floor.map(resourceOf),
    floorSpecs: { policy, binding },
    roles: files.toSorted().flatMap(rolesIn),
  };
  return `${JSON.stringify(installed, undefined, 1)}\n`;
}

function objectsIn(file: string): readonly Readonly<Record<string, unknown>>[] {
  const documents = parseAllDocuments(read(file)).map((each) => each.toJS() as unknown);
  return documents.filter(isRecord);
}

/** `deployments.apps namespaced` */
function resourceOf(object: Readonly<Record<string, unknown>>): string {
  const group = String(object.apiVersion).split('/').toReversed()[1];
  const plural = `${String(object.kind).toLowerCase()}s`.replace(/sss$/, 'sses').replace(/ys$/, 'ies');
  const scope = memberAt(object, ['metadata', 'namespace']) === undefined ? '' : ' namespaced';
  return `${plural}${group === undefined ? '' : `.${group}`}${scope}`;
}

/** The roles of a file that a binding gives to Linger's own ServiceAccount: those of users are not its rights. */
function rolesIn(file: string) {
  const objects = objectsIn(file);
  const bound = objects.filter((each) =>
    recordsAt(each, 'subjects').some(({ kind, name }) => kind === 'ServiceAccount' && name === 'linger'),
  );
  return objects
    .filter(({ kind, metadata }) =>
      bound.some(({ roleRef }) => {
        const { kind: boundKind, name } = isRecord(roleRef) ? roleRef : {};
        return boundKind === kind && name === memberAt(metadata, ['name']);
      }),
    )
    .map((role) => ({
      manifest: `deploy/${file}`,
      name: String(memberAt(role, ['metadata', 'name'])),
      namespaced: role.kind === 'Role',
      rules: recordsAt(role, 'rules'),
    }));
}
