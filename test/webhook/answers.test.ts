import { describe, expect, it } from 'vitest';
import { BUILT_IN_ENOUGH, NONE_YET } from '../../src/core/lag/index.ts';
import { samplePlan } from '../core/decision/sample-plan.ts';
import { annotated, container, type JsonObject, pod, podOf, server } from '../core/decision/sample-pod.ts';
import { clusterPolicy, EMPTY_SNAPSHOT, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { bodyOf, UID } from './reviews.ts';
import {
  applied,
  operationsOf,
  type ReviewResponse,
  responseOf,
  startWebhook,
  type WebhookOptions,
} from './webhook.ts';

async function answerTo(
  object: unknown,
  options?: WebhookOptions,
  request?: JsonObject,
): Promise<ReviewResponse> {
  return responseOf(await (await startWebhook(options)).post(bodyOf(object, request)));
}

const auditing = { snapshot: snapshotOf([clusterPolicy({ mode: 'Audit' })]) };
/** Leaves room for 10 s beside the default grace of 30 s. */
const SHORT_GRACE = { grace: { max: '40s' } };

describe('an injection', () => {
  it('is a JSON Patch that gives the pod its hook, its grace and its plan', async () => {
    const response = await answerTo(pod());
    expect(Object.keys(response).toSorted()).toEqual([
      'allowed',
      'auditAnnotations',
      'patch',
      'patchType',
      'uid',
    ]);
    expect(response).toMatchObject({ uid: UID, allowed: true, auditAnnotations: { reason: 'Injected' } });
    expect(applied(pod(), response)).toEqual(
      pod(
        {
          containers: [server('app', { lifecycle: { preStop: { sleep: { seconds: 30 } } } })],
          terminationGracePeriodSeconds: 60,
        },
        { annotations: { 'linger.dev/plan': samplePlan() } },
      ),
    );
  });

  it('is not repeated for its own output', async () => {
    const first = applied(pod(), await answerTo(pod()));
    expect(await answerTo(first)).toEqual({
      uid: UID,
      allowed: true,
      auditAnnotations: { reason: 'AlreadyInjected' },
    });
  });

  it.each([
    ['small', 0],
    ['large', 100_000],
  ])('is taken back from a %s pod whose hook another webhook has merged its own into', async (_, length) => {
    const preStop = { sleep: { seconds: 30 }, exec: { command: ['/drain'] } };
    const spec = { terminationGracePeriodSeconds: 60, hostname: 'x'.repeat(length) };
    const containers = [server('app', { lifecycle: { preStop } })];
    const response = await answerTo(annotated({ 'linger.dev/plan': samplePlan() }, { ...spec, containers }));
    expect(operationsOf(response)[0]).toEqual({
      op: 'remove',
      path: '/spec/containers/0/lifecycle/preStop/sleep',
    });
  });

  it.each(['u', 'UID/with "quotes" \u2028 and ünïcode', 'x'.repeat(256)])(
    'echoes the uid %j',
    async (uid) => {
      expect((await answerTo(pod(), {}, { uid })).uid).toBe(uid);
    },
  );

  it('finds the namespace in the object where the request names none', async () => {
    const snapshot = snapshotOf([
      clusterPolicy({
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'a' } },
        mode: 'Off',
      }),
    ]);
    const inA = pod({}, { namespace: 'a' });
    const reasons = [
      (await answerTo(inA, { snapshot }, { namespace: undefined })).auditAnnotations?.reason,
      (await answerTo(inA, { snapshot }, { namespace: '' })).auditAnnotations?.reason,
      (await answerTo(inA, { snapshot }, { namespace: 'b' })).auditAnnotations?.reason,
      (await answerTo(pod(), { snapshot }, { namespace: undefined })).auditAnnotations?.reason,
    ];
    expect(reasons).toEqual(['ModeOff', 'ModeOff', 'Injected', 'Injected']);
  });
});

describe('a skip', () => {
  it('is allowed, unpatched, with its reason and no warning', async () => {
    expect(
      await answerTo(podOf(container('batch')), { snapshot: snapshotOf([], { servicesComplete: true }) }),
    ).toEqual({
      uid: UID,
      allowed: true,
      auditAnnotations: { reason: 'NotServing' },
    });
  });
});

describe('warnings', () => {
  it('a value that does not parse is named, and the pod is injected all the same', async () => {
    const response = await answerTo(annotated({ 'linger.dev/wait': '45 “seconds”\nplease' }));
    expect(response.warnings).toEqual([
      'linger: Pod: linger.dev/wait: expected a duration such as 30s or 1m30s, got "45 "seconds" please"; ignored',
    ]);
    expect(response.auditAnnotations).toEqual({ reason: 'Injected' });
  });

  it('a shortened wait gives a warning', async () => {
    const response = await answerTo(pod(), { snapshot: snapshotOf([clusterPolicy(SHORT_GRACE)]) });
    expect(response.warnings).toEqual([
      expect.stringMatching(/^linger: the wait is 10s instead of 30s: grace\.max is 40s/),
    ]);
  });

  it('are one line of at most 256 bytes of ASCII, whatever was written', async () => {
    const response = await answerTo(
      annotated({ 'linger.dev/hook': `${'é\r\n\u0000'.repeat(9)}${'€'.repeat(9999)}` }),
    );
    expect(response.warnings).toEqual([expect.stringMatching(/^linger: [\x20-\x7e]{1,248}$/)]);
  });
});

