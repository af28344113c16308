import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import type { ReplicaStatus } from '../../src/core/api/index.ts';
import { consumersToText } from '../../src/core/lag/index.ts';
import { statusReport } from '../../src/dashboard/index.ts';
import { NO_STATUS } from '../../src/manager/index.ts';
import { type Answer, AnsweringServer, type Answers, refused, well } from '../cluster/answers.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const FLOOR_MANIFEST = join(import.meta.dirname, '..', '..', 'deploy', 'floor', 'floor.yaml');

const atEnd = atEndOfFile();

const items = (...objects: readonly unknown[]): Answer =>
  well({ metadata: { resourceVersion: '1' }, items: objects });
const LISTED = '?limit=250';
const PODS = `/api/v1/namespaces/linger/pods?labelSelector=${encodeURIComponent('app.kubernetes.io/name=linger')}&limit=250`;
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/linger/leases/linger';
const ownStatusOf = (pod: string) => `/api/v1/namespaces/linger/pods/${pod}:8080/proxy/status`;

const replica = (name: string) => ({
  metadata: { name, namespace: 'linger', uid: name },
  spec: { nodeName: 'one' },
  status: { conditions: [{ type: 'Ready', status: 'True' }] },
});
const namespaceObject = (name: string, annotations = {}) => ({
  metadata: { name, uid: name, resourceVersion: '1', annotations },
});

/** The status of a leader. */
const LEADS: ReplicaStatus = {
  synced: true,
  watches: { pods: true },
  trusted: true,
  decisions: { outcomes: { inject: 100, skip: 7 }, skips: { NotServing: 7 }, seconds: 3_600 },
  held: 3,
  unreached: 0,
  flips: {},
  audit: {
    verdicts: { unprotected: 4, protected: 30, skipped: 5, unknown: 1 },
    findings: [
      { namespace: 'shop', reason: 'NoHook', count: 3 },
      { namespace: 'team', reason: 'NoHook', count: 1 },
      { namespace: 'shop', reason: 'GraceEaten', count: 1 },
    ],
  },
};
/** The status of a follower, which has audited nothing. */
const FOLLOWS: ReplicaStatus = {
  ...NO_STATUS,
  decisions: { outcomes: { inject: 20 }, skips: {}, seconds: 3_600 },
  unreached: 0,
};

/** A status from before `trusted`, `decisions.seconds` and `unreached` existed. */
const EARLIER = {
  synced: true,
  watches: { pods: true },
  decisions: { outcomes: { inject: 100, skip: 7 }, skips: { NotServing: 7 } },
  held: 3,
  flips: {},
  audit: LEADS.audit,
};

const CONFIGURATION = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linger';
const DEPLOYMENT = '/apis/apps/v1/namespaces/linger/deployments/linger';
const SLICES = `/apis/discovery.k8s.io/v1/namespaces/linger/endpointslices?labelSelector=${encodeURIComponent('kubernetes.io/service-name=linger')}&limit=250`;

function configuration(changes: object = {}): Answer {
  const rules = [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }];
  const clientConfig = { service: { namespace: 'linger', name: 'linger', port: 443 } };
  const webhook = { name: 'pods.linger.dev', failurePolicy: 'Ignore', rules, clientConfig, ...changes };
  return well({ metadata: { name: 'linger' }, webhooks: [webhook] });
}

const sliceOf = (ready: boolean) =>
  items({ metadata: { name: 'linger-1', uid: 's' }, endpoints: [{ conditions: { ready } }] });
const SERVICE: Answers = {
  '/api/v1/namespaces/linger/services/linger': well({ spec: { selector: {}, ports: [{ port: 443 }] } }),
  [SLICES]: sliceOf(true),
};

