import type { X509Certificate } from 'node:crypto';
import { basename } from 'node:path/posix';
import { isTrusted, parseCertificates, renewalTime } from '../certs/index.ts';
import { type Json, type KubeFailure, oneLine, type RawObject } from '../cluster/index.ts';
import {
  API_VERSION,
  count,
  fewOf,
  HOLD_SERVICE,
  holdConfigMap,
  isRecord,
  isString,
  type LabelSelector,
  type Labels,
  listOf,
  memberAt,
  recordsAt,
  selects,
  span,
} from '../core/api/index.ts';
import type { Discovered } from '../core/discovery/index.ts';
import { sendsToNone } from '../core/lag/index.ts';
import { readHelperObject } from '../hold/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  DISCOVERY_CONSUMERS,
  TERMINATION_POLICIES,
} from '../informers/index.ts';
import { readConsumers, SHARED_NAMES } from '../leader/index.ts';
import {
  type Check,
  checked,
  failure,
  type Inquiry,
  type Judgement,
  ok,
  problemsOr,
  type Seen,
  unchecked,
  unknown,
  unlessNotServed,
  warning,
} from './checks.ts';
import { floor } from './floor.ts';
import {
  endpointSlices,
  namespaceLabels,
  OWN_LABELS,
  otherWebhooks,
  ownWebhook,
  webhook,
} from './pod-webhooks.ts';
import { apiServer, kubelets } from './preflight.ts';
import {
  APPLY,
  canary,
  deployment,
  flagsOf,
  isZero,
  leader,
  type PortName,
  portsOf,
  replicaStatuses,
  replicas,
  UNREACHED_UNKNOWN,
  unreachedIn,
  unreachedInWords,
  watches,
} from './replicas.ts';
import { replicaRights } from './rights.ts';
import { answer } from './trial-pods.ts';

/** The effect of all policies, from objects and from files. */
export interface InForce {
  /** The namespaces whose pods may get hook Hold, and why pods without node constraints get none there. */
  readonly wantingHold: readonly { readonly namespace: string; readonly why: string | undefined }[];
  /** Why some policies could not be read; undefined: all were read. */
  readonly policiesUnread: string | undefined;
  /** The digest of the helper that the leader delivers; undefined: not known. */
  readonly holdDigest: string | undefined;
  /** How many policies come from files. */
  readonly files: number;
  /** The problems of policies in files. */
  readonly fileProblems: readonly string[];
  /** Why files cannot be read. */
  readonly filesUnread: KubeFailure | undefined;
  /** The mode of a pod without labels in the namespace of the dry run; undefined: that namespace does not exist. */
  readonly mode: { readonly value: string; readonly origin: string } | undefined;
}

/** The senders of traffic to pods, declared or not. */
export interface Senders {
  readonly discovered: Discovered;
  /** Addresses (with their owners, if known) that connected to held pods after every known consumer had stopped. */
  readonly witnessed: ReadonlyMap<string, { readonly pods: number }>;
}

/** Checks whether an installed Linger works. @param senders undefined: not searched */
export function checkInstallation(
  inquiry: Inquiry,
  inForce: () => Promise<InForce>,
  senders?: () => Promise<Senders>,
): Promise<readonly Check[]> {
  const ifReadable = () => inForce().catch(() => undefined);
  return checked(inquiry, {
    ApiServer: apiServer,
    Kubelets: kubelets,
    CustomResources: customResources,
    Rights: replicaRights,
    Webhook: webhook,
    Certificate: certificate,
    Replicas: replicas,
    Ports: ports,
    Answer: answer,
    OtherWebhooks: otherWebhooks,
    Floor: floor,
    NetworkPolicy: async () => [
      ...[await networkPolicies(inquiry)].flat(),
      ...(await helperEgress(inquiry, await ifReadable()).catch((thrown) => [unchecked(thrown)])),
    ],
    Leader: leader,
    Watches: watches,
    Canary: canary,
    Consumers: async () => {
      const found = await senders?.().then(undeclared, (thrown) => [unchecked(thrown)]);
      const measured = [await consumers(inquiry)].flat();
      const isFine = measured.every(({ state }) => state === 'ok');
      return [...(isFine && found?.length ? [] : measured), ...(found ?? [])];
    },
    Policies: async () => policies(inquiry, await ifReadable()),
    HoldHelper: async () => {
      const unreached = await unreachedPods(inquiry);
      const helper = [await holdHelper(inquiry, await inForce())].flat();
      const isFine = unreached.length > 0 && helper.every(({ state }) => state === 'ok');
      return [...(isFine ? [] : helper), ...unreached];
    },
  });
}

