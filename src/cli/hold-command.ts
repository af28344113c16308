import { stringify } from 'yaml';
import { jsonIn } from '../api/index.ts';
import {
  asFailure,
  ask,
  callApi,
  type KubeConnection,
  KubeFailure,
  newAgent,
  readText,
} from '../cluster/index.ts';
import { type HeldView, readHelperObject } from '../hold/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectToLinger, explained } from './connect.ts';
import { usageError } from './flags.ts';
import { notPublished } from './read-cluster.ts';
import { columns, jsonText, paragraphs, rendered, type Surroundings, showSeconds } from './terminal.ts';

/** `linger hold ACTION`: the commands around hook Hold. */
export async function hold(settings: Settings<'hold'>, surroundings: Surroundings): Promise<number> {
  const action = settings.operands.join(' ') || 'list';
  if (action === 'list') return list(settings, surroundings);
  if (action === 'manifest') return manifest(settings, surroundings);
  throw usageError(`hold: expected list or manifest, got "${action}"`);
}

const REQUEST_MS = 10_000;
/** The name of the port in deploy/, and its number where a Deployment of one's own names none. */
const ADMIN = { name: 'admin', port: 8080 };

/** Who is held now: the replica that leads knows. */
async function list(settings: Settings<'hold'>, surroundings: Surroundings): Promise<number> {
  const { namespace: wanted, output } = settings;
  const { connection, lingerNamespace: namespace } = await connectToLinger(settings, surroundings);
  const call = { signal: AbortSignal.timeout(3 * REQUEST_MS), withinMs: REQUEST_MS };
  const listing = callApi(connection, 'CoreV1Api', call, (core) =>
    core.listNamespacedPod({ namespace, labelSelector: 'app.kubernetes.io/name=linger' }),
  );
  const { items } = await asked(connection, listing);
  let failure: KubeFailure | undefined;
  for (const { metadata, spec } of items) {
    const ports = spec?.containers.flatMap((each) => each.ports ?? []) ?? [];
    const port = ports.find((each) => each.name === ADMIN.name)?.containerPort ?? ADMIN.port;
    try {
      const held = await heldBy(connection, `${namespace}/pods/${metadata?.name}:${port}`, call.signal);
      const shown = held.filter((each) => wanted === undefined || wanted.includes(each.namespace));
      surroundings.print(rendered(output, { held: shown }, () => tableOf(shown)));
      return 0;
    } catch (thrown) {
      // Those that do not lead say so with a 503.
      failure = asFailure(thrown);
      if (failure.reason === 'Forbidden') break;
    }
  }
  if (failure !== undefined) throw explained(failure, connection);
  throw notPublished(connection, `no pod of Linger runs in namespace ${namespace}`);
}

async function heldBy(
  connection: KubeConnection,
  pod: string,
  signal: AbortSignal,
): Promise<readonly HeldView[]> {
  const agent = newAgent(connection);
  try {
    const path = `/api/v1/namespaces/${pod}/proxy/holds`;
    const response = await ask(connection, { path, agent, signal, answerMs: REQUEST_MS });
    const json = jsonIn(await readText(response, 64 * 1024 * 1024, REQUEST_MS));
    if (Array.isArray(json)) return json as readonly HeldView[];
    throw new KubeFailure('Malformed', `${pod} answered with no list of holds`);
  } finally {
    agent.destroy();
  }
}

function tableOf(held: readonly HeldView[]): string {
  if (held.length === 0) return 'No pod is held.\n';
  const rows = held
    .toSorted((a, b) => b.heldMs - a.heldMs)
    .map(({ namespace, pod, deleted, heldMs, maxSeconds, waitingFor }) => [
      namespace,
      pod,
      deleted ? showSeconds(heldMs / 1000) : '-',
      showSeconds(maxSeconds),
      waitingFor.map(({ consumer, instances = [] }) => [consumer, ...instances].join(' ')).join('; '),
    ]);
  const header = ['NAMESPACE', 'POD', 'HELD', 'MAX', 'WAITING FOR'];
  return paragraphs(columns([header, ...rows], ['left', 'left', 'right', 'right', 'left']));
}

/** The ConfigMap with the helpers of this version, once for each namespace: for kubectl apply, and for GitOps. */
function manifest({ namespace, output }: Settings<'hold'>, { print }: Surroundings): number {
  const helper = readHelperObject();
  const objects = namespace?.map((each) => helper.manifest(each)) ?? [helper.manifest()];
  if (output === 'json') {
    const [only] = objects;
    const list = { apiVersion: 'v1', kind: 'List', items: objects };
    print(jsonText(objects.length === 1 ? only : list));
    return 0;
  }
  // Base64 is one long word: folding would only make it harder to compare.
  print(objects.map((object) => stringify(object, { lineWidth: 0 })).join('---\n'));
  return 0;
}
