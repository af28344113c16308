import { describe, expect, it } from 'vitest';
import { FOREIGN_LIMITS } from '../../src/core/api/index.ts';
import { annotated, container, type JsonObject, pod, podOf, server } from '../core/decision/sample-pod.ts';
import { connect, requestBytes } from './connection.ts';
import { bodyOf, bodyWith, reviewOf, UID } from './reviews.ts';
import { applied, operationsOf, responseOf, startWebhook } from './webhook.ts';

const DEPTH = 100_000;
const nestedLists = '['.repeat(DEPTH) + ']'.repeat(DEPTH);
const nestedObjects = `${'{"a":'.repeat(DEPTH)}1${'}'.repeat(DEPTH)}`;

const podText = (member: string, text: string): string =>
  JSON.stringify(pod({ [member]: 'VALUE' })).replace('"VALUE"', () => text);
const containerText = (member: string, text: string): string =>
  JSON.stringify(podOf(server('app', { [member]: 'VALUE' }))).replace('"VALUE"', () => text);
const metadataText = (text: string): string =>
  JSON.stringify(pod({}, { VALUE: 0 })).replace('"VALUE":0', () => text);
const without = (member: string): string => {
  const { [member]: _, ...request } = reviewOf().request as JsonObject;
  return JSON.stringify({ ...reviewOf(), request });
};

describe('what is no AdmissionReview v1 gets 400 and the reason', () => {
  const cases: readonly (readonly [what: string, body: string | Buffer, reason: RegExp])[] = [
    ['an empty body', '', /not valid JSON/],
    ['truncated JSON', bodyOf().slice(0, -20), /not valid JSON/],
    ['JSON with something behind it', `${bodyOf()}x`, /not valid JSON/],
    ['two reviews in a row', bodyOf() + bodyOf(), /not valid JSON/],
    ['no JSON at all', 'kind: AdmissionReview', /not valid JSON/],
    ['a byte-order mark', `\uFEFF${bodyOf()}`, /not valid JSON/],
    ['zero bytes', Buffer.alloc(4096), /not valid JSON/],
    ['an invalid byte in a string', splitBody(0xff), /UTF-8/],
    ['a cut multi-byte character', splitBody(0xe2, 0x82), /UTF-8/],
    ['an encoded surrogate', splitBody(0xed, 0xa0, 0x80), /UTF-8/],
    ['UTF-16', Buffer.from(bodyOf(), 'utf16le'), /not valid JSON/],
    ['null', 'null', /kind/],
    ['a number', '1', /kind/],
    ['a string', '"AdmissionReview"', /kind/],
    ['a list of reviews', `[${bodyOf()}]`, /kind/],
    [`${DEPTH} nested lists`, nestedLists, /kind/],
    [`${DEPTH} nested objects`, nestedObjects, /kind/],
    [`${DEPTH} lists, not closed`, '['.repeat(DEPTH), /not valid JSON/],
    ['no kind', JSON.stringify({ ...reviewOf(), kind: undefined }), /kind/],
    ['another kind', JSON.stringify({ ...reviewOf(), kind: 'ConversionReview' }), /kind/],
    ['no apiVersion', JSON.stringify({ ...reviewOf(), apiVersion: undefined }), /apiVersion/],
    ['v1beta1', JSON.stringify({ ...reviewOf(), apiVersion: 'admission.k8s.io/v1beta1' }), /apiVersion/],
    ['another group', JSON.stringify({ ...reviewOf(), apiVersion: 'example.dev/v1' }), /apiVersion/],
    ['a review only in __proto__', `{"__proto__":${bodyOf()}}`, /kind/],
    ['no request', JSON.stringify({ ...reviewOf(), request: undefined }), /request/],
    ['a null request', JSON.stringify({ ...reviewOf(), request: null }), /request/],
    ['a list as request', JSON.stringify({ ...reviewOf(), request: [] }), /request/],
    ['a request only in __proto__', bodyOf().replace('"request":', '"__proto__":'), /request/],
    ['no uid', without('uid'), /uid/],
    ['a uid only in __proto__', bodyOf().replace(`"uid":"${UID}"`, `"__proto__":{"uid":"${UID}"}`), /uid/],
    ['a null uid', bodyOf(pod(), { uid: null }), /uid/],
    ['an empty uid', bodyOf(pod(), { uid: '' }), /uid/],
    ['a number as uid', bodyOf(pod(), { uid: 7 }), /uid/],
    ['a uid of a megabyte', bodyOf(pod(), { uid: 'u'.repeat(1 << 20) }), /uid/],
  ];

  it.each(cases)('%s', async (_what, body, reason) => {
    const webhook = await startWebhook();
    const answer = await webhook.post(body);

    expect(answer.status).toBe(400);
    expect(answer.headers.get('content-type')).toBe('application/json');
    const said = JSON.parse(answer.body) as { error: string };
    expect(Object.keys(said)).toEqual(['error']);
    expect(said.error).toMatch(reason);
    expect(said.error.length).toBeLessThan(200);
    expect(await webhook.count('linger_http_responses_total{code="400"}')).toBe(1);
    expect(responseOf(await webhook.post(bodyOf())).patch).toBeDefined();
  });
});