const LINGER_KINDS = [CLUSTER_TERMINATION_POLICIES, DISCOVERY_CONSUMERS, TERMINATION_POLICIES].map(
  ({ path }) => basename(path),
);

async function customResources(inquiry: Inquiry): Promise<Seen> {
  const served = recordsAt(await inquiry.find(`/apis/${API_VERSION}`), 'resources').map(({ name }) => name);
  const missing = LINGER_KINDS.filter((plural) => !served.includes(plural));
  if (missing.length === 0) return ok(LINGER_KINDS.join(', '));
  return warning(`not served: ${missing.join(', ')}; only files can declare them`, APPLY);
}

/** The Secret from which replicas serve: either the one that they create, or one of the user's, which is mounted. */
async function certificateSecret(
  inquiry: Inquiry,
): Promise<{ readonly name: string; readonly isTheirs: boolean; readonly cure: string }> {
  const declared = await deployment(inquiry);
  const volumes = recordsAt(declared, 'spec', 'template', 'spec', 'volumes');
  const mounted = volumes.map((each) => memberAt(each, ['secret', 'secretName']));
  const made = flagsOf(declared)('certs-secret');
  const theirs = made === undefined ? mounted.find(isString) : undefined;
  return theirs === undefined
    ? {
        name: made ?? 'linger-certificates',
        isTheirs: false,
        cure: 'A running replica creates it: see the log of the replicas.',
      }
    : {
        name: theirs,
        isTheirs: true,
        cure: 'It is your own: create it with tls.crt and tls.key; replicas wait for it.',
      };
}

const BUNDLE_CURE =
  'Replicas restore it within 10 s if the Role linger-certificates lets them; otherwise see their log. For a certificate of your own, patch clientConfig.caBundle.';

async function certificate(inquiry: Inquiry): Promise<Seen> {
  const { namespace, now } = inquiry.options;
  const own = await ownWebhook(inquiry);
  const encoded = memberAt(own, ['clientConfig', 'caBundle']);
  const bundle = isString(encoded) ? decoded(encoded) : '';
  const noBundle = own !== undefined && parseCertificates(bundle).length === 0;
  const unbundled =
    noBundle &&
    failure('the webhook configuration has no caBundle: no API server trusts Linger', BUNDLE_CURE);
  const { name, isTheirs, cure } = await certificateSecret(inquiry);
  const secret = await inquiry.find(`/api/v1/namespaces/${namespace}/secrets/${name}`);
  const text = memberAt(secret, ['data', 'tls.crt']);
  const chain = isString(text) ? decoded(text) : '';
  const [leaf] = parseCertificates(chain);
  const what = `the certificate in Secret ${namespace}/${name}`;
  if (leaf === undefined) {
    const lacking =
      secret === undefined ? `there is no Secret ${namespace}/${name}` : `${what} cannot be parsed`;
    return [unbundled || [], failure(lacking, cure)].flat();
  }
  const date = new Date(now * 1000);
  const notAfter = leaf.validToDate;
  const expired = notAfter <= date;
  const host = `linger.${namespace}.svc`;
  const left = `valid for ${span((notAfter.getTime() - date.getTime()) / 1000)}, until ${notAfter.toISOString()}`;
  return problemsOr(
    [
      unbundled,
      expired &&
        failure(
          `${what} expired on ${notAfter.toISOString()}`,
          'A running replica renews it at once: see the log of the replicas. Renew one of your own yourself.',
        ),
      !expired &&
        own !== undefined &&
        !noBundle &&
        !isTrusted(chain, bundle, date) &&
        failure(
          `the caBundle of the webhook configuration does not match ${what}: API servers do not trust Linger`,
          BUNDLE_CURE,
        ),
      // Go clients, and so API servers, ignore the common name.
      leaf.checkHost(host, { subject: 'never' }) === undefined &&
        failure(
          `${what} does not cover ${host}, which API servers call`,
          'Add the name with --cert-names, or to your own certificate.',
        ),
    ],
    // Replicas renew their own certificate within a minute once a third of its life remains.
    isTheirs && endsSoon(leaf, date)
      ? warning(`${what} expires soon; ${left}`, 'It is your own: renew it.')
      : !isTheirs && renewalTime(leaf).getTime() + HOUR_MS < date.getTime()
        ? warning(`${what} is overdue for renewal; ${left}`, 'The log of the replicas says why.')
        : own === undefined
          ? unknown(`${what} is ${left}; without a webhook configuration, nothing says who trusts it`)
          : ok(`${what} is trusted and ${left}`),
  );
}