describe('mode Audit', () => {
  it('patches nothing, and the audit annotations have plan and reason', async () => {
    expect(await answerTo(pod(), auditing)).toEqual({
      uid: UID,
      allowed: true,
      auditAnnotations: { reason: 'Audit', plan: samplePlan({ digest: '2d328465' }) },
    });
  });

  it('with --audit-warnings also warns the creator of the pod', async () => {
    const response = await answerTo(pod(), { ...auditing, auditWarnings: true });
    expect(response.patch).toBeUndefined();
    expect(response.warnings).toEqual([
      'linger: audit: would hold SIGTERM back by 30s (hook Sleep) and raise the grace from 30s to 60s',
    ]);
  });

  it('warns of a value that does not parse, and not of a wait that it did not shrink', async () => {
    const snapshot = snapshotOf([clusterPolicy({ mode: 'Audit', ...SHORT_GRACE })]);
    const response = await answerTo(annotated({ 'linger.dev/hook': 'Magic' }), { snapshot });
    expect(response.warnings).toEqual([expect.stringContaining('linger.dev/hook')]);
  });

  it('skips for the reasons of Enforce', async () => {
    const response = await answerTo(pod({ terminationGracePeriodSeconds: 0 }), auditing);
    expect(response).toEqual({ uid: UID, allowed: true, auditAnnotations: { reason: 'ZeroGrace' } });
  });

  it('takes no hook back either', async () => {
    const injected = applied(pod(), await answerTo(pod()));
    injected.spec.terminationGracePeriodSeconds = 1;
    expect(operationsOf(await answerTo(injected)).map(({ op }) => op)).toContain('remove');
    const audited = await answerTo(injected, auditing);
    expect([audited.patch, audited.auditAnnotations?.reason]).toEqual([undefined, 'NoRoom']);
    // Nothing is taken back, so no warning says so.
    expect(audited.warnings).toBeUndefined();
    const warned = await answerTo(injected, { ...auditing, auditWarnings: true });
    expect(warned.warnings).toEqual([expect.stringContaining('Enforce would remove the hook (mode Audit')]);
  });
});

describe('a dry run', () => {
  it.each([
    ['injected', pod(), {}],
    ['skipped', pod({ terminationGracePeriodSeconds: 0 }), {}],
    ['audited', pod(), auditing],
  ] as const)('gets the same answer (%s)', async (_what, object, options) => {
    expect(await answerTo(object, options, { dryRun: true })).toEqual(await answerTo(object, options));
  });
});

describe('when Linger itself fails', () => {
  const failing = {
    snapshot: {
      ...EMPTY_SNAPSHOT,
      lags: {
        planned: () => {
          throw new Error('no lag today');
        },
      },
    },
  };

  it('the pod is allowed, unpatched, with a warning', async () => {
    const response = await answerTo(pod(), failing);
    expect(response).toEqual({
      uid: UID,
      allowed: true,
      warnings: [expect.stringMatching(/^linger: internal error[\x20-\x7e]+$/)],
      auditAnnotations: { reason: 'InternalError' },
    });
  });

  it('a metric counts it and the log says why, once', async () => {
    const webhook = await startWebhook({ ...failing, logLevel: 'info' });
    await webhook.post(bodyOf());
    expect(await webhook.count('linger_decisions_total{outcome="skip",reason="InternalError"}')).toBe(1);
    expect(webhook.logs.map((line) => JSON.parse(line) as JsonObject)).toEqual([
      expect.objectContaining({
        level: 'error',
        uid: UID,
        namespace: 'shop',
        err: expect.objectContaining({ message: 'no lag today', stack: expect.stringContaining('at ') }),
      }),
    ]);
  });

  it('a dry run leaves no trace in the metrics', async () => {
    const webhook = await startWebhook(failing);
    const response = responseOf(await webhook.post(bodyOf(pod(), { dryRun: true })));
    expect(response.auditAnnotations).toEqual({ reason: 'InternalError' });
    expect(await webhook.count('linger_decisions_total{outcome="skip",reason="InternalError"}')).toBe(0);
  });

  it('so when there is no snapshot to ask', async () => {
    const snapshot = () => {
      throw new Error('no snapshot');
    };
    expect((await answerTo(pod(), { snapshot })).auditAnnotations).toEqual({ reason: 'InternalError' });
  });

  it('only that pod is concerned', async () => {
    let failures = 1;
    const planned = () => {
      if (failures-- > 0) throw new Error('once');
      return NONE_YET.planned('shop', [], BUILT_IN_ENOUGH);
    };
    const webhook = await startWebhook({ snapshot: { ...EMPTY_SNAPSHOT, lags: { planned } } });
    const reasons = [];
    for (let index = 0; index < 3; index++) {
      reasons.push(responseOf(await webhook.post(bodyOf())).auditAnnotations?.reason);
    }
    expect(reasons).toEqual(['InternalError', 'Injected', 'Injected']);
  });
});
