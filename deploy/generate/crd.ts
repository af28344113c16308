import { stringify } from 'yaml';
import type { z } from 'zod';
import { API_VERSION, BUILT_IN_CONSUMERS, GROUP } from '../../src/core/catalog/vocabulary.ts';
import { discoveryConsumerSpec } from '../../src/core/schema/consumer.ts';
import { discoveryConsumerStatus } from '../../src/core/schema/consumer-status.ts';
import { RESERVED_NAME_HINT } from '../../src/core/schema/documents.ts';
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
  readonly spec: z.ZodType;
  readonly status: z.ZodType;
  readonly columns: readonly Column[];
  /** Rules of the whole object, such as those about its name. */
  readonly rules: readonly { readonly rule: string; readonly message: string }[];
}

const measured = (member: string) => `.status.conditions[?(@.type=="Measured")].${member}`;

export const DISCOVERY_CONSUMER: ResourceKind = {
  kind: 'DiscoveryConsumer',
  plural: 'discoveryconsumers',
  scope: 'Cluster',
  spec: discoveryConsumerSpec,
  status: discoveryConsumerStatus,
  columns: [
    { name: 'Measure', type: 'string', jsonPath: '.status.measure', description: 'How its lag is known.' },
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
      description: 'How long ago it was timed last.',
    },
    {
      name: 'Measured',
      type: 'string',
      jsonPath: measured('status'),
      description: 'Whether its lag can be relied on.',
    },
    { name: 'Reason', type: 'string', jsonPath: measured('reason'), description: 'Why, or why not.' },
    {
      name: 'Instances',
      type: 'integer',
      jsonPath: '.status.instances',
      description: 'How many instances report.',
      priority: 1,
    },
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
  rules: Object.values(BUILT_IN_CONSUMERS).map((name) => ({
    rule: `self.metadata.name != '${name}'`,
    message: RESERVED_NAME_HINT,
  })),
};

/** The CustomResourceDefinition of a kind, as YAML. */
export function crdText(kind: ResourceKind): string {
  const header = '# Generated from the schemas in src/core/schema by `npm run generate`: change those.\n';
  return header + stringify(crdOf(kind), { lineWidth: 120, aliasDuplicateObjects: false });
}

function crdOf({ kind, plural, scope, spec, status, columns, rules }: ResourceKind): unknown {
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
    'x-kubernetes-validations': rules,
  };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${GROUP}`, labels: { 'app.kubernetes.io/name': 'linger' } },
    spec: {
      group: GROUP,
      scope,
      names: { kind, listKind: `${kind}List`, plural, singular, categories: ['linger'] },
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