const HOUR_MS = 3_600_000;

/** Whether less than a quarter of its life remains, as in the alert LingerCertificateExpires. */
function endsSoon({ validFromDate, validToDate }: X509Certificate, now: Date): boolean {
  const life = validToDate.getTime() - validFromDate.getTime();
  return validToDate.getTime() - now.getTime() < life / 4;
}

function decoded(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}

/** Checks targetPorts, because that is where connections to a Service end, whatever its own port is. */
async function ports(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const declared = await deployment(inquiry);
  if (declared === undefined) return [];
  const listens = Object.entries(await portsOf(inquiry));
  const containers = recordsAt(declared, 'spec', 'template', 'spec', 'containers');
  const named = new Map(
    containers.flatMap((each) => recordsAt(each, 'ports')).map((each) => [each.name, each.containerPort]),
  );
  const labels = memberAt(declared, ['spec', 'template', 'metadata', 'labels']);
  const services = await inquiry.items(`/api/v1/namespaces/${namespace}/services`);
  const own = services.filter(({ spec }) => {
    const selector = memberAt(spec, ['selector']);
    if (!isRecord(selector) || !isRecord(labels)) return false;
    // Replicas get additional labels while they run; if a shared label differs, the pod belongs to something else in this
    // namespace.
    const shared = Object.keys(selector).filter((key) => key in labels);
    return shared.length > 0 && shared.every((key) => selector[key] === labels[key]);
  });
  const wrong = own.flatMap(({ metadata: { name }, spec }) =>
    recordsAt(spec, 'ports').flatMap(({ port, targetPort = port }) => {
      const at = isString(targetPort) ? named.get(targetPort) : targetPort;
      if (listens.some(([, each]) => each === at)) return [];
      const flags = listens.map(([each, number]) => `${each} ${number}`).join(', ');
      const why =
        at === undefined
          ? `${String(targetPort)}, a port that no container of the Deployment has`
          : `${String(at)}, where no replica listens (by its flags: ${flags})`;
      const judge = name === 'linger' ? failure : warning;
      return judge(`port ${String(port)} of Service ${namespace}/${name} leads to ${why}`, APPLY);
    }),
  );
  return problemsOr(wrong, ok(`${count(own.length, 'Service')}, each to a port where replicas listen`));
}

type Policy = RawObject & Json;

function restricts(policy: Policy, direction: Direction): boolean {
  return listOf(memberAt(policy.spec, ['policyTypes'])).includes(direction);
}
type Direction = 'Ingress' | 'Egress';

/**
 * The rules of a NetworkPolicy that allow one of these ports, by number or name. They refer to ports of pods, not of the
 * Service.
 */
function rulesFor(
  policy: Policy,
  direction: Direction,
  wanted: readonly (number | string)[],
): readonly Json[] {
  return recordsAt(policy.spec, direction.toLowerCase()).filter(({ ports: open }) => {
    const all = listOf(open);
    return all.length === 0 || all.some((port) => reaches(port, wanted));
  });
}

/** Whether a port of a NetworkPolicy (a number, a range, a name, or all of a protocol) is one of these. */
function reaches(port: unknown, wanted: readonly (number | string)[]): boolean {
  if (!isRecord(port) || (port.protocol ?? 'TCP') !== 'TCP') return false;
  const { port: first, endPort: last = first } = port;
  if (typeof first !== 'number') return first === undefined || wanted.some((each) => each === first);
  return wanted.some((each) => Number(each) >= first && Number(each) <= Number(last));
}

const NO_HOLD = 'hooks (Hold) cannot reach Linger and wait as long as Sleep would';
const COMPARE = 'Compare with deploy/networkpolicy.yaml.';

