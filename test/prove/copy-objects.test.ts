import { describe, expect, it } from 'vitest';
import {
  namespaceCopy,
  type Original,
  obstacleToCopy,
  plainCopy,
  referencesOf,
  serviceCopy,
  workloadCopy,
} from '../../src/prove/copy-objects.ts';
import { type WorkloadName, workloadNamed } from '../../src/prove/provable-workload.ts';

const CONTAINER = { name: 'app', image: 'app:1' };

function original(podSpec: object, more: object = {}, text = 'deployment/web'): Original {
  const template = {
    metadata: { labels: { app: 'web' }, annotations: { 'linger.dev/wait': '20s' } },
    spec: { containers: [CONTAINER], ...podSpec },
  };
  return {
    named: workloadNamed(text, 'shop') as WorkloadName,
    workload: { metadata: { name: 'web', uid: 'u' }, spec: { replicas: 40, template, ...more }, status: {} },
    namespace: {
      metadata: {
        labels: { team: 'shop', 'kubernetes.io/metadata.name': 'shop', 'app.kubernetes.io/instance': 'shop' },
        annotations: { 'linger.dev/hook': 'Sleep', 'example.com/owner': 'x' },
      },
    },
    replicas: 3,
    services: [],
    policies: [],
    plan: undefined,
  };
}

const env = (from: object) => ({ containers: [{ ...CONTAINER, env: [{ name: 'A', valueFrom: from }] }] });

describe('what the pods of a workload take from elsewhere', () => {
  const cases: Record<string, readonly [object, 'configMaps' | 'secrets' | 'obstacles', string]> = {
    'a volume of a ConfigMap': [
      { volumes: [{ name: 'c', configMap: { name: 'conf' } }] },
      'configMaps',
      'conf',
    ],
    'a projected ConfigMap': [
      { volumes: [{ name: 'p', projected: { sources: [{ configMap: { name: 'conf' } }] } }] },
      'configMaps',
      'conf',
    ],
    'a variable of a ConfigMap': [env({ configMapKeyRef: { name: 'conf', key: 'k' } }), 'configMaps', 'conf'],
    'all variables of a ConfigMap, in an init container': [
      { initContainers: [{ name: 'i', envFrom: [{ configMapRef: { name: 'conf' } }] }] },
      'configMaps',
      'conf',
    ],
    'a volume of a Secret': [{ volumes: [{ name: 's', secret: { secretName: 'tls' } }] }, 'secrets', 'tls'],
    'a projected Secret': [
      { volumes: [{ name: 'p', projected: { sources: [{ secret: { name: 'tls' } }] } }] },
      'secrets',
      'tls',
    ],
    'a variable of a Secret': [env({ secretKeyRef: { name: 'db', key: 'k' } }), 'secrets', 'db'],
    'all variables of a Secret': [
      { containers: [{ ...CONTAINER, envFrom: [{ secretRef: { name: 'db' } }] }] },
      'secrets',
      'db',
    ],
    'a Secret for a storage driver': [
      { volumes: [{ name: 'v', csi: { driver: 'd', nodePublishSecretRef: { name: 'csi' } } }] },
      'secrets',
      'csi',
    ],
    'a Secret of an older volume': [
      { volumes: [{ name: 'v', azureFile: { secretName: 'azure', shareName: 's' } }] },
      'secrets',
      'azure',
    ],
    'a Secret to pull images': [{ imagePullSecrets: [{ name: 'registry' }] }, 'secrets', 'registry'],
    'a claim': [
      { volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'data' } }] },
      'obstacles',
      'they share the volume of claim data',
    ],
    'a port of the node': [
      { containers: [{ ...CONTAINER, ports: [{ containerPort: 1, hostPort: 80 }] }] },
      'obstacles',
      'they take port 80 of their node',
    ],
    "the node's network": [{ hostNetwork: true }, 'obstacles', 'they use the network of their node'],
  };
  it.each(Object.entries(cases))('%s', (_, [podSpec, where, expected]) => {
    const none = { configMaps: [], secrets: [], obstacles: [] };
    expect(referencesOf(original(podSpec))).toEqual({ ...none, [where]: [expected] });
  });

  it('nothing that every namespace has', () => {
    const volumes = [{ name: 'c', configMap: { name: 'kube-root-ca.crt' } }];
    expect(referencesOf(original({ volumes })).configMaps).toEqual([]);
  });
});