/** A review in the middle of whose strings these bytes stand. */
function splitBody(...bytes: number[]): Buffer {
  const [before = '', after = ''] = bodyOf(annotated({ text: 'HERE' })).split('HERE');
  return Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)]);
}

describe('an object that is no Pod that can be read is allowed, with a warning', () => {
  const cases: readonly (readonly [what: string, body: string])[] = [
    ['no object', without('object')],
    ['a null object', bodyOf(null)],
    ['a list', bodyOf([pod()])],
    ['a string', bodyOf('pod')],
    ['another kind', bodyOf({ ...pod(), kind: 'PodTemplate' })],
    ['another version', bodyOf({ ...pod(), apiVersion: 'v2' })],
    ['no spec', bodyOf({ ...pod(), spec: undefined })],
    ['a null spec', bodyOf({ ...pod(), spec: null })],
    ['a list as spec', bodyOf({ ...pod(), spec: [] })],
    ['a spec only in __proto__', bodyWith(`{"kind":"Pod","__proto__":${JSON.stringify(pod())}}`)],
    ['no containers', bodyOf(pod({ containers: undefined }))],
    ['null containers', bodyOf(pod({ containers: null }))],
    ['containers that are an object', bodyOf(pod({ containers: { 0: server() } }))],
    ['containers that are a string', bodyOf(pod({ containers: 'app' }))],
    ['a null container', bodyOf(pod({ containers: [server(), null] }))],
    ['a list as container', bodyOf(pod({ containers: [[]] }))],
    ['a container without a name', bodyOf(pod({ containers: [{ image: 'x' }] }))],
    ['a name only in __proto__', bodyWith(podText('containers', '[{"__proto__":{"name":"app"}}]'))],
    ['ports that are a number', bodyOf(podOf(server('app', { ports: 80 })))],
    ['a preStop that is a string', bodyOf(podOf(server('app', { lifecycle: { preStop: 'sleep' } })))],
    ['a lifecycle that is a list', bodyOf(podOf(server('app', { lifecycle: [] })))],
    ['a probe that is a boolean', bodyOf(podOf(server('app', { livenessProbe: true })))],
    ['a grace that is text', bodyOf(pod({ terminationGracePeriodSeconds: '30' }))],
    ['a grace with a fraction', bodyOf(pod({ terminationGracePeriodSeconds: 1.5 }))],
    ['a grace beyond every number', bodyWith(podText('terminationGracePeriodSeconds', '1e999'))],
    ['metadata that is a list', bodyOf(pod({}, {})).replace('"metadata":{', '"metadata":[],"x":{')],
    ['labels that are a list', bodyOf(pod({}, { labels: ['app'] }))],
    ['a label that is a number', bodyOf(pod({}, { labels: { app: 1 } }))],
    ['an annotation that is null', bodyOf(annotated({ note: null }))],
    ['an object as label __proto__', bodyWith(metadataText('"labels":{"__proto__":{"app":"web"}}'))],
    ['owners that are an object', bodyOf(pod({}, { ownerReferences: {} }))],
    ['a null owner', bodyOf(pod({}, { ownerReferences: [null] }))],
    [`${DEPTH} nested lists as object`, bodyWith(nestedLists)],
    [`${DEPTH} nested objects as object`, bodyWith(nestedObjects)],
    [`${DEPTH} nested lists as containers`, bodyWith(podText('containers', nestedLists))],
    [`${DEPTH} nested objects as labels`, bodyWith(metadataText(`"labels":${nestedObjects}`))],
  ];

  it.each(cases)('%s', async (_what, body) => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(requestBytes(body));
    const response = responseOf(await connection.answer());

    // A large review has its time in a thread, which a busy machine may not give it.
    const late = body.length > FOREIGN_LIMITS.review.loopBytes ? '|TooLarge' : '';
    const reason = response.auditAnnotations?.reason ?? '';
    expect(reason).toMatch(new RegExp(`^(InvalidPod${late})$`));
    expect(response).toMatchObject({ uid: UID, allowed: true });
    expect(response.patch).toBeUndefined();
    expect(response.warnings).toEqual([expect.stringMatching(/^linger: [\x20-\x7e]{10,248}$/)]);
    expect(await webhook.count(`linger_decisions_total{outcome="skip",reason="${reason}"}`)).toBe(1);
    // The same connection goes on serving.
    connection.write(requestBytes(bodyOf()));
    expect(responseOf(await connection.answer()).patch).toBeDefined();
  });
});