async function networkPolicies(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const all = await inquiry.items(`/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`);
  const own = all.filter(({ spec }) => {
    const selector = memberAt(spec, ['podSelector']);
    return !isRecord(selector) || selects(selector as LabelSelector, OWN_LABELS);
  });
  if (own.length === 0) return ok('no NetworkPolicy selects the replicas: any client may call their ports');
  const subject = `NetworkPolicy ${own.map(({ metadata }) => metadata.name).join(', ')}`;
  const opening = (direction: Direction, ...wanted: readonly (number | string)[]) =>
    own.flatMap((policy) => rulesFor(policy, direction, wanted));
  const listens = await portsOf(inquiry);
  const served = await apiServerPorts(inquiry);
  const inward = opening('Ingress', listens.webhook, 'webhook');
  const blocked = (name: PortName, consequence: string) =>
    listens[name] !== 0 &&
    opening('Ingress', listens[name], name).length === 0 &&
    warning(`${subject} blocks port ${listens[name]} (${name}): ${consequence}`, COMPARE);
  const inside =
    inward.length === 0
      ? [failure(`${subject} blocks port ${listens.webhook}: no API server can call the webhook`, COMPARE)]
      : [
          inward.every((rule) => listOf(rule.from).length > 0) &&
            ok(
              `${subject} opens port ${listens.webhook} to some addresses only: those of all API servers must be among them (the line Answer tries one)`,
            ),
          blocked('admin', 'kubelets cannot probe the replicas, and Prometheus cannot scrape them'),
          blocked('hold', NO_HOLD),
        ];
  return problemsOr(
    [
      ...(own.some((policy) => restricts(policy, 'Ingress')) ? inside : []),
      own.some((policy) => restricts(policy, 'Egress')) &&
        opening('Egress', ...served).length === 0 &&
        failure(
          `${subject} blocks egress to port ${served.join(' or ')}: replicas cannot call API servers`,
          COMPARE,
        ),
    ],
    ok(`${subject} lets API servers in, and replicas out to them`),
  );
}

/**
 * The ports at which connections to the Service kubernetes end, because NetworkPolicies apply to these and not to the
 * Service's.
 */
async function apiServerPorts(inquiry: Inquiry): Promise<readonly number[]> {
  const slices = await endpointSlices(inquiry, 'default', 'kubernetes').catch(() => []);
  const all = slices.flatMap((slice) => recordsAt(slice, 'ports')).map(({ port }) => Number(port));
  return all.length > 0 ? [...new Set(all)] : [443, 6443];
}

/** Whether connections of helpers can leave the namespaces that want Hold. */
async function helperEgress(inquiry: Inquiry, inForce: InForce | undefined): Promise<readonly Judgement[]> {
  const { namespace } = inquiry.options;
  const wanting = new Set(inForce?.wantingHold.map((each) => each.namespace));
  const { hold: port } = await portsOf(inquiry);
  if (wanting.size === 0 || port === 0) return [];
  const labels = await namespaceLabels(inquiry, namespace);
  const all = await inquiry.items('/apis/networking.k8s.io/v1/networkpolicies');
  const restricting = all.filter(
    (policy) => wanting.has(policy.metadata.namespace ?? '') && restricts(policy, 'Egress'),
  );
  const selectorOf = ({ spec }: Policy) => JSON.stringify(memberAt(spec, ['podSelector']) ?? {});
  const opens = (policy: Policy) =>
    rulesFor(policy, 'Egress', [port, 'hold']).some((rule) => {
      const to = recordsAt(rule, 'to');
      const isOwn = policy.metadata.namespace === namespace;
      return to.length === 0 || to.some((peer) => mayBeLinger(peer, isOwn, labels));
    });
  // What this policy forbids, another policy may allow for the same or for all pods.
  const shut = restricting.filter(
    (policy) =>
      !restricting.some(
        (other) =>
          other.metadata.namespace === policy.metadata.namespace &&
          ['{}', selectorOf(policy)].includes(selectorOf(other)) &&
          opens(other),
      ),
  );
  if (shut.length === 0) return [];
  const names = shut.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
  return [
    warning(
      `NetworkPolicy ${fewOf(names)} blocks egress to port ${port} of namespace ${namespace}: ${NO_HOLD}`,
      `Open egress to TCP port ${port} of the pods app.kubernetes.io/name: linger in namespace ${namespace}.`,
    ),
  ];
}

/** Whether the peer of a rule may be a replica. Addresses are not compared. */
function mayBeLinger(peer: Json, isOwn: boolean, labels: Labels): boolean {
  const { ipBlock, namespaceSelector, podSelector } = peer;
  if (ipBlock !== undefined) return true;
  const inNamespace = isRecord(namespaceSelector)
    ? selects(namespaceSelector as LabelSelector, labels)
    : isOwn;
  return inNamespace && (!isRecord(podSelector) || selects(podSelector as LabelSelector, OWN_LABELS));
}

