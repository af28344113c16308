import {
  ANNOTATION,
  HOLD_MOUNT,
  HOLD_VOLUME,
  type HoldCall,
  type HoldDelivery,
  type HoldToken,
  type HoldVolume,
  holdConfigMap,
  holdTokenTime,
  holdVolume,
  isAbsentOr,
  isRecord,
  isString,
  labelOf,
  memberAt,
  textOf,
} from '../api/index.ts';
import type { ClusterSnapshot, HoldSupply } from './cluster-snapshot.ts';
import { quoted } from './containers.ts';
import { nodeKind, supportsImageVolumes } from './fleet.ts';
import { type Kinds, reachOf } from './placement.ts';
import {
  annotationsOf,
  type Container,
  constraintsOf,
  entriesOf,
  isReadableList,
  isWindows,
  NODE_PROFILES,
  type Pod,
  shortTextIn,
} from './pod.ts';

export interface HoldSetup {
  readonly address: string;
  readonly token: string;
  readonly tokenHash: string;
  /** Absent: the pod has the helper's volume already. */
  readonly volume?: HoldVolume;
}

/** Why Hold cannot be used, as the end of a sentence. */
export interface NoHold {
  readonly why: string;
  /** The obstacle is in the pod itself, so no other node and no setting would help. */
  readonly ofPod?: true;
}

export interface DeliveryTerms {
  readonly namespace: string;
  readonly delivery: HoldDelivery;
  readonly token: HoldToken | undefined;
  readonly snapshot: Pick<ClusterSnapshot, 'hold' | 'fleet'>;
}

/** @param containers those that get the hook */
export function newSetup(
  pod: Pod,
  containers: readonly Container[],
  terms: DeliveryTerms,
): HoldSetup | NoHold {
  const why = obstacleIn(pod, containers);
  if (why !== undefined) return { why, ofPod: true };
  const { token, snapshot } = terms;
  const { hold } = snapshot;
  if (hold !== undefined && 'why' in hold) return hold;
  if (hold === undefined || token === undefined) return { why: 'no Hold Service is known' };
  const volume = volumeFor(pod, terms, hold);
  if ('why' in volume) return volume;
  return { address: hold.address, token: token.text, tokenHash: token.hashOf(token.text), volume };
}

/** A pod that can run on any node. */
const ANY_POD: Pod = { spec: { containers: [] } };

/**
 * Why a pod of this namespace without node constraints gets no hook Hold, as the end of a sentence; undefined: it does, or
 * that is not known.
 */
export function holdObstacle(
  namespace: string,
  delivery: HoldDelivery,
  snapshot: DeliveryTerms['snapshot'],
): string | undefined {
  const { hold } = snapshot;
  if (hold === undefined || 'why' in hold) return hold?.why;
  const volume = volumeFor(ANY_POD, { namespace, delivery, token: undefined, snapshot }, hold);
  return 'why' in volume ? volume.why : undefined;
}

/**
 * Why the hooks of a pod with this plan no longer reach the Hold Service, as the end of a sentence: they call the address
 * that they got at admission, and a Service that is deleted and created again gets another.
 * @returns undefined: they do reach it, or that is not known
 */
export function holdUnreached(
  { hold: terms }: { readonly hold?: { readonly address?: string; readonly max: number } },
  hold: ClusterSnapshot['hold'],
): string | undefined {
  if (terms?.address === undefined || hold === undefined) return undefined;
  if ('why' in hold) return hold.why;
  return hold.address === terms.address
    ? undefined
    : `they call ${terms.address}, and the Hold Service is at ${hold.address} now`;
}

/**
 * The API server gives up a request after 60 s (--request-timeout). A token that is older when its pod is created was copied
 * from another pod’s manifest.
 */
const ADMISSION_SECONDS = 60;

/**
 * The setup of an earlier pass of the same admission, if it can be reused. A pod copied from a running one carries a setup
 * too, but with an old token; two pods with one token would be confused by the Hold Service.
 * @param call what the pod's hooks call
 * @param containers those that get the hook
 */
export function standingSetup(
  pod: Pod,
  call: HoldCall | undefined,
  containers: readonly Container[],
  terms: DeliveryTerms,
): HoldSetup | undefined {
  const { token } = terms;
  const { hold } = terms.snapshot;
  if (token === undefined || call === undefined || hold === undefined || 'why' in hold) return undefined;
  const { address } = call;
  if (address !== hold.address) return undefined;
  const tokenHash = token.hashOf(call.token);
  if (labelOf(annotationsOf(pod), ANNOTATION.holdToken) !== tokenHash) return undefined;
  const age = Math.abs(holdTokenTime(token.text) - holdTokenTime(call.token));
  if (age > ADMISSION_SECONDS || obstacleIn(pod, containers) !== undefined) return undefined;
  if (ownVolume(pod) !== undefined) return { address, token: call.token, tokenHash };
  const volume = volumeFor(pod, terms, hold);
  return 'why' in volume ? undefined : { address, token: call.token, tokenHash, volume };
}

/** Linger's volume, and its index among the pod's. */
export function ownVolume({
  spec,
}: Pod): { readonly index: number; readonly volume: HoldVolume } | undefined {
  const volumes = entriesOf(spec.volumes);
  const index = volumes.findIndex((each) => isRecord(each) && each.name === HOLD_VOLUME);
  const volume = volumes[index];
  return isOwnVolume(volume) ? { index, volume } : undefined;
}

const CONFIG_MAP_NAME = /^linger-hold-[0-9a-f]{16}$/;

