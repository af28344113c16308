import { asFailure, oneLine } from '../cluster/index.ts';
import { count } from '../core/api/index.ts';
import { atLeast, fleetOf, parseVersion, supportsNativeSleep } from '../core/decision/index.ts';
import { nodesResource } from '../informers/index.ts';
import { type Check, checked, failure, type Inquiry, ok, type Seen, unknown, warning } from './checks.ts';
import { floorBefore } from './floor.ts';
import { otherInstallation, otherWebhooks } from './pod-webhooks.ts';
import { rightsToInstall } from './rights.ts';
import { admission } from './trial-pods.ts';

export function checkBefore(inquiry: Inquiry): Promise<readonly Check[]> {
  return checked(inquiry, {
    ApiServer: apiServer,
    Rights: rightsToInstall,
    Kubelets: kubelets,
    Admission: admission,
    Webhook: otherInstallation,
    OtherWebhooks: otherWebhooks,
    Floor: floorBefore,
  });
}

/** The oldest version on which the suite has run. docs/install.md lists them all, and the chart requires it. */
export const OLDEST = { major: 1, minor: 32 };

export async function apiServer(inquiry: Inquiry): Promise<Seen> {
  const { href } = inquiry.connection.server;
  let text: string;
  try {
    text = String((await inquiry.json('/version')).gitVersion);
  } catch (thrown) {
    const { reason, message } = asFailure(thrown);
    if (reason === 'Forbidden') throw thrown;
    return failure(
      `${href}: ${oneLine(message)}`,
      'Check that this is the right kubeconfig, and that the address can be reached from here.',
    );
  }
  const version = parseVersion(text);
  if (version === undefined)
    return unknown(`${href} answers, and does not say which Kubernetes it is: its version is ${text}`);
  if (atLeast(version, OLDEST)) return ok(`${href} runs ${text}`);
  return failure(
    `${href} runs ${text}: Linger needs Kubernetes ${OLDEST.major}.${OLDEST.minor} or newer, and has not been tried on older ones`,
    'Upgrade the cluster first.',
  );
}

/** More nodes than Kubernetes supports. */
const MOST_NODES = 20_000;
const EXAMPLES = 3;

export async function kubelets(inquiry: Inquiry): Promise<Seen> {
  const nodes = await inquiry.list(nodesResource(), MOST_NODES);
  const real = nodes.filter(({ virtual }) => !virtual);
  const sleepless = real.filter((node) => !supportsNativeSleep(fleetOf('', [node])));
  const versions = [...new Set(real.map(({ kubeletVersion }) => kubeletVersion))].toSorted();
  const text = `${count(real.length, 'node')} with kubelet ${versions.join(', ')}`;
  if (real.length === 0) return warning('the cluster has no node: replicas cannot start', 'Add a node.');
  if (sleepless.length === 0) return ok(text);
  const examples = sleepless.slice(0, EXAMPLES).map(({ name }) => name);
  return warning(
    `${text}: ${count(sleepless.length, 'node')} older than 1.30 (${examples.join(', ')}) ignore the native sleep hook`,
    'Upgrade these nodes. Once Linger has seen them for 10 minutes, hook: Auto means Exec until they are gone, which needs a `sleep` in every image.',
  );
}