async function consumers(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const object = await inquiry.find(`/api/v1/namespaces/${namespace}/configmaps/${SHARED_NAMES.consumers}`);
  const shared = object === undefined ? undefined : readConsumers(object);
  if (shared === undefined || shared.outcome !== 'read') {
    const problem =
      shared?.outcome === 'refused' ? `cannot be used: ${shared.problem}` : 'does not exist yet';
    return warning(
      `ConfigMap ${namespace}/${SHARED_NAMES.consumers} ${problem}`,
      'The leader writes it within a minute of its start: see the line Leader.',
    );
  }
  const views = shared.value.consumers;
  const troubled = views
    .filter(({ condition }) => condition.status === 'False')
    .map(({ name, condition }) =>
      warning(
        `${name}: ${condition.reason}: ${oneLine(condition.message)}`,
        'linger consumers lists all of them; docs/reference/consumers.md, “Conditions”, explains each reason.',
      ),
    );
  const unseen = views
    .filter((view) => sendsToNone(view, inquiry.options.now))
    .map(({ name }) =>
      warning(
        `${name} is declared and has sent to no held pod in 7 days`,
        'If it sends to none of the Services of its appliesTo, narrow that, or delete it: waits and holds are longer for it.',
      ),
    );
  return problemsOr(
    [...troubled, ...unseen],
    ok(
      views
        .map(({ name, mode, condition }) => `${name} ${condition.reason}${mode ? ` (${mode})` : ''}`)
        .join(', '),
    ),
  );
}

function undeclared({ discovered, witnessed }: Senders): readonly Judgement[] {
  const found = discovered.consumers.filter(({ spec, declaredBy }) => spec && declaredBy === undefined);
  return [
    ...found.slice(0, MOST_SHOWN).map(({ name, seen, services }) => {
      const reaches = services.length === 0 ? 'any Service' : fewOf(services);
      return warning(
        `${name} (${oneLine(fewOf(seen))}) sends to ${oneLine(reaches)} and is not declared: no wait covers its lag`,
        'linger consumers discover prints it; --apply creates it with mode Observe.',
      );
    }),
    ...[...witnessed]
      .slice(0, MOST_SHOWN)
      .map(([sender, { pods }]) =>
        warning(
          `${oneLine(sender)} sends and is not declared: ${count(pods, 'held pod')} got connections from it after every known consumer had stopped`,
          'Declare it as a DiscoveryConsumer; linger audit --since 168h lists the pods.',
        ),
      ),
  ];
}

/** How many lines or names of one problem are shown; more would not help. */
const MOST_SHOWN = 5;

