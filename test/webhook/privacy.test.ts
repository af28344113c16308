import { describe, expect, it } from 'vitest';
import { annotated, type JsonObject, pod, podOf, server } from '../core/decision/sample-pod.ts';
import { clusterPolicy, EMPTY_SNAPSHOT, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { connect, requestBytes } from './connection.ts';
import { bodyOf, reviewOf } from './reviews.ts';
import { startWebhook, type WebhookOptions } from './webhook.ts';

const SECRET = 'hunter2-s3cr3t';

/** A pod with a secret in every place where people put secrets. */
function secretive(): JsonObject {
  const carrier = server('app', {
    image: `registry.example/app:${SECRET}`,
    command: ['run', `--password=${SECRET}`],
    args: [SECRET],
    env: [
      { name: 'PASSWORD', value: SECRET },
      { name: `KEY_${SECRET}`, value: 'x' },
    ],
    lifecycle: { preStop: { exec: { command: ['curl', `https://u:${SECRET}@example`] } } },
    livenessProbe: { httpGet: { path: `/${SECRET}`, port: 80 } },
  });
  const annotations = { 'example.com/config': SECRET, 'linger.dev/wait': `soon ${SECRET}` };
  return {
    ...podOf(carrier, server('side')),
    metadata: { name: `web-${SECRET}`, annotations, labels: { key: SECRET } },
  };
}

const secretiveReview = reviewOf(secretive(), {
  userInfo: { extra: { token: [SECRET] } },
  options: { x: SECRET },
});
const review = JSON.stringify(secretiveReview);
const failing: WebhookOptions = {
  snapshot: {
    ...EMPTY_SNAPSHOT,
    lags: {
      planned: () => {
        throw new Error('no lag today');
      },
    },
  },
};

describe('nothing of a pod but names, reasons and numbers is ever logged', () => {
  const cases: [what: string, body: string | Buffer, options?: WebhookOptions][] = [
    ['an injection', review],
    ['a dry run', JSON.stringify(reviewOf(secretive(), { dryRun: true }))],
    ['an audit', review, { snapshot: snapshotOf([clusterPolicy({ mode: 'Audit' })]), auditWarnings: true }],
    [
      'a skip',
      bodyOf({ ...secretive(), spec: { ...(secretive().spec as JsonObject), restartPolicy: 'Never' } }),
    ],
    ['a failure inside', review, failing],
    ['broken JSON right after the secret', `{"value":"${SECRET}" oops}`],
    ['JSON that is the secret', SECRET],
    ['truncated JSON', review.slice(0, review.lastIndexOf(SECRET) + SECRET.length)],
    ['invalid UTF-8', Buffer.concat([Buffer.from(review), Buffer.from([0xff])])],
    ['another kind', review.replace('"AdmissionReview"', `"${SECRET}"`)],
    ['another version', review.replace('admission.k8s.io/v1', SECRET)],
    ['a number for the uid', JSON.stringify(reviewOf(secretive(), { uid: { value: SECRET } }))],
    ['no Pod', bodyOf({ kind: 'Secret', apiVersion: 'v1', data: { password: SECRET } })],
    ['a null container', bodyOf({ ...secretive(), spec: { containers: [null, SECRET] } })],
    ['a compressed body', review],
  ];

  it.for(cases)('%s', async ([what, body, options = {}]) => {
    const webhook = await startWebhook({ ...options, logLevel: 'trace' });
    const headers = what === 'a compressed body' ? { 'Content-Encoding': 'gzip' } : {};
    const answer = await webhook.post(body, headers);

    expect(webhook.logs.join('')).not.toContain(SECRET);
    expect(await webhook.metrics.registry.metrics()).not.toContain(SECRET);
    // Error messages go to the sender of the request, and may end up in the API server's log.
    if (answer.status !== 200) expect(answer.body).not.toContain(SECRET);
  });

  it('an aborted body', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(requestBytes(review, { 'Content-Length': '100000' }));
    connection.end();
    await connection.closed;
    expect(webhook.logs.join('')).not.toContain(SECRET);
  });
});

describe('what is logged', () => {
  it('at debug: one line for each decision', async () => {
    const webhook = await startWebhook({ logLevel: 'debug' });
    await webhook.post(bodyOf());
    await webhook.post(bodyOf(pod({ terminationGracePeriodSeconds: 0 }), { dryRun: true }));
    await webhook.post(bodyOf(annotated({ 'linger.dev/wait': 'soon' })));
    const lines = webhook.logs.map((line) => JSON.parse(line) as JsonObject);
    expect(lines).toEqual([
      expect.objectContaining({ msg: 'decision', level: 'debug', namespace: 'shop', outcome: 'inject' }),
      expect.objectContaining({ msg: 'decision', outcome: 'skip', reason: 'ZeroGrace', dryRun: true }),
      expect.objectContaining({ msg: 'decision', notes: ['InvalidAnnotation'] }),
    ]);
    expect(lines[0]?.plan).toMatchObject({ wait: 30, grace: 60, hook: 'Sleep' });
    expect(lines[0]?.time).toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
  });

  it('at info: nothing for a decision', async () => {
    const webhook = await startWebhook({ logLevel: 'info' });
    await webhook.post(bodyOf());
    await webhook.post('{');
    expect(webhook.logs).toEqual([]);
  });
});