it('copies no Secret unless it is asked to, and nothing that cannot run twice', () => {
  const why = (of: Original, copySecrets = false) => obstacleToCopy(of, referencesOf(of), copySecrets);
  const secret = original({ imagePullSecrets: [{ name: 'registry' }] });
  expect(why(original({}))).toBeUndefined();
  expect(why(secret)).toMatch(
    /^the pods of Deployment shop\/web .* without Secrets registry: --copy-secrets/,
  );
  expect(why(secret, true)).toBeUndefined();
  expect(why(original({ hostNetwork: true }), true)).toMatch(/cannot be copied: they use the network/);
  expect(why(original({}, { volumeClaimTemplates: [{}] }, 'sts/web'))).toMatch(/a volume of its own/);
  expect(why(original({}, {}, 'ds/web'))).toMatch(/on every node/);
});

it('copies a workload without its identity, and lets one side opt out', () => {
  const of = original({ serviceAccountName: 'admin', serviceAccount: 'admin' });
  const template = {
    metadata: { labels: { app: 'web' }, annotations: { 'linger.dev/wait': '20s' } },
    spec: { containers: [CONTAINER], automountServiceAccountToken: false },
  };
  const copy = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web' } };
  expect(workloadCopy(of, 'with')).toEqual({ ...copy, spec: { replicas: 3, template } });
  const labels = { app: 'web', 'linger.dev/inject': 'false' };
  expect(workloadCopy(of, 'without')).toMatchObject({ spec: { template: { metadata: { labels } } } });
});

it('keeps of a namespace what policies select by, and not what a tool would take for its own', () => {
  expect(namespaceCopy(original({}), 'copy', 'run')).toEqual({
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: {
      name: 'copy',
      labels: { team: 'shop', 'linger.dev/prove': 'run' },
      annotations: { 'linger.dev/hook': 'Sleep' },
    },
  });
});

it('lets nothing outside the cluster find a copy of a Service', () => {
  const metadata = {
    name: 'web',
    uid: 'u',
    labels: { tier: 'edge' },
    annotations: { 'dns/hostname': 'shop' },
  };
  const ports = [{ port: 80, targetPort: 8080, nodePort: 30_080 }];
  const type = { type: 'LoadBalancer', clusterIP: '10.0.0.1', loadBalancerIP: '1.2.3.4' };
  const service = { metadata, spec: { ...type, selector: { app: 'web' }, ports } };
  const copy = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', labels: { tier: 'edge' } } };
  const spec = { selector: { app: 'web' }, ports: [{ port: 80, targetPort: 8080 }] };
  expect(serviceCopy(service)).toEqual({ ...copy, spec });
  const families = { ipFamilies: ['IPv6'], ipFamilyPolicy: 'SingleStack' };
  const ofIpv6 = { ...service, spec: { ...service.spec, ...families } };
  expect(serviceCopy(ofIpv6)).toEqual({ ...copy, spec: { ...spec, ...families } });
  const headless = { ...service, spec: { ...service.spec, clusterIP: 'None' } };
  expect(serviceCopy(headless)).toMatchObject({ spec: { clusterIP: 'None' } });
});

it('copies a ConfigMap without what the API server added', () => {
  const object = { metadata: { name: 'conf', namespace: 'shop', uid: 'u' }, data: { a: 'b' }, status: {} };
  expect(plainCopy(object)).toEqual({ metadata: { name: 'conf' }, data: { a: 'b' } });
});