describe('what the decision does not read does not disturb it', () => {
  const cases: readonly (readonly [what: string, object: string])[] = [
    [
      'unknown fields everywhere',
      JSON.stringify({ ...podOf(server('app', { x: 1 })), extra: [{}], status: 7 }),
    ],
    [
      '__proto__ as label and annotation',
      metadataText('"labels":{"__proto__":"a"},"annotations":{"__proto__":"b"}'),
    ],
    ['constructor as label', JSON.stringify(pod({}, { labels: { constructor: 'x', toString: 'y' } }))],
    ['constructor as annotation', JSON.stringify(annotated({ constructor: 'x', hasOwnProperty: 'y' }))],
    ['__proto__ in the pod', JSON.stringify(pod()).replace('{', '{"__proto__":{"spec":null,"polluted":1},')],
    [
      '__proto__ in a container',
      containerText('__proto__', '{"lifecycle":{"preStop":{"sleep":{"seconds":1}}}}'),
    ],
    ['constructor in a container', containerText('constructor', '{"prototype":{"polluted":1}}')],
    ['__proto__ in metadata', metadataText('"__proto__":{"annotations":{"linger.dev/inject":"false"}}')],
    ['nulls for all that is optional', JSON.stringify(nulls())],
    ['duplicate keys: the last counts', metadataText('"labels":[],"labels":{"app":"web"}')],
    [`${DEPTH} nested lists in a container`, containerText('env', nestedLists)],
    [`${DEPTH} nested objects in a container`, containerText('env', nestedObjects)],
    [`${DEPTH} nested objects in the spec`, podText('volumes', nestedObjects)],
    [`${DEPTH} nested lists in the metadata`, metadataText(`"managedFields":${nestedLists}`)],
    ['a lone surrogate', metadataText('"annotations":{"a":"\\ud800"}')],
    ['the character U+0000', metadataText('"annotations":{"a":"\\u0000"}')],
  ];

  function nulls(): JsonObject {
    const nothing = { lifecycle: null, readinessProbe: null, livenessProbe: null, startupProbe: null };
    const metadata = { labels: null, annotations: null, ownerReferences: null };
    const spec = { terminationGracePeriodSeconds: null, restartPolicy: null, nodeSelector: null, os: null };
    return pod({ containers: [server('app', nothing)], ...spec }, metadata);
  }

  it.each(cases)('%s', async (_what, object) => {
    const webhook = await startWebhook();
    const response = responseOf(await webhook.post(bodyWith(object)));

    expect(response.auditAnnotations).toEqual({ reason: 'Injected' });
    expect(
      operationsOf(response).map(({ path }) => path.replace(/^\/metadata\/annotations.*/, 'annotation')),
    ).toEqual([
      expect.stringMatching(/^\/spec\/containers\/0\/lifecycle(\/preStop)?$/),
      '/spec/terminationGracePeriodSeconds',
      expect.stringMatching(/^(annotation|\/metadata)$/),
    ]);
    expect(({} as JsonObject).polluted).toBeUndefined();
  });

  it('a thousand containers get a thousand hooks', async () => {
    const many = podOf(...Array.from({ length: 1000 }, (_, index) => server(`app-${index}`)));
    const response = responseOf(await (await startWebhook()).post(bodyOf(many)));
    const { containers } = applied(many, response).spec;

    expect(operationsOf(response)).toHaveLength(1002);
    expect(containers).toEqual(
      many.spec.containers.map((each) => ({ ...each, lifecycle: { preStop: { sleep: { seconds: 30 } } } })),
    );
  });

  it('a container whose name is __proto__ or constructor is one like any other', async () => {
    const odd = podOf(server('__proto__'), container('constructor'));
    const response = responseOf(await (await startWebhook()).post(bodyOf(odd)));

    expect(applied(odd, response).spec.containers.map(({ lifecycle }) => lifecycle)).toEqual(
      Array(2).fill({ preStop: { sleep: { seconds: 30 } } }),
    );
  });
});

describe('a request that is not the creation of a Pod passes unchanged', () => {
  const cases: readonly (readonly [what: string, request: JsonObject])[] = [
    ['UPDATE', { operation: 'UPDATE' }],
    ['no operation', { operation: undefined }],
    ['an operation that is a number', { operation: 1 }],
    ['another resource', { resource: { group: 'apps', version: 'v1', resource: 'deployments' } }],
    ['no resource', { resource: null }],
    ['a resource that is text', { resource: 'pods' }],
    ['a subresource', { subResource: 'eviction' }],
  ];

  it.each(cases)('%s', async (_what, request) => {
    const response = responseOf(await (await startWebhook()).post(bodyOf(pod(), request)));
    expect(response).toEqual({ uid: UID, allowed: true, auditAnnotations: { reason: 'NotPodCreate' } });
  });
});
