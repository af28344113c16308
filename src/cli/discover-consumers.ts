import { API_VERSION, fewOf, printable } from '../api/index.ts';
import { listKind, MOST_OBJECTS, RELATED_KINDS } from '../audit/index.ts';
import { callApi, type KubeConnection, KubeFailure } from '../cluster/index.ts';
import { DISCOVERY_KINDS, type Discovered, type DiscoveredConsumer, discover } from '../discovery/index.ts';
import { ManifestError, readDocuments } from '../manifest/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectAsKubectl, explained } from './connect.ts';
import { usageError } from './flags.ts';
import { readManifests } from './manifests.ts';
import { columns, paragraphs, rendered, type Surroundings, yamlText } from './terminal.ts';

/** For everything that is listed; a person is waiting. */
const CLUSTER_WITHIN_MS = 60_000;
const REQUEST_MS = 10_000;

/** `linger consumers discover`: what sends traffic to pods, as DiscoveryConsumers that are ready to be applied. */
export async function discoverConsumers(
  settings: Settings<'consumers'>,
  surroundings: Surroundings,
): Promise<number> {
  const { filename, apply, output = 'yaml' } = settings;
  const { print, warn } = surroundings;
  if (apply && filename !== undefined)
    throw usageError('--apply and --filename: --apply creates what the cluster shows; leave one out');
  const connection = filename === undefined ? await connectAsKubectl(settings, surroundings) : undefined;
  const { objects, failed } =
    connection === undefined ? await ofManifests(settings, surroundings) : await ofCluster(connection, warn);
  const discovered = discover(objects, 'default');
  for (const each of discovered.unrecognised)
    warn(`${each}: its class is not in the catalogue; what sends its traffic is unknown`);
  if (apply && connection !== undefined) await create(connection, discovered, surroundings);
  else if (output === 'yaml') print(asYaml(discovered));
  else print(rendered(output, asJson(discovered), () => asTable(discovered)));
  return failed ? 1 : 0;
}

async function ofManifests(settings: Settings<'consumers'>, { stdin, warn }: Surroundings) {
  const { filename, recursive } = settings;
  const wanted = { filename, recursive, operands: [], namespace: 'default', selector: undefined };
  const manifests = await readManifests(wanted, { stdin, warn });
  const objects = manifests.inputs.flatMap(({ text, name }) =>
    [...readDocuments(text, name)].flatMap((document) =>
      [...document.objects()].flatMap((each) => (each instanceof ManifestError ? [] : [each.value])),
    ),
  );
  return { objects, failed: manifests.failed };
}

/** Goes on with the kinds that may be listed, and names the others. */
async function ofCluster(connection: KubeConnection, warn: Surroundings['warn']) {
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  const objects: unknown[] = [];
  const denied: string[] = [];
  for (const kind of [...RELATED_KINDS, ...DISCOVERY_KINDS]) {
    const listing = listKind(kind, connection, { signal }, (object) => objects.push(object));
    const { isWhole, denied: failure } = await asked(connection, listing);
    if (!isWhole) warn(`${kind.kind}: only the first ${MOST_OBJECTS} objects are considered`);
    if (failure !== undefined) denied.push(kind.kind);
  }
  if (denied.length > 0) warn(`listing is forbidden, so consumers may be missing: ${denied.join(', ')}`);
  return { objects, failed: false };
}

/** Creates what is not declared yet; what exists is never changed. */
async function create(
  connection: KubeConnection,
  { consumers }: Discovered,
  { print, warn }: Surroundings,
): Promise<void> {
  const call = { signal: AbortSignal.timeout(CLUSTER_WITHIN_MS), withinMs: REQUEST_MS };
  const [group = '', version = ''] = API_VERSION.split('/');
  for (const { name, declaredBy, spec: body } of consumers) {
    if (declaredBy !== undefined || body === undefined) continue;
    try {
      await callApi(connection, 'CustomObjectsApi', call, (api) =>
        api.createClusterCustomObject({ group, version, plural: 'discoveryconsumers', body }),
      );
      print(`discoveryconsumer.linger.dev/${name} created (Observe)\n`);
    } catch (thrown) {
      if (!(thrown instanceof KubeFailure)) throw thrown;
      if (thrown.reason !== 'AlreadyExists') throw explained(thrown, connection);
      warn(`discoveryconsumer.linger.dev/${name} exists already and is left as it is`);
    }
  }
}

/** Why it is printed, and what has to be done beside applying it. */
function commentsOf({ ecosystem, services, seen, instances, declaredBy, name }: DiscoveredConsumer) {
  const { measure, source } = ecosystem;
  const reaches = services.length === 0 ? 'any Service' : fewOf(services);
  const about = [`${name}: seen by ${fewOf(seen)}; it sends to ${reaches}`];
  if (declaredBy !== undefined && measure.by === 'clusterIp')
    return [...about, `nothing to declare: the built-in consumer ${declaredBy} is its lag (${source})`];
  if (declaredBy !== undefined) return [...about, `declared already, by DiscoveryConsumer ${declaredBy}`];
  if (measure.by !== 'inspect') return [...about, `nothing can be asked; the number is declared: ${source}`];
  const where =
    instances?.workload ?? 'its workload was not seen: the usual namespace and labels are assumed';
  const sidecar =
    measure.loopback === undefined
      ? []
      : [`its page is on loopback only: run this sidecar beside it: linger witness ${measure.loopback}`];
  return [...about, `asked: ${where}; ${source}`, ...sidecar];
}

function asYaml({ consumers }: Discovered): string {
  if (consumers.length === 0) return '# nothing that the catalogue knows sends traffic to a Service\n';
  const blocks = consumers.map((each) => {
    // A name may contain a line break, which would end the comment.
    const comments = commentsOf(each).map((line) => `# ${printable(line)}\n`);
    const document = each.declaredBy === undefined && each.spec !== undefined ? yamlText(each.spec) : '';
    return comments.join('') + document;
  });
  return blocks.join('---\n');
}

function asJson({ consumers, unrecognised }: Discovered) {
  const shown = consumers.map(({ ecosystem: { measure, source }, spec, instances, declaredBy, ...rest }) => ({
    ...rest,
    ...{ measure, source, instances: instances ?? null, declaredBy: declaredBy ?? null },
    document: spec ?? null,
  }));
  return { consumers: shown, unrecognised };
}

function asTable({ consumers }: Discovered): string {
  const rows = consumers.map(({ name, ecosystem: { measure }, services, instances, declaredBy }) => [
    name,
    measure.by === 'inspect' ? `inspect (${measure.format})` : measure.by,
    services.length === 0 ? 'all' : String(services.length),
    instances?.workload ?? '-',
    declaredBy ?? 'not declared',
  ]);
  return paragraphs(columns([['NAME', 'MEASURE', 'SERVICES', 'INSTANCES', 'DECLARED BY'], ...rows]));
}
