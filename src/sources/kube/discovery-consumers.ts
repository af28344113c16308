import { asError } from '../../core/catalog/errors.ts';
import { API_VERSION } from '../../core/catalog/vocabulary.ts';
import { type Consumer, consumerOf } from '../../core/consumers/consumer.ts';
import { type DiscoveryConsumer, parseDocument } from '../../core/schema/documents.ts';
import type { RawObject, Resource } from './resource.ts';

export const DISCOVERY_CONSUMERS_PATH = `/apis/${API_VERSION}/discoveryconsumers`;

/** A DiscoveryConsumer as the API server has it. */
export interface ConsumerProjection {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  /** undefined: this version of Linger cannot read it. */
  readonly consumer: Consumer | undefined;
  /** Why it cannot; every field that is wrong is named. */
  readonly problem: string | undefined;
  /** The spec as text: the same for two that say the same. */
  readonly spec: string;
  /** Whatever stands there: ours, as a rule. */
  readonly status: unknown;
}

export function discoveryConsumersResource(): Resource<ConsumerProjection> {
  return { path: DISCOVERY_CONSUMERS_PATH, afterMetadata: 'spec', project: projectConsumer };
}

/** Never throws: an object that cannot be read must not keep the others from being followed. */
export function projectConsumer({ metadata, spec, status }: RawObject): ConsumerProjection {
  const { name, uid, resourceVersion, generation } = metadata;
  return {
    name,
    uid,
    resourceVersion,
    generation,
    spec: JSON.stringify(spec) ?? '',
    status,
    ...read(name, spec),
  };
}

const KIND = 'DiscoveryConsumer';

function read(name: string, spec: unknown): Pick<ConsumerProjection, 'consumer' | 'problem'> {
  try {
    const object = { apiVersion: API_VERSION, kind: KIND, metadata: { name }, spec };
    const document = parseDocument(object, name) as DiscoveryConsumer;
    return { consumer: consumerOf(name, document.spec), problem: undefined };
  } catch (error) {
    const { message } = asError(error);
    const prefix = `${name}: ${KIND}: `;
    return {
      consumer: undefined,
      problem: message.startsWith(prefix) ? message.slice(prefix.length) : message,
    };
  }
}
