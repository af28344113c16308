import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { json, text } from 'node:stream/consumers';
import { expect, it, onTestFinished } from 'vitest';
import { startReplay } from '../../src/dashboard/index.ts';
import { packedRecording, type Recording, requestKey } from '../../src/dashboard/recording.ts';

const PODS = '/api/v1/pods';
const pod = (name: string, resourceVersion: string, phase = 'Running') => ({
  metadata: { name, uid: name, resourceVersion },
  status: { phase },
});
const list = (...items: readonly object[]) =>
  JSON.stringify({ kind: 'PodList', metadata: { resourceVersion: '10' }, items });
const event = (at: number, type: string, object: object) => [at, JSON.stringify({ type, object })] as const;

/** The lines of a second, an hour and a day later: no test waits for the last two. */
const RECORDING: Recording = {
  of: 'a cluster',
  from: 1_000,
  lasts: 60,
  answers: {
    'GET /version': [[0, 200, 'application/json', '{"minor":"37"}']],
    'GET /apis': [[0, 200, 'application/json', '{"groups":[{"versions":[{"groupVersion":"apps/v1"}]}]}']],
    'GET /api/v1/namespaces/linger/configmaps/none': [[0, 404, 'application/json', '{"code":404}']],
    'GET /metrics': [
      [0, 200, 'text/plain', 'old'],
      [3_600, 200, 'text/plain', 'new'],
    ],
    [`GET ${PODS}`]: [[0, 200, 'application/json', list(pod('stays', '8'), pod('goes', '9'))]],
  },
  watches: {
    [`GET ${PODS}`]: [
      // Both lists and watches have it.
      event(0, 'MODIFIED', pod('stays', '10', 'Pending')),
      event(0, 'DELETED', pod('goes', '11')),
      event(0, 'ADDED', pod('comes', '12')),
      event(0, 'BOOKMARK', { metadata: { resourceVersion: '13' } }),
      event(86_400, 'DELETED', pod('stays', '14')),
    ],
  },
};

async function replayed() {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const replay = await startReplay(RECORDING, ending.signal);
  const ask = async (path: string, accept = 'application/json') => {
    const [answer] = await once(
      get(new URL(path, replay.connection.server), { headers: { accept } }),
      'response',
    );
    return answer as IncomingMessage;
  };
  return { ...replay, ask, end: () => ending.abort() };
}

it('gives the answers of its time, of any status', async () => {
  const { ask, now } = await replayed();
  expect(await json(await ask('/version'))).toEqual({ minor: '37' });
  expect((await ask('/api/v1/namespaces/linger/configmaps/none')).statusCode).toBe(404);
  expect(await text(await ask('/metrics'))).toBe('old');
  expect(now()).toBeGreaterThanOrEqual(RECORDING.from);
});

it('does not say of what was not recorded that there was none', async () => {
  const { ask } = await replayed();
  for (const [path, accept] of [
    ['/api/v1/nodes', undefined],
    [PODS, 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1'],
    [`${PODS}?labelSelector=app`, undefined],
  ] as const) {
    const answer = await ask(path, accept);
    expect(answer.statusCode).toBe(403);
    expect(await text(answer)).toContain('not in this recording');
  }
});

it('says of a group that the cluster did not serve that there was none', async () => {
  const { ask } = await replayed();
  expect((await ask('/apis/apps/v1/deployments')).statusCode).toBe(403);
  for (const path of ['/apis/apps/v2/deployments', '/apis/traefik.io/v1alpha1/middlewares?limit=1'])
    expect((await ask(path)).statusCode).toBe(404);
});

it('lists what the events until then have left, with their version', async () => {
  const { ask } = await replayed();
  const { metadata, items } = (await json(await ask(`${PODS}?limit=250`))) as {
    readonly metadata: object;
    readonly items: readonly { readonly metadata: { readonly name: string }; readonly status: object }[];
  };
  expect(metadata).toEqual({ resourceVersion: '13' });
  // What the first list had already is not undone by an older event.
  expect(items.map((each) => [each.metadata.name, each.status])).toEqual([
    ['stays', { phase: 'Running' }],
    ['comes', { phase: 'Running' }],
  ]);
});

it('watches on from a version, and holds back what has not happened yet', async () => {
  const { ask, end } = await replayed();
  const answer = await ask(`${PODS}?watch=true&resourceVersion=11&timeoutSeconds=280`);
  let came = '';
  answer.setEncoding('utf8').on('data', (chunk: string) => {
    came += chunk;
  });
  const cut = once(answer, 'error');
  await expect.poll(() => came).toContain('BOOKMARK');
  expect(
    came
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { type: string }).type),
  ).toEqual(['ADDED', 'BOOKMARK']);
  end();
  await cut;
  expect(came).not.toContain('"14"');
});

it('one request is one key, whatever its page or its version', () => {
  const keyOf = (url: string, accept?: string) =>
    requestKey({ method: 'GET', url, headers: { accept } } as IncomingMessage);
  expect(keyOf(`${PODS}?limit=1`)).toBe(`GET ${PODS}`);
  expect(keyOf(`${PODS}?watch=true&resourceVersion=5&timeoutSeconds=9&allowWatchBookmarks=true`)).toBe(
    `GET ${PODS}`,
  );
  expect(keyOf(`${PODS}?continue=x&labelSelector=a%3Db`)).toBe(`GET ${PODS}?labelSelector=a%3Db`);
  const partial = (list: string) =>
    keyOf(PODS, `application/json;as=PartialObjectMetadata${list};g=meta.k8s.io;v=v1`);
  expect(partial('List')).toBe(partial(''));
  expect(partial('')).not.toBe(keyOf(PODS));
});

it('much of the same takes little room', async () => {
  const [answer] = RECORDING.answers[`GET ${PODS}`] ?? [];
  if (answer === undefined) throw new Error('no answer');
  const many = { ...RECORDING, answers: { many: Array.from({ length: 1_000 }, () => answer) } };
  const once = (await packedRecording(RECORDING)).length;
  expect((await packedRecording(many)).length).toBeLessThan(2 * once);
});