function running(): Answers {
  return {
    '/version': well({ gitVersion: 'v1.36.3' }),
    [PODS]: items(replica('a'), replica('b')),
    [LEASE]: well({
      // Ages of more than ten seconds have no decimals: a second more on a busy machine changes nothing.
      spec: { holderIdentity: 'a_1f', renewTime: new Date(Date.now() - 11_000).toISOString() },
    }),
    [CONFIGURATION]: configuration(),
    ...SERVICE,
    [ownStatusOf('a')]: well(JSON.stringify(LEADS)),
    [ownStatusOf('b')]: well(JSON.stringify(FOLLOWS)),
    [`/api/v1/namespaces${LISTED}`]: items(
      namespaceObject('shop', { 'linger.dev/mode': 'Enforce' }),
      namespaceObject('team'),
      namespaceObject('other'),
    ),
    [`/api/v1/services${LISTED}`]: items(),
    [`/api/v1/nodes${LISTED}`]: items(),
  };
}

async function statusOf(changes: Answers = {}, ...args: readonly string[]) {
  return statusAt(await AnsweringServer.start({ ...running(), ...changes }, atEnd), ...args);
}

async function statusAt(server: AnsweringServer, ...args: readonly string[]) {
  const file = join(await emptyDirectory(atEnd), 'kubeconfig');
  await writeFile(file, server.kubeconfig('shop'));
  const said = await linger(['status', '--kubeconfig', file, '--linger-namespace', 'linger', ...args]);
  return { ...said, asked: server.asked.map(({ path }) => path) };
}

it('--watch prints it again when it changes, and not when only time has passed, until Ctrl-C', async () => {
  const [same, other] = [LEADS, { ...LEADS, held: 8 }].map((each) => well(JSON.stringify(each)));
  if (same === undefined || other === undefined) throw new Error('two answers');
  const answers = { ...running(), [ownStatusOf('a')]: [same, same, other] };
  const server = await AnsweringServer.start(answers, atEnd);
  const watching = statusAt(server, '--watch');
  while (server.asked.filter(({ path }) => path === ownStatusOf('a')).length < 5) await sleep(20);
  process.emit('SIGINT');
  const { code, stdout, stderr } = await watching;
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout.match(/^held .*$/gm)).toEqual([
    expect.stringContaining('3 pods'),
    expect.stringContaining('8 pods'),
  ]);
});

