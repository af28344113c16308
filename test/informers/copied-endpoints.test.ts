import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { EndpointsSpec } from '../../src/core/api/index.ts';
import { CopiedEndpoints, copyOf } from '../../src/informers/copied-endpoints.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import type { AtEnd } from '../webhook/connection.ts';

const slice = (namespace: string, service: string, addresses: readonly string[], ready = true) => ({
  metadata: { name: `${service}-1`, namespace, labels: { 'kubernetes.io/service-name': service } },
  addressType: 'IPv4',
  endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready } })),
});
const endpoints = (namespace: string, name: string, ips: readonly string[]) => ({
  metadata: { name, namespace },
  subsets: [{ addresses: ips.map((ip) => ({ ip })) }],
});

const listed = (...addresses: readonly string[]) => new Map(addresses.map((each) => [each, true as const]));
const inUse = (found: ReadonlyMap<string, true | number> | string) =>
  [...(typeof found === 'string' ? [] : found)].flatMap(([address, used]) => (used === true ? address : []));

async function watched(kubeconfig: (model: ModelCluster) => string = (model) => model.kubeconfig) {
  const model = await ModelCluster.start(onTestFinished as AtEnd);
  const folder = await emptyDirectory();
  await writeFile(join(folder, 'access'), kubeconfig(model));
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const spec: EndpointsSpec = { kubeconfigFile: 'access' };
  const options = { folder, clock: performance.now.bind(performance), signal: ending.signal };
  const copies = new CopiedEndpoints(spec, { ...options, canonical: (address) => address });
  const find = (...addresses: string[]) => copies.find(addresses, (service) => service === 'shop/web');
  return { model, find };
}

it('an address is in use while a slice or an Endpoints of the copy lists it as ready', async () => {
  const { model, find } = await watched();
  model.put('endpointslices', slice('shop', 'web', ['10.0.0.1', '10.0.0.2']));
  model.put('endpoints', endpoints('shop', 'web', ['10.0.0.1']));
  // Another Service’s, such as a pod of the other cluster with the same address.
  model.put('endpointslices', slice('shop', 'other', ['10.0.0.3']));
  const all = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];
  await vi.waitFor(() => expect(find(...all)).toEqual(listed('10.0.0.1', '10.0.0.2')), 20_000);
  model.put('endpointslices', slice('shop', 'web', ['10.0.0.1', '10.0.0.2'], false));
  await vi.waitFor(() => expect(inUse(find(...all))).toEqual(['10.0.0.1']), 20_000);
  model.put('endpoints', endpoints('shop', 'web', []));
  await vi.waitFor(() => expect(inUse(find(...all))).toEqual([]), 20_000);
});

it('nothing is said to be absent before both kinds have been read, nor while they cannot be', async () => {
  const { model, find } = await watched();
  expect(find('10.0.0.1')).toBe('have not been read yet');
  await vi.waitFor(() => expect(find('10.0.0.1')).toEqual(listed()), 20_000);
  const refused = await watched((other) => {
    other.refuse = (what) => (what === 'endpoints' ? 403 : undefined);
    return other.kubeconfig;
  });
  await vi.waitFor(
    () =>
      expect(refused.find('10.0.0.1')).toBe('cannot be read: watching Endpoints objects failed (Forbidden)'),
    20_000,
  );
  expect(model).toBeDefined();
});

it.each([
  ['exec', { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: 'sh' } }],
  ['auth-provider', { 'auth-provider': { name: 'oidc', config: {} } }],
  ['tokenFile', { tokenFile: '/var/run/secrets/kubernetes.io/serviceaccount/token' }],
  ['client-certificate', { 'client-certificate': '/etc/tls.crt', 'client-key': '/etc/tls.key' }],
])('refuses a kubeconfig with %s', async (field, user) => {
  const { find } = await watched((model) => {
    const config = JSON.parse(model.kubeconfig) as object;
    const contexts = [{ name: 'model', context: { cluster: 'model', user: 'me' } }];
    return JSON.stringify({ ...config, users: [{ name: 'me', user }], contexts });
  });
  await vi.waitFor(() => expect(find('10.0.0.1')).toMatch(`asks for ${field};`), 20_000);
});

it.each([
  [undefined, 'shop/web'],
  ['access/{namespace}-{service}', 'access/shop-web'],
  ['{namespace}/{service}.copy', 'shop/web.copy'],
])('the copy by %s is %s', (copies, expected) => {
  expect(copyOf({ kubeconfigFile: 'x', copies }, { namespace: 'shop', name: 'web' })).toBe(expected);
});
