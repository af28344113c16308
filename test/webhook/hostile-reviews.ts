import { type JsonObject, pod, podOf, server } from '../core/decision/sample-pod.ts';
import { bodyOf, bodyWith, reviewOf } from './reviews.ts';

/** Texts `unit(0),unit(1),…` between `open` and `close`, up to `bytes` altogether. */
function filled(bytes: number, open: string, close: string, unit: (index: number) => string): string {
  const parts: string[] = [];
  let length = open.length + close.length;
  for (let index = 0; ; index++) {
    const part = unit(index);
    length += part.length + 1;
    if (length > bytes) return `${open}${parts.join()}${close}`;
    parts.push(part);
  }
}

/**
 * Texts of nine digits whose hashes collide in V8 (Node 24.9: the low 24 bits of their value), so that each that is added
 * to a table of strings takes longer than the one before.
 */
const colliding = (bits: number) => (index: number) => {
  const step = 2 ** bits;
  const inOneChain = Math.floor(9e8 / step);
  return `"${1e8 + (index % inOneChain) * step + Math.floor(index / inOneChain)}"`;
};

export const inContainer = (member: string, text: string): string =>
  JSON.stringify(podOf(server('app', { [member]: 'VALUE' }))).replace('"VALUE"', () => text);
const inPod = (member: string, text: string): string =>
  JSON.stringify(pod({ [member]: 'VALUE' })).replace('"VALUE"', () => text);
const inMetadata = (member: string, text: string): string =>
  JSON.stringify(pod({}, { [member]: 'VALUE' })).replace('"VALUE"', () => text);
const annotated = (key: string, text: string): string => bodyOf(pod({}, { annotations: { [key]: text } }));
const repeated = (text: string, bytes: number) => text.repeat(Math.floor(bytes / text.length));

/** The pod of the report: each of its containers asked for by each of the names. */
function manyContainersManyNames(bytes: number): string {
  const containers = Array.from({ length: 8_000 }, (_, index) => server(`c${index}`));
  const rest = bytes - JSON.stringify(containers).length;
  const annotations = {
    'linger.dev/containers': filled(Math.max(rest, 1000), '', '', (index) => `n${index}`),
  };
  return bodyOf(pod({ containers }, { annotations }));
}

type Hostile = (bytes: number) => string;