describe.concurrent('linger status', () => {
  it('is one screen: findings first, then who runs, what was decided, and waits with their reason', async () => {
    const { code, stdout } = await statusOf();
    expect(code).toBe(0);
    expect(stdout).toMatch(/^40 workloads: 30 protected, 4 unprotected, 5 skipped, 1 unknown\n/);
    expect(stdout).toMatch(/^replicas +2 of 2 ready$/m);
    expect(stdout).toMatch(/^leader +a_1f, renewed \d+ m?s ago$/m);
    // Summed over both replicas.
    expect(stdout).toMatch(
      /^decisions +120 injected, 0 only audited, 7 skipped in the last hour \(NotServing 7\)$/m,
    );
    expect(stdout).toMatch(/^held +3 pods now: linger hold list$/m);
    expect(stdout).toMatch(/^\S+ +Auto +\d+s +initial: 0 of \d+ samples, .* of .* +\d: /m);
    expect(stdout).toMatch(/^ +NoHook +4 +in shop, team$/m);
    expect(stdout.split('\n').length).toBeLessThan(40);
  });

  const unready = { ...replica('a'), status: { conditions: [{ type: 'Ready', status: 'False' }] } };
  it.for<[string, Answers, RegExp]>([
    [
      'the configuration is deleted',
      { [CONFIGURATION]: refused(404, 'not found') },
      /^New pods get no hook at this moment: there is no MutatingWebhookConfiguration linger; to cure it: kubectl apply .*\. 40 workloads: /,
    ],
    [
      'Linger is scaled to 0',
      { [DEPLOYMENT]: well({ spec: { replicas: 0 } }), [PODS]: items() },
      /^New pods get no hook at this moment: the Deployment linger is scaled to 0 replicas; to cure it: kubectl scale/,
    ],
    [
      'no replica is ready',
      { [DEPLOYMENT]: well({ spec: { replicas: 2 } }), [PODS]: items(unready) },
      /^New pods get no hook at this moment: no replica of Linger is ready; /,
    ],
    [
      'the Service has no endpoint',
      { [SLICES]: sliceOf(false) },
      /^New pods get no hook at this moment: Service linger\/linger has no ready endpoint /,
    ],
    [
      'the Service is gone',
      { '/api/v1/namespaces/linger/services/linger': refused(404, 'not found') },
      /^New pods get no hook at this moment: linger points at Service linger\/linger, which does not exist; /,
    ],
    [
      'the rules do not cover pods',
      { [CONFIGURATION]: configuration({ rules: [] }) },
      /^New pods get no hook at this moment: the rules of linger do not cover the creation of pods/,
    ],
    [
      'the caBundle is another authority’s',
      { [ownStatusOf('a')]: well(JSON.stringify({ ...LEADS, trusted: false })) },
      /^New pods get no hook at this moment: the caBundle of linger does not match the certificate/,
    ],
    [
      'it fails closed, and no replica is ready',
      {
        [CONFIGURATION]: configuration({ failurePolicy: 'Fail' }),
        [PODS]: items(unready),
        [DEPLOYMENT]: well({}),
      },
      /^New pods cannot be created at this moment: no replica of Linger is ready; /,
    ],
  ])('says first that pods get no hook: %s', async ([, changes, said]) => {
    const { stdout } = await statusOf(changes);
    expect(stdout).toMatch(said);
    const { stdout: json } = await statusOf(changes, '--output', 'json');
    const { hooks, headline } = statusReport.parse(JSON.parse(json));
    expect(hooks.given).toBe(false);
    expect(headline).toMatch(said);
  });

  it('does not claim that pods get none where it may not look', async () => {
    const denied = refused(403, 'mutatingwebhookconfigurations is forbidden');
    const { stdout } = await statusOf({ [CONFIGURATION]: denied }, '--output', 'json');
    expect(statusReport.parse(JSON.parse(stdout)).hooks).toEqual({ given: null });
  });

  it('says which replicas have counted decisions only since their start', async () => {
    const decisions = { outcomes: { inject: 2 }, skips: {}, seconds: 240 };
    const { stdout } = await statusOf({
      [ownStatusOf('b')]: well(JSON.stringify({ ...FOLLOWS, decisions })),
    });
    expect(stdout).toMatch(
      /^decisions +102 injected, .* in the last hour, of b only since its start 4 min ago \(NotServing 7\)$/m,
    );
  });

  it('reads replicas of an earlier version during an upgrade, and takes what they do not say as not known', async () => {
    const [a, b] = [EARLIER, { ...EARLIER, audit: null, held: 0 }].map((each) => well(JSON.stringify(each)));
    const asked = (...[first, second]: readonly (Answer | undefined)[]) =>
      statusOf({
        ...(first && { [ownStatusOf('a')]: first }),
        ...(second && { [ownStatusOf('b')]: second }),
      });
    const notKnown =
      / {2}whether running pods call an address that the Hold Service no longer has is not known: /;
    const { stdout: earlier } = await asked(a, b);
    expect(earlier).toMatch(/^40 workloads: /);
    expect(earlier).toMatch(
      /^decisions +200 injected, .* in the last hour, of a perhaps only since its start, which it does not say, b perhaps /m,
    );
    expect(earlier).toMatch(/^held +3 pods now: linger hold list$/m);
    expect(earlier).toMatch(notKnown);
    // One that says it is enough: all replicas see the same pods.
    const { stdout: mixed } = await asked(well(JSON.stringify({ ...LEADS, unreached: 12 })), b);
    expect(mixed).toMatch(/^held .*; 12 running pods with hook Hold call an address/m);
    expect(mixed).toMatch(
      /^decisions +200 injected, .* in the last hour, of b perhaps only since its start/m,
    );
    expect(mixed).not.toMatch(notKnown);
  });

  const leaving = {
    ...replica('a'),
    metadata: { ...replica('a').metadata, deletionTimestamp: '2026-01-01T00:00:30Z' },
  };
  it.for<[string, Answers, RegExp]>([
    ['the leader is not ready', { [PODS]: items(unready, replica('b')) }, /a_1f leads and was not asked: /],
    ['the leader is deleted', { [PODS]: items(leaving, replica('b')) }, /a_1f leads and was not asked: /],
    [
      'its term has just begun',
      { [ownStatusOf('a')]: well(JSON.stringify({ ...LEADS, held: null })) },
      /a_1f does not know yet: /,
    ],
    [
      'no replica leads',
      { [LEASE]: well({ spec: { holderIdentity: '' } }) },
      /which replica leads is not known/,
    ],
    ['the Lease may not be read', { [LEASE]: refused(403, 'no') }, /which replica leads is not known/],
  ])('does not know how many pods are held where %s', async ([, changes, why]) => {
    const { stdout } = await statusOf(changes);
    expect(stdout).toMatch(/^held +not seen$/m);
    expect(stdout.split('\n')).toContainEqual(expect.stringMatching(new RegExp(`^ {2}held: ${why.source}`)));
    const json = await statusOf(changes, '--output', 'json');
    expect(statusReport.parse(JSON.parse(json.stdout)).held).toBeNull();
  });

  it('says whose decisions are missing', async () => {
    const { stdout } = await statusOf({ [PODS]: items(unready, replica('b')) });
    expect(stdout).toMatch(/^decisions +\d+ injected/m);
    expect(stdout).toMatch(/^ {2}decisions: those of a, which is not ready$/m);
    expect((await statusOf({})).stdout).not.toContain('decisions: those of');
  });

  it('says why, once, where no replica is ready', async () => {
    const { stdout } = await statusOf({ [PODS]: items(unready) });
    expect(stdout).toMatch(/^held +not seen$/m);
    expect(stdout).toMatch(/^ {2}status: no replica is ready, so none was asked$/m);
  });

  it('knows that no pod is held where there is no Hold Service', async () => {
    const [a, b] = [LEADS, FOLLOWS].map((each) =>
      well(JSON.stringify({ ...each, held: null, unreached: null })),
    );
    if (a === undefined || b === undefined) throw new Error('two answers');
    const { stdout } = await statusOf({ [ownStatusOf('a')]: a, [ownStatusOf('b')]: b });
    expect(stdout).toMatch(/^held +0 pods now$/m);
  });

  it('says how many pods call an address that the Hold Service no longer has', async () => {
    const stale = well(JSON.stringify({ ...LEADS, unreached: 12 }));
    const { stdout } = await statusOf({ [ownStatusOf('a')]: stale });
    expect(stdout).toMatch(
      /^held +3 pods now: linger hold list; 12 running pods with hook Hold call an address/m,
    );
  });

  it('says whether the floor stands, and until when', async () => {
    const group = '/apis/admissionregistration.k8s.io/v1';
    const POLICY = `${group}/mutatingadmissionpolicies/linger-floor`;
    const [policy, binding] = parseAllDocuments(readFileSync(FLOOR_MANIFEST, 'utf8')).map(
      (each) => each.toJS() as { readonly spec: { readonly matchConstraints?: object } },
    );
    const mapOf = (_validUntil: string) => ({
      '/api/v1/namespaces/linger/configmaps/linger-floor': well({ data: { _: 'none', _validUntil } }),
    });
    const bound = {
      [CONFIGURATION]: configuration(policy?.spec.matchConstraints),
      [POLICY]: well(policy),
      [`${group}/mutatingadmissionpolicybindings/linger-floor`]: well(binding),
    };
    const said = async (changes: Answers) => /^floor +(.*)$/m.exec((await statusOf(changes)).stdout)?.[1];
    const without = 'while Linger is down, pods are created without a hook';
    expect(await said({})).toBe(`none: ${without}`);
    expect(await said({ ...bound, ...mapOf('2199-01-01T00:00:00Z') })).toBe(
      'stands, and is up to date until 2199-01-01T00:00:00.000Z',
    );
    expect(await said({ ...bound, ...mapOf('2026-01-01T00:00:00Z') })).toBe(
      'stands, and is out of date since 2026-01-01T00:00:00.000Z (linger check)',
    );
    expect(await said(bound)).toBe(`bound, and cannot be used: ${without} (linger check)`);
    const mutations = [{ patchType: 'JSONPatch', jsonPatch: { expression: '[]' } }];
    const edited = { ...policy, spec: { ...policy?.spec, mutations } };
    expect(await said({ ...bound, ...mapOf('2199-01-01T00:00:00Z'), [POLICY]: well(edited) })).toBe(
      'not as this version installs it: while Linger is down, pods may get another wait or none (linger check)',
    );
    const denied = await statusOf({ [POLICY]: refused(403, 'mutatingadmissionpolicies is forbidden') });
    expect(denied.stdout).toMatch(/^floor +not seen$/m);
    expect(denied.stdout).toMatch(/^ {2}floor: 403: mutatingadmissionpolicies is forbidden$/m);
    const { stdout } = await statusOf({ ...bound, ...mapOf('2199-01-01T00:00:00Z') }, '--output', 'json');
    const { floor } = statusReport.parse(JSON.parse(stdout));
    expect(floor).toEqual({ bound: true, validUntil: Date.UTC(2199, 0, 1) / 1_000, changed: [] });
  });

  it('shows no mode above --mode-limit of the replicas', async () => {
    const args = ['serve', '--mode-limit=Audit'];
    const deployment = { spec: { template: { spec: { containers: [{ name: 'linger', args }] } } } };
    const path = '/apis/apps/v1/namespaces/linger/deployments/linger';
    const { stdout } = await statusOf({ [path]: well(deployment) }, '--output', 'json');
    const { namespaces } = statusReport.parse(JSON.parse(stdout));
    expect(namespaces.map(({ mode }) => mode)).toEqual(['Audit']);
    const denied = await statusOf({ [path]: refused(403, 'deployments is forbidden') });
    expect(denied.stdout).toMatch(/^ {2}--mode-limit: 403: .*; assuming Enforce$/m);
  });

  it('says that the leader has published nothing for hours', async () => {
    const text = consumersToText({ asOf: Date.now() / 1000 - 7_200, consumers: [] });
    const { stdout } = await statusOf({
      '/api/v1/namespaces/linger/configmaps/linger-consumers': well({
        metadata: { name: 'linger-consumers', resourceVersion: '1' },
        data: { 'consumers.json': text },
      }),
    });
    expect(stdout).toMatch(/^ {2}consumers: last published 2h.* ago; probably no replica of Linger leads$/m);
  });

  it('has the same as JSON', async () => {
    const { stdout } = await statusOf({}, '--output', 'json');
    const value = statusReport.parse(JSON.parse(stdout));
    expect(value.held).toBe(3);
    expect(value.namespaces.flatMap(({ namespaces }) => namespaces).toSorted()).toEqual([
      'other',
      'shop',
      'team',
    ]);
  });

  it('goes on with the rights that there are, and says what it could not read', async () => {
    const no = (what: string) =>
      refused(403, `${what} is forbidden: User "team" cannot list resource "${what}"`);
    const { code, stdout, asked } = await statusOf({
      [`/api/v1/namespaces${LISTED}`]: no('namespaces'),
      [`/api/v1/services${LISTED}`]: no('services'),
      [`/api/v1/namespaces/shop/services${LISTED}`]: items(),
      [`/api/v1/nodes${LISTED}`]: no('nodes'),
      [ownStatusOf('a')]: no('pods/proxy'),
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Not known which workloads may lose requests: /);
    expect(stdout).toMatch(/^decisions +not seen$/m);
    expect(stdout).toMatch(/^ {2}status: 403: pods\/proxy is forbidden/m);
    expect(stdout).toMatch(/nodes is forbidden.*; assuming that all kubelets know the native sleep$/m);
    // The Services of the context's own namespace may be read.
    expect(asked).toContain(`/api/v1/namespaces/shop/services${LISTED}`);
  });
});