/** @param inForce the effect of policies; undefined: not known, which another check reports */
async function policies(inquiry: Inquiry, inForce: InForce | undefined): Promise<Seen> {
  const { files, fileProblems = [], filesUnread, mode } = inForce ?? {};
  const broken: Judgement[] = filesUnread === undefined ? [] : [unchecked(filesUnread)];
  for (const problem of fileProblems)
    broken.push(
      warning(
        `not in force: ${oneLine(problem)}`,
        'Fix it; until then, replicas keep the last valid version.',
      ),
    );
  let objects = 0;
  for (const { kind, path } of [CLUSTER_TERMINATION_POLICIES, TERMINATION_POLICIES])
    for (const { metadata, status } of (await unlessNotServed(inquiry.items(path))) ?? []) {
      objects += 1;
      const ready = recordsAt(status, 'conditions').find(({ type }) => type === 'Ready');
      if (ready?.status !== 'False') continue;
      const { namespace, name } = metadata;
      const who = `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
      const why = `${String(ready.reason)}: ${oneLine(String(ready.message))}`;
      const cure = 'docs/reference/policies.md, “Status of a policy”, explains each reason.';
      broken.push(warning(`${who} is not in force: ${why}`, cure));
    }
  const limit = flagsOf(await deployment(inquiry))('mode-limit') ?? 'Enforce';
  const limited = limit === 'Enforce' ? '' : `, --mode-limit=${limit}`;
  const where = mode && `; mode of pods in ${inquiry.options.tryIn}: ${mode.value} (${mode.origin})`;
  const more = warning(
    `and ${broken.length - MOST_SHOWN} more`,
    'kubectl get ctp,tp --all-namespaces; for files, linger check FILE.',
  );
  return problemsOr(
    broken.length > MOST_SHOWN ? [...broken.slice(0, MOST_SHOWN), more] : broken,
    ok(
      `policies: ${files ?? '?'} from files, ${objects} from the cluster, all valid${where ?? ''}${limited}`,
    ),
  );
}

/** Counts pods that call the address of an earlier Service. If replicas cannot be asked, the check Watches says so. */
async function unreachedPods(inquiry: Inquiry): Promise<readonly Judgement[]> {
  const statuses = [...((await replicaStatuses(inquiry).catch(() => undefined))?.values() ?? [])];
  if (statuses.length === 0) return [];
  const pods = unreachedIn(statuses);
  if (pods === undefined)
    return [unknown(UNREACHED_UNKNOWN, 'Finish the upgrade of Linger, and check again.')];
  if (pods === 0) return [];
  return [
    warning(
      unreachedInWords(pods),
      'linger audit names their workloads (HoldUnreached); kubectl rollout restart gives new pods the present address.',
    ),
  ];
}

/** More namespaces than Kubernetes is designed for. */
const MOST_NAMESPACES = 10_000;

async function holdHelper(
  inquiry: Inquiry,
  { wantingHold, holdDigest, policiesUnread }: InForce,
): Promise<Seen> {
  if (wantingHold.length === 0 && policiesUnread !== undefined)
    return unknown(`policies cannot all be read, so hook Hold may be in use: ${oneLine(policiesUnread)}`);
  if (wantingHold.length === 0) return ok('no policy asks for hook Hold');
  const wanted = wantingHold.map(({ namespace }) => namespace);
  const { namespace } = inquiry.options;
  const flag = flagsOf(await deployment(inquiry));
  const service = `/api/v1/namespaces/${namespace}/services/${HOLD_SERVICE}`;
  const off = isZero(flag('hold-port')) && 'Hold is off (--hold-port=0)';
  const unled = flag('hold-address') === undefined && (await inquiry.find(service)) === undefined;
  const why = off || (unled && `there is no Service ${namespace}/${HOLD_SERVICE}`);
  if (why !== false)
    return warning(
      `${why}: pods that ask for Hold get Sleep, in ${fewOf(wanted)}`,
      'In the chart, set hold.enabled=true; otherwise remove --hold-port=0 and apply deploy/service-hold.yaml.',
    );
  const name = holdDigest === undefined ? readHelperObject().name : holdConfigMap(holdDigest);
  // Only metadata, because each of these has 60 kB of helpers.
  const helpers = {
    path: '/api/v1/configmaps',
    query: { fieldSelector: `metadata.name=${name}` },
    metadataOnly: true,
    project: ({ metadata }: RawObject) => metadata,
  };
  const found = await inquiry.list(helpers, MOST_NAMESPACES);
  const present = new Set(found.map((each) => each.namespace));
  const missing = wanted.filter((each) => !present.has(each));
  const ending = found.filter(({ deletionTimestamp }) => deletionTimestamp !== undefined);
  const others = Map.groupBy(
    wantingHold.filter(({ namespace: each, why: other }) => other !== undefined && present.has(each)),
    ({ why: other }) => other,
  );
  const loses = 'pods that mount it lose their hook when their kubelet restarts';
  const apply = 'or: linger hold manifest -n NAMESPACE | kubectl apply -f -';
  return problemsOr(
    [
      missing.length > 0 &&
        warning(
          `ConfigMap ${name} is missing in ${count(missing.length, 'namespace')} (${fewOf(missing)}): new pods there get Sleep, and ${loses}`,
          `The leader creates it, with the permissions of deploy/rbac-hold.yaml; ${apply}`,
        ),
      ending.length > 0 &&
        warning(
          `ConfigMap ${name} is being deleted in ${fewOf(ending.map((each) => each.namespace ?? ''))}: once it is gone, ${loses}`,
          `Remove its finalizers, and the leader creates it again; ${apply}`,
        ),
      ...[...others]
        .slice(0, MOST_SHOWN)
        .map(([other, places]) =>
          warning(
            `pods get Sleep instead of Hold in ${fewOf(places.map((each) => each.namespace))}: ${other}`,
            `linger explain pod/NAME shows it for one pod. After a failed trial, the annotation linger.dev/hold-tried of ConfigMap ${namespace}/${name} says why.`,
          ),
        ),
    ],
    ok(`ConfigMap ${name} is in ${count(wanted.length, 'namespace')}`),
  );
}
