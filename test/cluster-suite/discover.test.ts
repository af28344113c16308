import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { shipped as linger } from '../cli/linger.ts';
import { waitUntil } from '../testbed/cluster.ts';
import { CrdJudge } from './support/crd-judge.ts';

const NAME = 'ingress-nginx';
const CLASS = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'IngressClass',
  metadata: { name: 'discovered' },
  spec: { controller: 'k8s.io/ingress-nginx' },
};

let judge: CrdJudge;
let namespace: string;
const discover = (...args: readonly string[]) =>
  linger(['consumers', 'discover', '--kubeconfig', judge.cluster.kubeconfig, ...args]);
const stored = () => judge.cluster.api.request<{ spec: unknown }>('GET', `${judge.path}/${NAME}`);

beforeAll(async () => {
  judge = await CrdJudge.open({ kind: 'DiscoveryConsumer', plural: 'discoveryconsumers' });
  const { api } = judge.cluster;
  namespace = await judge.cluster.namespace('discover');
  await api.call('POST', '/apis/networking.k8s.io/v1/ingressclasses', { body: CLASS });
  await api.call('POST', `/apis/networking.k8s.io/v1/namespaces/${namespace}/ingresses`, {
    body: {
      metadata: { name: 'web' },
      spec: {
        ingressClassName: CLASS.metadata.name,
        defaultBackend: { service: { name: 'web', port: { number: 80 } } },
      },
    },
  });
}, 120_000);

afterAll(async () => {
  const { api } = judge.cluster;
  await api.request('DELETE', `/apis/networking.k8s.io/v1/ingressclasses/${CLASS.metadata.name}`);
  await api.request('DELETE', `${judge.path}/${NAME}`);
  await judge.close();
}, 120_000);

it('finds the consumer of a real cluster, and its YAML is taken as printed', async () => {
  const { code, stdout } = await discover();
  expect(code).toBe(0);
  expect(stdout).toMatch(
    new RegExp(`^# ${NAME}: seen by Ingress ${namespace}/web; it sends to ${namespace}/web$`, 'm'),
  );
  const printed = parseAllDocuments(stdout)
    .map((document) => document.toJS())
    .filter((each) => each?.metadata?.name === NAME);
  expect(printed).toHaveLength(1);
  expect(await judge.ask(printed[0].spec, NAME)).toMatchObject({ status: 201 });
}, 60_000);

it('--apply creates it with mode Observe, once, and never overwrites it', async () => {
  const first = await discover('--apply');
  expect([first.code, first.stderr]).toEqual([0, '']);
  expect(first.stdout).toContain(`discoveryconsumer.linger.dev/${NAME} created (Observe)\n`);
  await waitUntil('it to be there', async () => (await stored()).status === 200, { timeoutMs: 10_000 });
  expect((await stored()).body.spec).toMatchObject({
    mode: 'Observe',
    measure: { inspect: { format: 'Witness', instances: { port: 8446 } } },
  });
  const own = { measure: { declared: { lag: '7s' } } };
  await judge.cluster.api.request('DELETE', `${judge.path}/${NAME}`);
  await judge.cluster.api.call('POST', judge.path, { body: judge.objectOf(own, NAME) });
  const second = await discover('--apply');
  expect(second.stdout).not.toContain(NAME);
  expect((await stored()).body.spec).toEqual(own);
  expect((await discover()).stdout).toContain(`declared already, by DiscoveryConsumer ${NAME}`);
}, 90_000);
