import type { V1ServiceSpec } from '@kubernetes/client-node';
import {
  type ClusterTerminationPolicy,
  type DiscoveryConsumer,
  isLingerObject,
  namespaceRecord,
  parseDocument,
  type ServiceRecord,
  serviceIndex,
  type TerminationPolicy,
  taken,
} from '../../../src/core/api/index.ts';
import {
  type ClusterSnapshot,
  NO_SOURCES,
  snapshotOf as snapshotFrom,
} from '../../../src/core/decision/cluster-snapshot.ts';
import { type Fleet, fleetOf, type NodeFacts } from '../../../src/core/decision/fleet.ts';
import { policySet } from '../../../src/core/decision/policy-set.ts';
import {
  CLUSTER_DNS,
  CLUSTER_IP,
  consumerOf,
  type LagSource,
  NONE_YET,
} from '../../../src/core/lag/index.ts';
import type { EmpiricalLag } from './empirical-distribution.ts';
import { type JsonObject, NAMESPACE } from './sample-pod.ts';

const API_VERSION = 'linger.dev/v1alpha1';

export function clusterPolicy(spec: JsonObject, name = 'base'): JsonObject {
  return { apiVersion: API_VERSION, kind: 'ClusterTerminationPolicy', metadata: { name }, spec };
}

export function policy(spec: JsonObject, name = 'team', namespace = NAMESPACE): JsonObject {
  return { apiVersion: API_VERSION, kind: 'TerminationPolicy', metadata: { name, namespace }, spec };
}

export function consumer(
  appliesTo: JsonObject,
  name = 'gateway',
  measure: JsonObject = { declared: { syncInterval: '10s' } },
): JsonObject {
  const spec = { appliesTo, measure };
  return { apiVersion: API_VERSION, kind: 'DiscoveryConsumer', metadata: { name }, spec };
}

export function namespace(
  annotations: JsonObject = {},
  labels: JsonObject = {},
  name = NAMESPACE,
): JsonObject {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name, annotations, labels } };
}

export function service(spec: V1ServiceSpec, name = 'web', ofNamespace = NAMESPACE): JsonObject {
  return { apiVersion: 'v1', kind: 'Service', metadata: { name, namespace: ofNamespace }, spec };
}

/** What is known before anything has been read. */
export const EMPTY_SNAPSHOT: ClusterSnapshot = snapshotFrom(NO_SOURCES);

/** What {@link snapshotOf} needs beside the documents. */
export interface Circumstances {
  readonly modeLimit?: ClusterSnapshot['modeLimit'];
  readonly fleet?: Fleet;
  /** One distribution for every namespace. */
  readonly lag?: EmpiricalLag;
  /** Instead of that: a source that answers by namespace and consumers. */
  readonly lags?: LagSource;
  /** Whether the Services given are all that the cluster has. Default false: no cluster. */
  readonly servicesComplete?: boolean;
  readonly hold?: ClusterSnapshot['hold'];
}

/** The snapshot that these linger.dev, Namespace and Service documents make. */
export function snapshotOf(
  documents: readonly JsonObject[],
  circumstances: Circumstances = {},
): ClusterSnapshot {
  const { lag, servicesComplete = false, ...rest } = circumstances;
  const ofLag: LagSource | undefined = lag && {
    planned: (_namespace, _consumers, enough) => lag.planned(enough),
  };
  const lags = circumstances.lags ?? ofLag ?? NONE_YET;
  const parsed = documents
    .filter(isLingerObject)
    .map((each, index) => parseDocument(each, `sample ${index}`));
  const ofKind = <T>(kind: string) => parsed.filter((each) => each.kind === kind) as T[];
  const plain = (kind: string) => documents.filter((each) => each.apiVersion === 'v1' && each.kind === kind);
  const declared = ofKind<DiscoveryConsumer>('DiscoveryConsumer').map(({ metadata, spec }) =>
    consumerOf(metadata.name, spec),
  );
  const consumers = [CLUSTER_IP, CLUSTER_DNS, ...declared.filter(({ observed }) => !observed)];
  return {
    ...EMPTY_SNAPSHOT,
    ...rest,
    policies: taken(
      policySet(
        ofKind<ClusterTerminationPolicy>('ClusterTerminationPolicy'),
        ofKind<TerminationPolicy>('TerminationPolicy'),
      ),
    ),
    consumers,
    measured: [...consumers, ...declared.filter(({ observed }) => observed)],
    namespaces: new Map(plain('Namespace').map((each) => [nameOf(each), recordOf(each)])),
    services: serviceIndex(plain('Service').map(serviceRecord), servicesComplete),
    lags,
  };
}

/** A Linux node on amd64. */
export function sampleNode(facts: Partial<NodeFacts> = {}): NodeFacts {
  return {
    name: 'node',
    labels: {},
    addresses: [],
    kubeletVersion: 'v1.36.3',
    virtual: false,
    operatingSystem: 'linux',
    architecture: 'amd64',
    osImage: 'Ubuntu 24.04.2 LTS',
    containerRuntimeVersion: 'containerd://2.1.4',
    ...facts,
  };
}

/** The fleet of a cluster with nodes of these kubelet versions. */
export function fleet(apiServer: string, ...kubelets: string[]): Fleet {
  return fleetOf(
    apiServer,
    kubelets.map((kubeletVersion, index) => sampleNode({ name: `node-${index}`, kubeletVersion })),
  );
}

/** One whose kubelets silently ignore a native sleep. */
export const OLD_FLEET = fleet('v1.29.4', 'v1.28.9');

interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
}

const metadataOf = ({ metadata }: JsonObject) => metadata as Metadata;
const nameOf = (object: JsonObject) => metadataOf(object).name;

function recordOf(object: JsonObject) {
  const { name, labels = {}, annotations = {} } = metadataOf(object);
  return namespaceRecord(name, labels, annotations);
}

function serviceRecord(object: JsonObject): ServiceRecord {
  const { name, namespace: ofNamespace = NAMESPACE, labels = {} } = metadataOf(object);
  const spec = object.spec as { selector?: Record<string, string>; type?: string; clusterIP?: string };
  const externalName = spec.type === 'ExternalName';
  const headless = spec.clusterIP === 'None';
  return { namespace: ofNamespace, name, labels, selector: spec.selector, headless, externalName };
}
