import { KEPT_SECONDS, listKind, MOST_OBJECTS } from '../audit/index.ts';
import type { Senders } from '../check/index.ts';
import { callApi, type KubeConnection, KubeFailure } from '../cluster/index.ts';
import { API_VERSION, fewOf, LingerError, printable } from '../core/api/index.ts';
import {
  type Discovered,
  type DiscoveredConsumer,
  discover,
  ROUTING_KINDS,
  SENDER_KINDS,
} from '../core/discovery/index.ts';
import { RELATED_KINDS } from '../core/judge/index.ts';
import { ManifestError, readDocuments } from '../core/manifest/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectAsKubectl, explained, nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import { readGivenManifests } from './manifests.ts';
import { readTerminations } from './read-cluster.ts';
import { rendered, yamlText } from './rendering.ts';
import { columns, paragraphs, type Surroundings } from './terminal.ts';

/** For all lists together, because a person is waiting. */
const CLUSTER_WITHIN_MS = 60_000;
const REQUEST_MS = 10_000;

/** `linger consumers discover`: prints the senders of traffic to pods as DiscoveryConsumers that are ready to be applied. */
export async function discoverConsumers(
  settings: Settings<'consumers'>,
  surroundings: Surroundings,
): Promise<number> {
  const { filename, apply, output = 'yaml' } = settings;
  const { print, warn } = surroundings;
  if (apply && filename !== undefined)
    throw usageError('--apply and --filename: --apply creates what the cluster shows; leave one out');
  if (apply && settings.output !== undefined)
    throw usageError('--apply and --output: --apply prints what it has created; leave one out');
  if (settings.failOn !== undefined)
    throw usageError('--fail-on: only with linger consumers list, whose conditions it is about');
  if (filename === undefined) surroundings.progress('reading the cluster');
  const connection = filename === undefined ? await connectAsKubectl(settings, surroundings) : undefined;
  const { objects, failed } =
    connection === undefined ? await ofManifests(settings, surroundings) : await ofCluster(connection, warn);
  const discovered = discover(objects, 'default');
  for (const { seen, services } of discovered.unrecognised)
    warn(
      `${seen}: not in the catalogue, or its Gateway was not seen; what sends ${services.length === 0 ? 'its traffic' : `to ${fewOf(services)}`} is unknown: declare its lag`,
    );
  if (apply && connection !== undefined) await create(connection, discovered, surroundings);
  else if (output === 'yaml') print(asYaml(discovered));
  else print(rendered(output, asJson(discovered), () => asTable(discovered)));
  return failed ? 1 : 0;
}

async function ofManifests(settings: Settings<'consumers'>, { stdin, warn, kube }: Surroundings) {
  const { filename, recursive, allowRemote } = settings;
  const wanted = {
    filename,
    recursive,
    allowRemote,
    operands: [],
    namespace: 'default',
    selector: undefined,
  };
  const manifests = await readGivenManifests(wanted, { stdin, warn, kube });
  const objects: unknown[] = [];
  let { failed } = manifests;
  for (const { text, name } of manifests.inputs)
    for (const document of readDocuments(text, name))
      for (const each of document.objects())
        if (each instanceof ManifestError) {
          failed = true;
          warn(`linger: ${each.message}`);
        } else objects.push(each.value);
  return { objects, failed };
}

/** Uses the kinds that may be listed, and warns about the others. */
async function ofCluster(connection: KubeConnection, warn: Surroundings['warn']) {
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  const objects: unknown[] = [];
  const denied: string[] = [];
  for (const kind of [...RELATED_KINDS, ...ROUTING_KINDS, ...SENDER_KINDS]) {
    const listing = listKind(kind, connection, { signal }, (object) => objects.push(object));
    const { isWhole, denied: failure } = await asked(connection, listing);
    if (!isWhole) warn(`${kind.kind}: only the first ${MOST_OBJECTS} objects are considered`);
    if (failure !== undefined) denied.push(kind.kind);
  }
  if (denied.length > 0) warn(`listing is forbidden, so consumers may be missing: ${denied.join(', ')}`);
  return { objects, failed: false };
}

/** For `linger check`: the senders that the catalogue recognises, and those that held pods have seen in the last week. */
export async function sendersOf(
  connection: KubeConnection,
  { namespace, now }: { readonly namespace: string; readonly now: number },
): Promise<Senders> {
  const { objects } = await ofCluster(connection, () => undefined);
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  // There is no record before the first pod has ended.
  const record = await readTerminations(connection, namespace, signal).catch((thrown: unknown) => {
    if (thrown instanceof LingerError && thrown.code === 'not-published') return undefined;
    throw thrown;
  });
  const seen = (record?.findings ?? []).filter(
    ({ reason, at }) => reason === 'UndeclaredConsumer' && at >= now - KEPT_SECONDS,
  );
  const pods = Map.groupBy(
    seen.flatMap(({ from = [] }) => from),
    (sender) => sender.split(' ')[0] ?? sender,
  );
  const witnessed = new Map([...pods.values()].map((all) => [all.at(-1) ?? '', { pods: all.length }]));
  return { discovered: discover(objects, 'default'), witnessed };
}

/** Creates consumers that are not declared yet; never changes existing ones. */
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
      if (thrown.reason === 'NotFound')
        throw new LingerError(
          'not-found',
          `${nameOf(connection)}: DiscoveryConsumers are not served: kubectl apply --filename deploy/crds/ first`,
        );
      if (thrown.reason !== 'AlreadyExists') throw explained(thrown, connection);
      warn(`discoveryconsumer.linger.dev/${name} exists already and is left unchanged`);
    }
  }
}

/** Why a consumer is printed, and what has to be done besides applying it. */
function commentsOf({ ecosystem, services, seen, instances, declaredBy, name }: DiscoveredConsumer) {
  const { measure, source } = ecosystem;
  const reaches = services.length === 0 ? 'any Service' : fewOf(services);
  const about = [`${name}: seen by ${fewOf(seen)}; it sends to ${reaches}`];
  if (declaredBy !== undefined && measure.by === 'clusterIp')
    return [...about, `nothing to declare: the built-in consumer ${declaredBy} covers its lag (${source})`];
  if (declaredBy !== undefined) return [...about, `declared already, by DiscoveryConsumer ${declaredBy}`];
  if (measure.by === 'xds')
    return [
      ...about,
      `istiod is followed; --inspect-files must contain ${measure.tls.caFile} and ${measure.tokenFile} (docs/gateways.md): ${source}`,
    ];
  if (measure.by !== 'inspect') return [...about, `nothing can be asked; the number is declared: ${source}`];
  const where =
    instances?.workload ?? 'its workload was not seen: the usual namespace and labels are assumed';
  const sidecar =
    measure.loopback === undefined
      ? []
      : [`its page is on loopback only: run this sidecar beside it: linger witness ${measure.loopback}`];
  const first = measure.first === undefined ? [] : [measure.first];
  return [...about, `asked: ${where}; ${source}`, ...sidecar, ...first];
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
  const shown = consumers.map(({ name, ecosystem, services, seen, instances, declaredBy, spec }) => {
    const { measure, source } = ecosystem;
    const { podLabels: _, ...asked } = instances ?? {};
    const where = { instances: instances === undefined ? null : asked, declaredBy: declaredBy ?? null };
    return { name, services, seen, measure, source, ...where, document: spec ?? null };
  });
  return { consumers: shown, unrecognised: unrecognised.map(({ seen }) => seen) };
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