/** What anybody who may create pods, or who may call the port, can send. */
export const HOSTILE: Readonly<Record<string, Hostile>> = {
  'containers × names': manyContainersManyNames,
  '1,000 containers × names': (bytes) => {
    const containers = Array.from({ length: 1_000 }, (_, index) => server(`c${index}`));
    const names = filled(Math.min(bytes, 250_000), '', '', (index) => `n${index % 2000}`);
    return bodyOf(pod({ containers }, { annotations: { 'linger.dev/containers': names } }));
  },
  'colliding args': (bytes) => bodyWith(inContainer('args', filled(bytes, '[', ']', colliding(17)))),
  'colliding args, further apart': (bytes) =>
    bodyWith(inContainer('args', filled(bytes, '[', ']', colliding(20)))),
  'colliding names of containers': (bytes) =>
    bodyWith(
      inPod(
        'containers',
        filled(bytes, '[', ']', (index) => `{"name":${colliding(18)(index)}}`),
      ),
    ),
  'a colliding plan': (bytes) =>
    annotated(
      'linger.dev/plan',
      filled(Math.min(bytes, 250_000), '{"v":1,"containers":[', ']}', colliding(17)),
    ),
  'a plan of the length of a plan': () =>
    annotated('linger.dev/plan', filled(72 * 1024, '{"v":1,"containers":[', ']}', colliding(16))),
  'a plan of lengthened sleeps that fit no container': (bytes) => {
    const names = Array.from({ length: Math.min(1_000, Math.floor(bytes / 300)) }, (_, index) => `c${index}`);
    const extended = Object.fromEntries(names.map((name, index) => [name, index + 1]));
    const times = { wait: 2, grace: 100_000, baseGrace: 30, hook: 'Sleep', policy: '', why: 'fixed' };
    const annotations = {
      'linger.dev/plan': JSON.stringify({ v: 1, ...times, containers: names, extended }),
    };
    const lifecycle = { preStop: { sleep: { seconds: 7 } } };
    const containers = names.map((name) => server(`renamed-${name}`, { lifecycle }));
    return bodyOf(pod({ terminationGracePeriodSeconds: 100_000, containers }, { annotations }));
  },
  'colliding names in an annotation': (bytes) =>
    annotated(
      'linger.dev/containers',
      filled(Math.min(bytes, 250_000), '', '', (index) => colliding(17)(index).slice(1, -1)),
    ),
  'an annotation of commas': (bytes) =>
    annotated('linger.dev/containers', ','.repeat(Math.min(bytes, 262_000))),
  'an annotation of spaces': (bytes) => annotated('linger.dev/wait', ' '.repeat(Math.min(bytes, 262_000))),
  'an annotation of digits': (bytes) => annotated('linger.dev/wait', '1'.repeat(Math.min(bytes, 262_000))),
  'an annotation of control characters': (bytes) => annotated('linger.dev/mode', '\u0001'.repeat(bytes / 6)),
  'unknown linger.dev annotations': (bytes) =>
    bodyWith(
      inMetadata(
        'annotations',
        filled(Math.min(bytes, 262_000), '{', '}', (i) => `"linger.dev/${i}":""`),
      ),
    ),
  'many annotations': (bytes) =>
    bodyWith(
      inMetadata(
        'annotations',
        filled(bytes, '{', '}', (i) => `"a${i}":""`),
      ),
    ),
  'many labels': (bytes) =>
    bodyWith(
      inMetadata(
        'labels',
        filled(bytes, '{', '}', (i) => `"a${i}":""`),
      ),
    ),
  'many nodeSelectors': (bytes) =>
    bodyWith(
      inPod(
        'nodeSelector',
        filled(bytes, '{', '}', (i) => `"a${i}":""`),
      ),
    ),
  'keys that are numbers': (bytes) =>
    bodyWith(
      inMetadata(
        'annotations',
        filled(bytes, '{', '}', (i) => `"${(i * 7919) % 4294967291}":""`),
      ),
    ),
  'one key again and again': (bytes) =>
    bodyWith(
      inMetadata(
        'labels',
        filled(bytes, '{', '}', () => '"a":""'),
      ),
    ),
  'many owners': (bytes) =>
    bodyWith(
      inMetadata(
        'ownerReferences',
        filled(bytes, '[', ']', () => '{"kind":"A","name":"b"}'),
      ),
    ),
  'many ports': (bytes) =>
    bodyWith(
      inContainer(
        'ports',
        filled(bytes, '[', ']', () => '0'),
      ),
    ),
  'a long env': (bytes) =>
    bodyWith(
      inContainer(
        'env',
        filled(bytes, '[', ']', (index) => `{"name":"A${index}","value":"b"}`),
      ),
    ),
  'a long preStop': (bytes) =>
    bodyWith(
      inContainer('lifecycle', `{"preStop":{"exec":{"command":${filled(bytes, '[', ']', () => '"a"')}}}}`),
    ),
  'a deep preStop': (bytes) =>
    bodyWith(
      inContainer('lifecycle', `{"preStop":${repeated('{"a":', bytes / 6)}1${repeated('}', bytes / 6)}}`),
    ),
  'nested lists': (bytes) => bodyWith(inPod('x', `${'['.repeat(bytes / 2)}${']'.repeat(bytes / 2)}`)),
  'nested objects': (bytes) =>
    bodyWith(inPod('x', `${'{"a":'.repeat(bytes / 6)}1${'}'.repeat(Math.floor(bytes / 6))}`)),
  'empty objects': (bytes) =>
    bodyWith(
      inPod(
        'x',
        filled(bytes, '[', ']', () => '{}'),
      ),
    ),
  'empty lists': (bytes) =>
    bodyWith(
      inPod(
        'x',
        filled(bytes, '[', ']', () => '[]'),
      ),
    ),
  'objects of all shapes': (bytes) =>
    bodyWith(
      inPod(
        'x',
        filled(bytes, '[', ']', (i) => `{"k${i}":1}`),
      ),
    ),
  escapes: (bytes) => bodyWith(inPod('x', `"${repeated('\\u0041', bytes)}"`)),
  'not ASCII': (bytes) => bodyOf(pod({ x: 'é'.repeat(bytes / 2) })),
  'a long number': (bytes) => bodyWith(inPod('x', '1'.repeat(bytes))),
  'no JSON': (bytes) => `${bodyOf().slice(0, -2)},"x":[${'['.repeat(bytes)}`,
  'containers that are none': (bytes) =>
    bodyWith(
      inPod(
        'containers',
        filled(bytes, '[', ']', () => '{"name":""}'),
      ),
    ),
  'lists in place of all members': (bytes) => {
    const list = filled(bytes / 8, '[', ']', () => '0');
    const request = Object.keys(reviewOf().request as JsonObject);
    return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",${request
      .filter((name) => name !== 'uid')
      .map((name) => `"${name}":${list}`)
      .join()}}}`;
  },
};
