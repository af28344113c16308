import { stringify } from 'yaml';
import type { z } from 'zod';
import { discoveryConsumerSpec, discoveryConsumerStatus } from '../../src/core/api/discovery-consumer.ts';
import { API_VERSION, GROUP } from '../../src/core/api/names.ts';
import {
  clusterTerminationPolicySpec,
  policyStatus,
  terminationPolicySpec,
} from '../../src/core/api/termination-policy.ts';
import { structuralSchema } from './structural.ts';

/** A column of `kubectl get`. */
interface Column {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'date';
  readonly jsonPath: string;
  readonly description: string;
  /** Over 0: with `--output wide` only. */
  readonly priority?: number;
}

/** A kind of the API group, and what is said of it beyond its schemas. */
export interface ResourceKind {
  readonly kind: string;
  readonly plural: string;
  readonly scope: 'Cluster' | 'Namespaced';
  readonly shortNames?: readonly string[];
  readonly spec: z.ZodType;
  readonly status: z.ZodType;
  readonly columns: readonly Column[];
  /** Rules of the whole object, such as those about its name. */
}

const measured = (member: string) => `.status.conditions[?(@.type=="Measured")].${member}`;

export const DISCOVERY_CONSUMER: ResourceKind = {
  kind: 'DiscoveryConsumer',
  plural: 'discoveryconsumers',
  scope: 'Cluster',
  shortNames: ['dc'],
  spec: discoveryConsumerSpec,
  status: discoveryConsumerStatus,
  columns: [
    { name: 'Measure', type: 'string', jsonPath: '.status.measure', description: 'How its lag is known.' },
    { name: 'Mode', type: 'string', jsonPath: '.spec.mode', description: 'Whether waits consider it.' },
    {
      name: 'Samples',
      type: 'integer',
      jsonPath: '.status.samples',
      description: 'How often it was timed in the last 7 days.',
    },
    { name: 'P50', type: 'string', jsonPath: '.status.p50', description: 'The median of its lag.' },
    {
      name: 'P99',
      type: 'string',
      jsonPath: '.status.p99',
      description: '99 % of its lags are at most this.',
    },
    {
      name: 'Last sample',
      type: 'date',
      jsonPath: '.status.lastSample',
      description: 'How long ago it was last timed.',
    },
    {
      name: 'Services',
      type: 'integer',
      jsonPath: '.status.services',
      description: 'How many Services it applies to.',
    },
    {
      name: 'Instances',
      type: 'integer',
      jsonPath: '.status.instances',
      description: 'How many instances report, or are asked.',
    },
    {
      name: 'Measured',
      type: 'string',
      jsonPath: measured('status'),
      description: 'Whether its lag can be relied on.',
    },
    { name: 'Reason', type: 'string', jsonPath: measured('reason'), description: 'Why, or why not.' },
    {
      name: 'Message',
      type: 'string',
      jsonPath: measured('message'),
      description: 'Why, in words.',
      priority: 1,
    },
    {
      name: 'Age',
      type: 'date',
      jsonPath: '.metadata.creationTimestamp',
      description: 'Since when it has been there.',
    },
  ],
};

const POLICY_COLUMNS: readonly Column[] = [
  {
    name: 'Mode',
    type: 'string',
    jsonPath: '.status.mode',
    description: 'What happens to its pods, ceilings included.',
  },
  { name: 'Hook', type: 'string', jsonPath: '.status.hook', description: 'Which preStop hook waits.' },
  { name: 'Wait', type: 'string', jsonPath: '.status.wait', description: 'The wait that it gives now.' },
  { name: 'Why', type: 'string', jsonPath: '.status.why', description: 'How that wait was chosen.' },
  { name: 'Hold', type: 'string', jsonPath: '.status.hold', description: 'The shortest and longest hold.' },
  {
    name: 'P99',
    type: 'string',
    jsonPath: '.status.p99',
    description: '99 % of the measured lags are at most this.',
    priority: 1,
  },
  {
    name: 'Samples',
    type: 'integer',
    jsonPath: '.status.samples',
    description: 'How many removals were measured.',
  },
  { name: 'Pods', type: 'integer', jsonPath: '.status.pods', description: 'How many pods it selects.' },
  {
    name: 'Ready',
    type: 'string',
    jsonPath: '.status.conditions[?(@.type=="Ready")].status',
    description: 'Whether this spec is in force.',
  },
  {
    name: 'Priority',
    type: 'integer',
    jsonPath: '.spec.priority',
    description: 'Of two, the higher wins.',
    priority: 1,
  },
  {
    name: 'Message',
    type: 'string',
    jsonPath: '.status.conditions[?(@.type=="Ready")].message',
    description: 'Why, in words.',
    priority: 1,
  },
  {
    name: 'Age',
    type: 'date',
    jsonPath: '.metadata.creationTimestamp',
    description: 'Since when it has been there.',
  },
];

export const CLUSTER_TERMINATION_POLICY: ResourceKind = {
  kind: 'ClusterTerminationPolicy',
  plural: 'clusterterminationpolicies',
  scope: 'Cluster',
  shortNames: ['ctp'],
  spec: clusterTerminationPolicySpec,
  status: policyStatus,
  columns: POLICY_COLUMNS,
};

export const TERMINATION_POLICY: ResourceKind = {
  kind: 'TerminationPolicy',
  plural: 'terminationpolicies',
  scope: 'Namespaced',
  shortNames: ['tp'],
  spec: terminationPolicySpec,
  status: policyStatus,
  columns: POLICY_COLUMNS,
};

/** The CustomResourceDefinition of a kind, as YAML. */
export function crdText(kind: ResourceKind): string {
  const header = '# Generated from the schemas in src/core/api by `npm run generate`: change those.\n';
  // As kubectl reads it, YAML 1.1: an unquoted Off would be the boolean false.
  return header + stringify(crdOf(kind), { version: '1.1', lineWidth: 120, aliasDuplicateObjects: false });
}

function crdOf({ kind, plural, scope, shortNames, spec, status, columns }: ResourceKind): unknown {
  const singular = kind.toLowerCase();
  const schema = {
    type: 'object',
    required: ['spec'],
    properties: {
      apiVersion: { type: 'string' },
      kind: { type: 'string' },
      metadata: { type: 'object' },
      spec: structuralSchema(spec),
      status: structuralSchema(status),
    },
  };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${GROUP}`, labels: { 'app.kubernetes.io/name': 'linger' } },
    spec: {
      group: GROUP,
      scope,
      names: {
        kind,
        listKind: `${kind}List`,
        plural,
        singular,
        ...(shortNames === undefined ? {} : { shortNames }),
        categories: ['linger'],
      },
      versions: [
        {
          name: API_VERSION.slice(GROUP.length + 1),
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: columns,
          schema: { openAPIV3Schema: schema },
        },
      ],
    },
  };
}
