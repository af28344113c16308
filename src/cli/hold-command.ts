import { ApiReader, asFailure, type KubeConnection, KubeFailure, type RawObject } from '../cluster/index.ts';
import { jsonIn, LingerError, recordsAt } from '../core/api/index.ts';
import type { HoldReport } from '../dashboard/index.ts';
import { type HeldView, readHelperObject } from '../hold/index.ts';
import { NEVER, pause } from '../timing/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectToLinger, explained, nameOf } from './connect.ts';
import { notPublished } from './read-cluster.ts';
import { rendered, yamlText } from './rendering.ts';
import {
  columns,
  jsonText,
  paragraphs,
  repeated,
  type Surroundings,
  showSeconds,
  withoutProgress,
} from './terminal.ts';

/** `linger hold ACTION`: the commands for hook Hold. */
export async function hold(settings: Settings<'hold'>, surroundings: Surroundings): Promise<number> {
  return settings.operands[0] === 'manifest'
    ? manifest(settings, surroundings)
    : list(settings, surroundings);
}

/** The name of the port in deploy/, and its number if the user's own Deployment names none. */
const ADMIN = { name: 'admin', port: 8080 };

/** A handover takes this long if the leader has vanished. */
const HANDOVER_MS = 25_000;

async function list(settings: Settings<'hold'>, surroundings: Surroundings): Promise<number> {
  const { namespace: wanted, output, watch } = settings;
  const { connection, lingerNamespace } = await connectToLinger(
    settings,
    watch ? withoutProgress(surroundings) : surroundings,
  );
  await repeated(watch, surroundings, async (signal) => {
    const held = await askLeader(connection, lingerNamespace, surroundings, signal);
    const shown = held.filter((each) => wanted === undefined || wanted.includes(each.namespace));
    const report: HoldReport = { held: shown };
    surroundings.print(rendered(output, report, () => tableOf(shown, wanted)));
  });
  return 0;
}

/** Asks each replica, and if none leads, again until a handover is over. */
export async function askLeader(
  connection: KubeConnection,
  namespace: string,
  { warn }: Pick<Surroundings, 'warn'>,
  signal = NEVER,
): Promise<readonly HeldView[]> {
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const replicas = {
    path: pods,
    query: { labelSelector: 'app.kubernetes.io/name=linger' },
    project: ({ metadata: { name }, spec }: RawObject) => {
      const ports = recordsAt(spec, 'containers').flatMap((each) => recordsAt(each, 'ports'));
      return `${name}:${ports.find((each) => each.name === ADMIN.name)?.containerPort ?? ADMIN.port}`;
    },
  };
  const reader = new ApiReader(connection);
  try {
    let isAnnounced = false;
    for (const begun = performance.now(); ; ) {
      const names = await asked(connection, reader.list(replicas));
      const { held, failure, isHandover } = await askReplicas(pods, names, reader);
      if (held !== undefined) return held;
      if (failure === undefined)
        throw notPublished(connection, `no pod of Linger runs in namespace ${namespace}`);
      if (failure.reason === 'Forbidden')
        throw new LingerError(
          'cluster-denied',
          `${nameOf(connection)}: ${failure.message}; this needs the permission to get pods/proxy in namespace ${namespace}: Role linger-view-replicas`,
        );
      const isLate = signal.aborted || performance.now() - begun > HANDOVER_MS;
      if (!isHandover || isLate) throw explained(failure, connection);
      if (!isAnnounced) warn('no leader; held pods stay held; waiting for the handover');
      isAnnounced = true;
      await pause(1_000, signal);
    }
  } finally {
    reader.close();
  }
}

/** @returns what the leader answers; or the last failure, and whether a replica has answered that it does not lead */
async function askReplicas(pods: string, names: readonly string[], reader: ApiReader) {
  let failure: KubeFailure | undefined;
  let isHandover = false;
  for (const name of names) {
    try {
      const held = jsonIn(await reader.text(`${pods}/${name}/proxy/holds`));
      if (Array.isArray(held)) return { held: held as readonly HeldView[], failure: undefined, isHandover };
      throw new KubeFailure('Malformed', `${name} did not answer with a list of holds`);
    } catch (thrown) {
      failure = asFailure(thrown);
      // Replicas that do not lead answer with 503.
      isHandover ||= failure.message.startsWith('503');
      if (failure.reason === 'Forbidden') break;
    }
  }
  return { held: undefined, failure, isHandover };
}

/** @param namespaces undefined: all */
function tableOf(held: readonly HeldView[], namespaces: readonly string[] | undefined): string {
  const where = namespaces === undefined ? '' : ` in ${namespaces.join(', ')}`;
  if (held.length === 0) return paragraphs([`No pod is held${where}.`]);
  const rows = held
    .toSorted((a, b) => b.heldMs - a.heldMs)
    .map((each) => [
      each.namespace,
      each.pod,
      each.cause === undefined ? 'no deletion seen' : CAUSES[each.cause],
      showSeconds(each.heldMs / 1000),
      showSeconds(each.leftMs / 1000),
      each.waitingFor.map(({ consumer, instances = [] }) => [consumer, ...instances].join(' ')).join('; '),
      connectionsOf(each),
    ]);
  const header = ['NAMESPACE', 'POD', 'WHY', 'HELD', 'LEFT', 'WAITING FOR', 'CONNECTIONS'];
  return paragraphs(columns([header, ...rows], ['left', 'left', 'left', 'right', 'right', 'left', 'left']));
}

const CAUSES = {
  Deleted: 'deleted',
  NodeShutdown: 'node shuts down',
  Evicted: 'evicted',
  Restart: 'container restarts',
} as const;

const MOST_ADDRESSES = 5;

/** `3 open, from 10.0.0.7, 10.0.0.8` */
function connectionsOf({ open, from }: HeldView): string {
  const more = from.length > MOST_ADDRESSES ? ` and ${from.length - MOST_ADDRESSES} more` : '';
  const addresses = from.length === 0 ? '' : `, from ${from.slice(0, MOST_ADDRESSES).join(', ')}${more}`;
  return open === undefined && from.length === 0 ? '-' : `${open ?? '?'} open${addresses}`;
}

/** Prints the ConfigMap with the helpers of this version, once for each namespace: for kubectl apply, or for GitOps. */
function manifest({ namespace, output }: Settings<'hold'>, { print }: Surroundings): number {
  const helper = readHelperObject();
  const objects = namespace?.map((each) => helper.manifest(each)) ?? [helper.manifest()];
  if (output === 'json') {
    const [only] = objects;
    const list = { apiVersion: 'v1', kind: 'List', items: objects };
    print(jsonText(objects.length === 1 ? only : list));
    return 0;
  }
  // Long lines are not folded: base64 is a single long word, and easier to compare that way.
  print(objects.map((object) => yamlText(object, { lineWidth: 0 })).join('---\n'));
  return 0;
}