/** Compares only members for which the API server sets no defaults. */
function isOwnVolume(volume: unknown): volume is HoldVolume {
  if (isString(memberAt(volume, ['image', 'reference']))) return true;
  const configMap = memberAt(volume, ['configMap']);
  if (!isRecord(configMap) || configMap.optional !== true || configMap.defaultMode !== 0o555) return false;
  const [item] = entriesOf(configMap.items);
  return CONFIG_MAP_NAME.test(textOf(configMap.name)) && memberAt(item, ['path']) === 'hold';
}

export const OWN_MOUNT = { name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true };

/** The index of Linger's mount among the container's. */
export function ownMount({ volumeMounts }: Container): number | undefined {
  const index = entriesOf(volumeMounts).findIndex(isOwnMount);
  return index < 0 ? undefined : index;
}

function isOwnMount(mount: unknown): boolean {
  if (!isRecord(mount) || mount.subPath || mount.subPathExpr) return false;
  return mount.name === HOLD_VOLUME && mount.mountPath === HOLD_MOUNT && mount.readOnly === true;
}

/** What in the pod prevents the helper from running, or would make the API server reject the pod. */
function obstacleIn(pod: Pod, containers: readonly Container[]): string | undefined {
  const { spec } = pod;
  if (isWindows(pod)) return 'the helper does not run on Windows';
  const { runtimeClassName } = spec;
  if (runtimeClassName)
    return `the helper has not been tried with runtime class ${shortTextIn(runtimeClassName)}`;
  if (!isAbsentOr(isReadableList, spec.volumes)) return 'the pod’s volumes cannot be read';
  const isTaken = entriesOf(spec.volumes).some((each) => isRecord(each) && each.name === HOLD_VOLUME);
  if (isTaken && ownVolume(pod) === undefined) return `the pod has a volume ${HOLD_VOLUME} of its own`;
  for (const container of containers) {
    const why = obstacleInContainer(pod, container);
    if (why !== undefined) return `container ${quoted(container.name)} ${why}`;
  }
  return undefined;
}

const APPARMOR_ANNOTATION = 'container.apparmor.security.beta.kubernetes.io/';

function obstacleInContainer(pod: Pod, container: Container): string | undefined {
  const { volumeMounts, volumeDevices, securityContext } = container;
  if (!isAbsentOr(isReadableList, volumeMounts) || !isAbsentOr(isReadableList, volumeDevices))
    return 'has mounts that cannot be read';
  const paths = [
    ...entriesOf(volumeMounts)
      .filter((mount) => !isOwnMount(mount))
      .map((mount) => memberAt(mount, ['mountPath'])),
    ...entriesOf(volumeDevices).map((device) => memberAt(device, ['devicePath'])),
  ];
  if (paths.some(isUnderMount)) return `has something of its own at ${HOLD_MOUNT}`;
  const profile = NODE_PROFILES.find((member) =>
    [securityContext, pod.spec.securityContext].some(
      (context) => memberAt(context, [member, 'type']) === 'Localhost',
    ),
  );
  const annotation = labelOf(annotationsOf(pod), APPARMOR_ANNOTATION + container.name);
  if (profile === undefined && !annotation?.startsWith('localhost/')) return undefined;
  return `has a ${profile ?? 'AppArmor profile'} of its node, which may forbid what the helper does`;
}

function isUnderMount(path: unknown): boolean {
  return `${shortTextIn(path).replace(/\/+/g, '/')}/`.startsWith(`${HOLD_MOUNT}/`);
}

function volumeFor(pod: Pod, terms: DeliveryTerms, supply: HoldSupply): HoldVolume | NoHold {
  const { delivery, snapshot } = terms;
  const fromMap = delivery === 'Image' ? undefined : configMapVolume(pod, terms, supply);
  if (fromMap !== undefined && !('why' in fromMap)) return fromMap;
  const image = delivery === 'ConfigMap' ? undefined : supply.image;
  if (image !== undefined && supportsImageVolumes(snapshot.fleet))
    return { name: HOLD_VOLUME, image: { reference: image } };
  if (fromMap !== undefined) return fromMap;
  return {
    why:
      image === undefined
        ? 'no image with the helper is known'
        : 'image volumes need Kubernetes 1.35 on the API server and on every node',
  };
}

function configMapVolume(
  pod: Pod,
  { namespace, snapshot: { fleet } }: DeliveryTerms,
  { digest, namespaces, architectures, tested }: HoldSupply,
): HoldVolume | NoHold {
  if (!namespaces.has(namespace))
    return { why: `namespace ${namespace} has no ConfigMap ${holdConfigMap(digest)}` };
  if (fleet === undefined) return { why: 'the cluster’s nodes are not known' };
  const fits = (kinds: Kinds) => {
    const byArchitecture = new Map([...kinds.values()].map((node) => [node.architecture, node.name]));
    const [first, ...more] = byArchitecture.keys();
    if (first === undefined) return { why: 'no node is known that the pod can run on' };
    if (more.length > 0) {
      const nodes = [...byArchitecture].map(([architecture, name]) => `node ${name} is ${architecture}`);
      return {
        why: `the pod can run on nodes of several architectures (${nodes.join(', ')}): keep it to one by nodeSelector kubernetes.io/arch, or set hold.delivery: Image`,
      };
    }
    if (!architectures.has(first))
      return { why: `there is no helper for ${first} (node ${byArchitecture.get(first)})` };
    const untried = [...kinds].find(([kind]) => !tested.has(kind))?.[1];
    if (untried !== undefined)
      return {
        why: `the helper has not passed its trial on nodes like ${untried.name} (${nodeKind(untried)})`,
      };
    return holdVolume(digest, first);
  };
  // Usually the helper works on every kind of node, so the pod's own constraints need not be evaluated.
  const anywhere = fits(reachOf(fleet).kinds);
  return 'why' in anywhere && constraintsOf(pod) !== '' ? fits(reachOf(fleet, pod).kinds) : anywhere;
}
