import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { ensureCertificates } from '../../src/certs/index.ts';
import { type Check, inquire } from '../../src/check/checks.ts';
import { checkInstallation, type Senders } from '../../src/check/installation.ts';
import { checkBefore } from '../../src/check/preflight.ts';
import { type Access, accessesToInstall, declaredRights } from '../../src/check/rights.ts';
import { KubeFailure } from '../../src/cluster/index.ts';
import { LingerError, memberAt } from '../../src/core/api/index.ts';
import { FLEET_SETTLE_SECONDS } from '../../src/core/decision/index.ts';
import { discover } from '../../src/core/discovery/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { NO_STATUS } from '../../src/manager/index.ts';
import { days, signedByItself } from '../certs/fixture.ts';
import { emptyDirectory, ROOT } from '../cli/linger.ts';
import { type Answer, AnsweringServer, type Answers, refused, well } from '../cluster/answers.ts';
import { type AtEnd, atEndOfFile } from '../webhook/connection.ts';

const atEnd = onTestFinished as AtEnd;
const atEndOfTests = atEndOfFile();
const NOW = new Date();
const seconds = (date: Date) => date.getTime() / 1000;
const DAY_MS = 86_400_000;

type Json = Record<string, unknown>;
const items = (...objects: readonly unknown[]) =>
  well({ metadata: { resourceVersion: '1' }, items: objects });
const query = (name: string, value: string) => `${name}=${encodeURIComponent(value)}&limit=250`;

const HOOKS = '/apis/admissionregistration.k8s.io/v1';
const MUTATING = `${HOOKS}/mutatingwebhookconfigurations?limit=250`;
const VALIDATING = `${HOOKS}/validatingwebhookconfigurations?limit=250`;
const OWN_HOOK = `${HOOKS}/mutatingwebhookconfigurations/linger`;
const NODES = '/api/v1/nodes?limit=250';
const DEPLOYMENT = '/apis/apps/v1/namespaces/linger/deployments/linger';
const PODS = `/api/v1/namespaces/linger/pods?${query('labelSelector', 'app.kubernetes.io/name=linger')}`;
const SECRET = '/api/v1/namespaces/linger/secrets/linger-certificates';
const TRY = '/api/v1/namespaces/default/pods?dryRun=All';
const TRY_OWN = '/api/v1/namespaces/linger/pods?dryRun=All';
const PROXY = '/api/v1/namespaces/linger/services/https:linger:webhook/proxy/mutate';
const REVIEW = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
const REVIEW_OF_OTHERS = '/apis/authorization.k8s.io/v1/subjectaccessreviews';
const NAMESPACES = '/api/v1/namespaces?limit=250';
const SERVICE = '/api/v1/namespaces/linger/services/linger';
const HOLD = '/api/v1/namespaces/linger/services/linger-hold';
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/linger/leases/linger';
const CONSUMERS = '/api/v1/namespaces/linger/configmaps/linger-consumers';
const SERVICES = '/api/v1/namespaces/linger/services?limit=250';
const EVERY_NETWORK = '/apis/networking.k8s.io/v1/networkpolicies?limit=250';
const NETWORK = '/apis/networking.k8s.io/v1/namespaces/linger/networkpolicies?limit=250';
const CLUSTER_POLICIES = '/apis/linger.dev/v1alpha1/clusterterminationpolicies?limit=250';
const statusOf = (pod: string) => `/api/v1/namespaces/linger/pods/${pod}:8080/proxy/status`;
const slicesOf = (service: string, namespace = 'other') =>
  `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?${query('labelSelector', `kubernetes.io/service-name=${service}`)}`;

const read = (file: string) => readFileSync(join(ROOT, 'deploy', file), 'utf8');

/** The webhook of deploy/webhook.yaml, which the tests take for the stored one. */
const [deployed] = (parse(read('webhook.yaml')) as { webhooks: Json[] }).webhooks;
const closing = (parse(read('fail-closed/webhook.yaml')) as { op: string; value: unknown }[]).flatMap(
  ({ op, value }) => (op === 'add' ? [value] : []),
);

const deploymentContainer = (
  parse(read('deployment.yaml')) as { spec: { template: { spec: { containers: Json[] } } } }
).spec.template.spec.containers[0]!;

const node = (name: string, kubeletVersion = 'v1.36.3') => ({
  metadata: { name, uid: name },
  status: { nodeInfo: { kubeletVersion } },
});
const replica = (name: string, nodeName: string, ready = true) => ({
  metadata: { name },
  spec: { nodeName },
  status: {
    conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
    containerStatuses: ready
      ? []
      : [{ state: { waiting: { reason: 'ImagePullBackOff', message: 'no such\nimage' } } }],
  },
});
const tried = (more: Json = {}, warning?: string): Answer => ({
  ...well(more),
  ...(warning !== undefined && { headers: { warning } }),
});
const hooked = (seconds: number | undefined, grace = 90) => {
  const lifecycle = seconds === undefined ? {} : { lifecycle: { preStop: { sleep: { seconds } } } };
  return { spec: { terminationGracePeriodSeconds: grace, containers: [{ name: 'app', ...lifecycle }] } };
};
/** Linger's Deployment with these flags. */
const flagged = (...args: readonly string[]) =>
  well({ spec: { replicas: 2, template: { spec: { containers: [{ args }] } } } });
/** Linger's Deployment with these ports and flags. */
const ported = (ports: readonly Json[], ...args: readonly string[]) =>
  well({
    spec: {
      replicas: 2,
      template: {
        metadata: { labels: { 'app.kubernetes.io/name': 'linger' } },
        spec: { containers: [{ args: ['--certs-secret=linger-certificates', ...args], ports }] },
      },
    },
  });
const named = (name: string, targetPort: string) => ({
  metadata: { name },
  spec: { selector: { 'app.kubernetes.io/name': 'linger' }, ports: [{ port: 1234, targetPort }] },
});
const egress = (namespace: string, name: string, podSelector: Json, ...rules: readonly Json[]) => ({
  metadata: { namespace, name },
  spec: { podSelector, policyTypes: ['Egress'], egress: rules },
});
const status = (current = true, more: Json = {}) =>
  well(
    JSON.stringify({
      ...NO_STATUS,
      synced: true,
      watches: { pods: current },
      flips: { Measured: 7 },
      ...more,
    }),
  );
const lease = (holder: string, ageSeconds: number, now = NOW) =>
  well({
    spec: { holderIdentity: holder, renewTime: new Date(now.getTime() - ageSeconds * 1000).toISOString() },
  });
const consumersMap = (...conditions: readonly (readonly [string, string, string, object?])[]) => {
  const consumers = conditions.map(([name, status, reason, more]) => ({
    ...more,
    name,
    measure: 'probe',
    removals: null,
    additions: null,
    lastSample: null,
    services: null,
    instances: null,
    limits: [],
    condition: { status, reason, message: `${reason} it is.`, since: 1 },
  }));
  const annotations = { 'linger.dev/writer': 'a', 'linger.dev/term': '1', 'linger.dev/written-at': '1' };
  return well({
    metadata: { annotations },
    data: { 'consumers.json': JSON.stringify({ v: 2, asOf: 1, consumers }) },
  });
};
const policy = (name: string, status: string, reason: string) => ({
  metadata: { name },
  status: { conditions: [{ type: 'Ready', status, reason, message: `${reason} it is.` }] },
});
const foreign = (name: string, more: Json = {}) => ({
  metadata: { name },
  webhooks: [
    {
      name: `pods.${name}`,
      failurePolicy: 'Fail',
      rules: [{ apiGroups: [''], resources: ['pods'], operations: ['CREATE'] }],
      clientConfig: { service: { namespace: 'other', name } },
      ...more,
    },
  ],
});

let cert = '';
let caBundle = '';
const own = (more: Json = {}) =>
  well({
    metadata: { name: 'linger' },
    webhooks: [
      {
        ...deployed,
        clientConfig: { ...(deployed?.clientConfig as Json), caBundle: encoded(caBundle) },
        ...more,
      },
    ],
  });
const encoded = (text: string) => Buffer.from(text).toString('base64');
const secret = (text: string) => well({ data: { 'tls.crt': encoded(text) } });

beforeAll(async () => {
  const directory = await emptyDirectory(atEndOfTests);
  const made = await ensureCertificates({ directory, names: ['linger.linger.svc'] }, NOW);
  ({ cert, caBundle } = made);
});

const service = (port: number) =>
  well({ spec: { ports: [{ port, targetPort: 'webhook' }], selector: { app: 'linger' } } });

/** A cluster in which all is well. */
function healthy(): Answers {
  return {
    '/version': well({ gitVersion: 'v1.36.3' }),
    [NODES]: items(node('one'), node('two')),
    '/api/v1/nodes?limit=2': items(node('one'), node('two')),
    '/apis/linger.dev/v1alpha1': well({
      resources: ['clusterterminationpolicies', 'discoveryconsumers', 'terminationpolicies'].map((name) => ({
        name,
      })),
    }),
    '/api/v1/namespaces/linger': well({
      metadata: {
        labels: { 'app.kubernetes.io/name': 'linger', 'pod-security.kubernetes.io/enforce': 'restricted' },
      },
    }),
    '/api/v1/namespaces/default': well({
      metadata: { labels: { 'kubernetes.io/metadata.name': 'default' } },
    }),
    [NAMESPACES]: items({
      metadata: { name: 'default', labels: { 'kubernetes.io/metadata.name': 'default' } },
    }),
    [MUTATING]: items({ metadata: { name: 'linger' }, webhooks: [deployed] }),
    [VALIDATING]: items(),
    [OWN_HOOK]: own(),
    [SERVICE]: service(443),
    [SERVICES]: items(),
    [EVERY_NETWORK]: items(),
    [HOLD]: service(8445),
    [slicesOf('linger', 'linger')]: items({ endpoints: [{}, {}] }),
    [slicesOf('kubernetes', 'default')]: items({ ports: [{ name: 'https', port: 6443 }] }),
    [REVIEW_OF_OTHERS]: well({ status: { allowed: true } }),
    [DEPLOYMENT]: well({
      spec: {
        replicas: 2,
        template: { spec: { containers: [{ args: ['--certs-secret=linger-certificates'] }] } },
      },
    }),
    [PODS]: items(replica('a', 'one'), replica('b', 'two')),
    [SECRET]: secret(cert),
    [TRY]: tried({}, '299 - "linger: Pod: linger.dev/wait: expected a duration"'),
    [TRY_OWN]: tried(hooked(5)),
    [REVIEW]: well({ status: { allowed: true } }),
    [LEASE]: lease('a_1f', 1),
    [CONSUMERS]: consumersMap(['cluster-ip', 'True', 'Measured']),
    [NETWORK]: items(parse(read('networkpolicy.yaml'))),
    [CLUSTER_POLICIES]: items(policy('base', 'True', 'InForce')),
    '/apis/linger.dev/v1alpha1/terminationpolicies?limit=250': items(),
    [statusOf('a')]: status(),
    [statusOf('b')]: status(),
  };
}

interface Asked {
  readonly now?: Date;
  /** The namespaces, or what keeps them from being known. */
  readonly wantingHold?: readonly string[] | Error;
  /** Why the namespaces in `wantingHold` do not get Hold. */
  readonly noHold?: string;
  readonly policiesUnread?: string;
  /** What is broken in the ConfigMap of policies. */
  readonly fileProblems?: readonly string[];
  readonly filesUnread?: KubeFailure;
  readonly pre?: boolean;
  readonly configuration?: string;
  readonly senders?: () => Promise<Senders>;
}

async function check(changes: Answers, asked: Asked = {}) {
  const { now = NOW, wantingHold = [], fileProblems = [], filesUnread } = asked;
  const { pre = false, configuration = 'linger', noHold: why, policiesUnread } = asked;
  const hooksStay = pre ? { [TRY]: tried(hooked(5)) } : {};
  const server = await AnsweringServer.start(
    { ...healthy(), [LEASE]: lease('a_1f', 1, now), ...hooksStay, ...changes },
    atEnd,
  );
  const options = {
    connection: { server: server.url, credentials: () => Promise.resolve({}) },
    namespace: 'linger',
    configuration,
    tryIn: 'default',
    now: seconds(now),
    inForce: async () => {
      if (wantingHold instanceof Error) throw wantingHold;
      const mode = { value: 'Audit', origin: 'ClusterTerminationPolicy/base' };
      const wanting = wantingHold.map((namespace) => ({ namespace, why }));
      return {
        wantingHold: wanting,
        holdDigest: undefined,
        policiesUnread,
        files: 1,
        fileProblems,
        filesUnread,
        mode,
      };
    },
  };
  return inquire(options, (inquiry) =>
    pre ? checkBefore(inquiry) : checkInstallation(inquiry, options.inForce, asked.senders),
  );
}

describe('Floor', () => {
  const POLICY = `${HOOKS}/mutatingadmissionpolicies/linger-floor`;
  const BINDING = `${HOOKS}/mutatingadmissionpolicybindings/linger-floor`;
  const MAP = '/api/v1/namespaces/linger/configmaps/linger-floor';
  const [deployedPolicy, deployedBinding] = parseAllDocuments(read('floor/floor.yaml')).map((each) =>
    each.toJS(),
  );
  const conditions: readonly unknown[] = deployedPolicy.spec.matchConditions;
  const HOUR_MS = 3_600_000;
  const written = (fromNowMs: number, more: Json = {}) =>
    well({ data: { _: '30 30 300 Sleep Job ', _validUntil: timeIn(fromNowMs), ...more } });
  const timeIn = (ms: number) => new Date(NOW.getTime() + ms).toISOString();
  const counted = (...series: readonly (readonly [policy: string, error: string, times: number])[]) =>
    well(
      series
        .map(
          ([name, error, times]) =>
            `apiserver_mutating_admission_policy_check_total{error_type="${error}",policy="${name}",policy_binding="${name}"} ${times}\n`,
        )
        .join(''),
    );
  const standing = (): Answers => ({
    [POLICY]: well(deployedPolicy),
    [BINDING]: well(deployedBinding),
    [MAP]: written(HOUR_MS),
    '/metrics': counted(['linger-floor', 'no_error', 1_200], ['of-others', 'invalid_error', 7]),
  });
  const said = async (changes: Answers, asked?: Asked) =>
    (await check(changes, asked)).flatMap(({ code, state, text }) =>
      code === 'Floor' ? `${state}: ${text}` : [],
    );

  it.each([
    ['v1.35.1', /^ok: not possible: the API server runs v1\.35\.1, .* from 1\.36 on\./],
    [
      'v1.36.3',
      /^ok: on v1\.36\.3 .* 3 ms for each pod before 1\.37: off in the chart \(floor: auto\) unless floor: true; in kustomize, /,
    ],
    [
      'v1.37.2',
      /^ok: on v1\.37\.2 .* is down: on in the chart \(floor: auto\); in kustomize, components: \[floor\]$/,
    ],
  ])('before an installation: on %s', async (gitVersion, expected) => {
    const version = { '/version': well({ gitVersion }) };
    expect(await said(version, { pre: true })).toEqual([expect.stringMatching(expected)]);
  });

  it('before an installation: by an account that may not create it, and with nothing to create', async () => {
    const answers = (gitVersion: string) => ({
      '/version': well({ gitVersion }),
      [REVIEW]: well({ status: { allowed: false } }),
    });
    const [, lacking] = await said(answers('v1.37.2'), { pre: true });
    for (const right of [
      'create mutatingadmissionpolicies.admissionregistration.k8s.io',
      'patch mutatingadmissionpolicybindings.admissionregistration.k8s.io',
      'get configmaps *',
    ])
      expect(lacking).toContain(right);
    expect(lacking).toMatch(
      /^warning: your account lacks permissions that an installation with the floor needs: /,
    );
    expect(await said(answers('v1.36.3'), { pre: true })).toHaveLength(1);
  });

  it('that is not installed is no problem', async () => {
    expect(await said({ '/version': well({ gitVersion: 'v1.37.2' }) })).toEqual([
      expect.stringMatching(/^ok: not installed; on v1\.37\.2 .*floor: auto/),
    ]);
  });

  it('that was evaluated, and is gone, is a problem', async () => {
    const changes = {
      '/version': well({ gitVersion: 'v1.37.2' }),
      '/metrics': counted(['linger-floor', 'no_error', 1_200], ['of-others', 'invalid_error', 7]),
    };
    expect(await said(changes)).toEqual([
      expect.stringMatching(
        /^warning: MutatingAdmissionPolicy linger-floor and its binding are gone, after 1,200 evaluations on this API server: while Linger is down, pods are created without a hook/,
      ),
    ]);
    // The leader writes the ConfigMap without the policy, too.
    const never = { ...changes, [MAP]: written(HOUR_MS), '/metrics': counted(['of-others', 'no_error', 7]) };
    expect(await said(never)).toEqual([expect.stringMatching(/^ok: not installed; /)]);
  });

  const edited = (object: object, path: readonly (string | number)[], value: unknown) => {
    const copy = structuredClone(object) as Json;
    let at: Json = copy;
    for (const member of path.slice(0, -1)) at = at[member] as Json;
    at[String(path.at(-1))] = value;
    return well(copy);
  };

  it('stands', async () => {
    const until = `bound, and ConfigMap linger/linger-floor is up to date for 60 min, until ${timeIn(HOUR_MS)}`;
    expect(await said(standing())).toEqual([
      `ok: ${until}; 1,200 evaluations on this API server, none failed`,
    ]);
  });

  it('stands with what API servers and providers add', async () => {
    const ofProvider = { key: 'control-plane', operator: 'DoesNotExist' };
    const namespaceSelector = {
      matchExpressions: [
        ...(memberAt(deployed, ['namespaceSelector', 'matchExpressions']) as Json[]),
        ofProvider,
      ],
    };
    const changes = {
      ...standing(),
      [POLICY]: edited(deployedPolicy, ['spec', 'matchConstraints', 'matchPolicy'], 'Equivalent'),
      [BINDING]: edited(deployedBinding, ['spec', 'matchResources'], {
        matchPolicy: 'Equivalent',
        namespaceSelector: {},
      }),
      [`${HOOKS}/mutatingwebhookconfigurations/linger`]: well({
        webhooks: [{ ...deployed, namespaceSelector }],
      }),
    };
    expect(await said(changes)).toEqual([expect.stringMatching(/^ok: bound, /)]);
  });

  it.each<[what: string, changes: Answers, expected: RegExp]>([
    [
      'without its binding',
      { [BINDING]: refused(404, 'not found') },
      /^warning Floor: MutatingAdmissionPolicy linger-floor is not bound: while Linger is down, pods are created without a hook$/,
    ],
    [
      'without its policy',
      { [POLICY]: refused(404, 'not found') },
      /^warning Floor: linger-floor has a binding and no MutatingAdmissionPolicy: /,
    ],
    [
      'bound to the ConfigMap of another namespace',
      {
        [BINDING]: well({
          spec: { policyName: 'linger-floor', paramRef: { name: 'linger-floor', namespace: 'tools' } },
        }),
      },
      /^warning Floor: the binding of linger-floor does not lead to ConfigMap linger\/linger-floor, but to \{.*"tools"\} for linger-floor$/,
    ],
    ['without its ConfigMap', { [MAP]: refused(404, 'not found') }, /^warning Floor: there is no ConfigMap /],
    [
      'whose ConfigMap has no time',
      { [MAP]: written(HOUR_MS, { _validUntil: 'soon' }) },
      /^warning Floor: ConfigMap linger\/linger-floor does not say until when it is valid/,
    ],
    [
      'whose ConfigMap is out of date',
      { [MAP]: written(-1_000) },
      /^warning Floor: ConfigMap linger\/linger-floor is out of date since .*Z: .* at least wait\.initial$/,
    ],
    [
      'whose ConfigMap somebody has changed',
      {
        [MAP]: written(HOUR_MS, {
          off: 'none',
          well: '1 2 3 Exec Job,DaemonSet a,b',
          shop: '30s 30 600 Sleep - ',
          web: '30 30 600 Sleep -',
          mail: '99999999999 30 600 Sleep - ',
          edge: '30 30 600 Hold - ',
        }),
      },
      /^warning Floor: ConfigMap linger\/linger-floor has lines that cannot be read: shop, web, mail and 1 more\. /,
    ],
    [
      'whose ConfigMap is full',
      { [MAP]: written(HOUR_MS, { _: 'none', _dropped: '12' }) },
      /^warning Floor: ConfigMap linger\/linger-floor has no room for 12 namespaces: /,
    ],
    [
      'whose policy was edited',
      { [POLICY]: edited(deployedPolicy, ['spec', 'variables', 5, 'expression'], 'false') },
      /^warning Floor: MutatingAdmissionPolicy linger-floor is not as this version of Linger installs it: spec\.variables\[\w+\]\.expression\. /,
    ],
    [
      'whose policy has one condition more',
      {
        [POLICY]: edited(deployedPolicy, ['spec', 'matchConditions', conditions.length], {
          name: 'never',
          expression: 'false',
        }),
      },
      /^warning Floor: .* installs it: spec\.matchConditions\. /,
    ],
    [
      'whose policy leaves pods out by name',
      {
        [POLICY]: edited(
          deployedPolicy,
          ['spec', 'matchConstraints', 'excludeResourceRules'],
          [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
        ),
      },
      /^warning Floor: .* installs it: spec\.matchConstraints\.excludeResourceRules\. /,
    ],
    [
      'whose policy covers fewer namespaces than the webhook',
      {
        [POLICY]: edited(deployedPolicy, ['spec', 'matchConstraints', 'namespaceSelector', 'matchLabels'], {
          team: 'shop',
        }),
      },
      /^warning Floor: .* installs it: spec\.matchConstraints\.namespaceSelector \(the webhook has another\)\. /,
    ],
    [
      'whose policy covers pods that opt out of the webhook',
      { [POLICY]: edited(deployedPolicy, ['spec', 'matchConstraints', 'objectSelector'], {}) },
      /^warning Floor: .* installs it: spec\.matchConstraints\.objectSelector \(the webhook has another\)\. /,
    ],
    [
      'whose binding leaves namespaces out',
      {
        [BINDING]: edited(deployedBinding, ['spec', 'matchResources'], {
          matchPolicy: 'Equivalent',
          objectSelector: {},
          namespaceSelector: { matchLabels: { team: 'shop' } },
        }),
      },
      /^warning Floor: .* installs it: spec\.matchResources\.namespaceSelector\.matchLabels\.team of its binding\. /,
    ],
    [
      'that the API server cannot evaluate',
      {
        '/metrics': counted(
          ['linger-floor', 'no_error', 88],
          ['linger-floor', 'invalid_error', 11],
          ['linger-floor', 'out_of_budget', 1],
        ),
      },
      /^warning Floor: of 100 evaluations of linger-floor on this API server since it started, 12 failed \(invalid_error 11, out_of_budget 1\)/,
    ],
    [
      'of an API server whose metrics may not be read',
      { '/metrics': refused(403, 'forbidden: cannot get path "/metrics"') },
      /^unknown Floor: whether the API server can evaluate linger-floor could not be checked: 403: /,
    ],
    [
      'that may not be read',
      { [POLICY]: refused(403, 'mutatingadmissionpolicies is forbidden') },
      /^unknown Floor: could not be checked: 403: mutatingadmissionpolicies is forbidden$/,
    ],
  ])('%s', async (_, changes, expected) => {
    expect(worthSaying(await check({ ...standing(), ...changes }))).toEqual([
      expect.stringMatching(expected),
    ]);
  });

  it('is no suspect where a hook is taken out', async () => {
    const changes = {
      ...standing(),
      [TRY]: tried({ metadata: { annotations: { 'linger.dev/plan': '{}' } }, ...hooked(undefined) }),
      [`${HOOKS}/mutatingadmissionpolicies?limit=250`]: items(deployedPolicy),
      [`${HOOKS}/mutatingadmissionpolicybindings?limit=250`]: items(deployedBinding),
      '/api/v1': well({ resources: [{ name: 'configmaps', kind: 'ConfigMap', namespaced: true }] }),
    };
    expect(worthSaying(await check(changes))).toEqual([
      'failure Answer: a pod in namespace default has Linger’s plan but no hook: another webhook or a policy changes it',
    ]);
  });

  it('whose marker a skipped pod has: Linger has answered', async () => {
    const annotations = { 'linger.dev/plan': '{"v":1,"by":"webhook","skip":"NotServing"}' };
    const answered = tried({ metadata: { annotations }, ...hooked(undefined) }, '299 - "linger: x"');
    const checks = await check({ ...standing(), [TRY]: answered });
    expect(checks.find(({ code }) => code === 'Answer')).toMatchObject({
      state: 'ok',
      text: expect.stringMatching(/, unchanged: /),
    });
  });
});

it('what sends and is not declared is a warning of Consumers, by the catalogue and by held pods', async () => {
  const route = {
    apiVersion: 'route.openshift.io/v1',
    kind: 'Route',
    metadata: { name: 'web', namespace: 'shop' },
    spec: { to: { kind: 'Service', name: 'web' } },
  };
  const own = { metadata: { name: 'openshift-router' }, spec: { measure: { declared: { lag: '5s' } } } };
  const declared = { apiVersion: 'linger.dev/v1alpha1', kind: 'DiscoveryConsumer', ...own };
  const witnessed = new Map([['10.0.3.7 (proxies/old-nginx-1 of Deployment/old-nginx)', { pods: 2 }]]);
  const sayingOf = async (objects: readonly unknown[], of: typeof witnessed) => {
    const senders = async () => ({ discovered: discover(objects, 'default'), witnessed: of });
    return worthSaying(await check({}, { senders }));
  };
  expect(await sayingOf([route], witnessed)).toEqual([
    'warning Consumers: openshift-router (Route shop/web) sends to shop/web and is not declared: no wait covers its lag',
    'warning Consumers: 10.0.3.7 (proxies/old-nginx-1 of Deployment/old-nginx) sends and is not declared: 2 held pods got connections from it after every known consumer had stopped',
  ]);
  expect(await sayingOf([route, declared], new Map())).toEqual([]);
});

it('a declared consumer that has sent to no held pod in a week is a warning', async () => {
  const unseen = { since: NOW.getTime() / 1000 - 8 * 86_400, pods: 40 };
  const changed = consumersMap(['edge', 'True', 'Measured', { unseen }]);
  expect(worthSaying(await check({ [CONSUMERS]: changed }))).toEqual([
    'warning Consumers: edge is declared and has sent to no held pod in 7 days',
  ]);
});

/** All but what is ok, and what a case is about. */
const worthSaying = (checks: readonly Check[]) =>
  checks.filter(({ state }) => state !== 'ok').map(({ code, state, text }) => `${state} ${code}: ${text}`);

describe('where all is well', () => {
  it('each line is ok, before an installation and afterwards', async () => {
    for (const pre of [true, false]) expect(worthSaying(await check({}, { pre }))).toEqual([]);
  });

  it('what is to be said is said', async () => {
    const texts = new Map((await check({}, { wantingHold: [] })).map(({ code, text }) => [code, text]));
    expect(texts.get('Kubelets')).toBe('2 nodes with kubelet v1.36.3');
    expect(texts.get('Replicas')).toBe('2 of 2 ready, on one, two');
    expect(texts.get('Certificate')).toMatch(
      /^the certificate in Secret linger\/linger-certificates is trusted and valid for /,
    );
    expect(worthSaying(await check({ [LEASE]: lease('x_1f', 1) }))).toContainEqual(
      expect.stringMatching(/^warning Leader: x_1f leads, .*, but is not a pod of this installation$/),
    );
    expect(texts.get('Leader')).toMatch(/^a_1f, renewed 1(\.\d)? s ago by its clock$/);
    expect(texts.get('Canary')).toBe('flips: 14 Measured');
    expect(texts.get('Answer')).toMatch(
      /^a pod in namespace default came back from Linger after .*, unchanged/,
    );
    const inForce = 'policies: 1 from files, 1 from the cluster, all valid; mode of pods in default: Audit';
    expect(texts.get('Policies')).toBe(`${inForce} (ClusterTerminationPolicy/base)`);
    const args = ['--certs-secret=linger-certificates', '--mode-limit=Audit'];
    const limited = {
      [DEPLOYMENT]: flagged(...args),
    };
    expect((await check(limited)).find(({ code }) => code === 'Policies')?.text).toMatch(
      /--mode-limit=Audit$/,
    );
  });
});

type Row = [what: string, changes: () => Answers, expected: RegExp, asked?: Asked];
const expectOnly = async (changes: Answers, expected: RegExp, asked?: Asked) => {
  const said = worthSaying(await check(changes, asked));
  expect(said).toEqual([expect.stringMatching(expected)]);
};

describe('before an installation', () => {
  const FORBIDDEN = refused(403, 'nodes is forbidden');
  it.each<Row>([
    [
      'an API server that is too old',
      () => ({ '/version': well({ gitVersion: 'v1.27.3' }) }),
      /^failure ApiServer: .*v1\.27\.3: Linger needs Kubernetes 1\.32 or newer/,
    ],
    [
      'one of a distribution that is a minor version too old',
      () => ({ '/version': well({ gitVersion: 'v1.31.13-gke.1200', minor: '31+' }) }),
      /^failure ApiServer: .*v1\.31\.13-gke\.1200: Linger needs Kubernetes 1\.32 or newer/,
    ],
    [
      'one that does not say its version',
      () => ({ '/version': well({ major: '1', minor: '33+' }) }),
      /^unknown ApiServer: .* answers, and does not say which Kubernetes it is: its version is undefined$/,
    ],
    [
      'an old kubelet',
      () => ({ [NODES]: items(node('one'), node('old', 'v1.29.1')) }),
      /^warning Kubelets: .*1 node older than 1\.30 \(old\)/,
    ],
    ['no node', () => ({ [NODES]: items() }), /^warning Kubelets: the cluster has no node/],
    ['no right to see nodes', () => ({ [NODES]: FORBIDDEN }), /^unknown Kubelets: could not be checked: 403/],
    [
      'the gate of the native sleep is off',
      () => ({
        [TRY_OWN]: refused(422, 'Pod "x" is invalid: preStop: Required value: must specify a handler type'),
      }),
      /^warning Admission: the API server drops the native sleep/,
    ],
    [
      'a policy refuses Linger’s pods',
      () => ({ [TRY_OWN]: refused(403, 'admission webhook "v.example" denied the request: no') }),
      /^failure Admission: .*rejected in namespace linger: 403: admission webhook "v\.example" denied the request: no$/,
    ],
    [
      'a quota that asks for a limit which Linger does not have',
      () => ({
        [TRY_OWN]: (asked: string) => {
          const { resources } = (JSON.parse(asked) as { spec: { containers: { resources: Json }[] } }).spec
            .containers[0]!;
          expect(resources).toEqual(deploymentContainer.resources);
          return refused(403, 'pods "x" is forbidden: failed quota: all: must specify limits.cpu for: app');
        },
      }),
      /^failure Admission: .*rejected in namespace linger: 403: .*must specify limits\.cpu for: app$/,
    ],
    [
      'a policy of the namespace that is asked about takes hooks out',
      () => ({ [TRY]: tried(hooked(undefined)) }),
      /^warning Admission: a pod in namespace default comes back from admission without its hook: another webhook/,
    ],
    [
      'and one that refuses hooks there',
      () => ({ [TRY]: refused(403, 'admission webhook "v.example" denied the request: no hooks') }),
      /^warning Admission: a pod with a hook of Linger’s is rejected in namespace default: 403: .*no hooks$/,
    ],
    [
      'a policy cuts graces',
      () => ({ [TRY_OWN]: tried(hooked(5, 50)) }),
      /^warning Admission: .*with a grace of 50 s instead of 90 s/,
    ],
    [
      'a policy takes hooks out',
      () => ({ [TRY_OWN]: tried(hooked(undefined)) }),
      /^warning Admission: .*without its hook/,
    ],
    [
      'a Linger in another namespace, from which an installation would take the webhook',
      () => ({ [OWN_HOOK]: own({ clientConfig: { service: { namespace: 'tools' } } }) }),
      /^failure Webhook: linger points at namespace tools: an installation in namespace linger takes over its webhook/,
    ],
    [
      'a webhook configuration of that name that is not led by a Service',
      () => ({ [OWN_HOOK]: own({ clientConfig: { url: 'https://x' } }) }),
      /^failure Webhook: linger points at no Service: /,
    ],
    [
      'a webhook that can keep replicas out',
      () => ({ [VALIDATING]: items(foreign('strict')), [slicesOf('strict')]: items({ endpoints: [{}] }) }),
      /^warning OtherWebhooks: pods\.strict of ValidatingWebhookConfiguration strict fails closed and is called for pods of namespace linger: while it is down/,
    ],
    [
      'a webhook that keeps them out now',
      () => ({
        [VALIDATING]: items(foreign('strict')),
        [slicesOf('strict')]: items({ endpoints: [{ conditions: { ready: false } }] }),
      }),
      /^failure OtherWebhooks: .*its Service other\/strict has no ready endpoint/,
    ],
  ])('%s', async (_, changes, expected) => {
    await expectOnly(changes(), expected, { pre: true });
  });

  it.each([
    [
      'leaves out Linger’s namespace',
      {
        namespaceSelector: {
          matchExpressions: [{ key: 'app.kubernetes.io/name', operator: 'NotIn', values: ['linger'] }],
        },
      },
    ],
    ['fails open', { failurePolicy: 'Ignore' }],
    ['is asked about other kinds', { rules: [{ apiGroups: ['apps'], resources: ['*'], operations: ['*'] }] }],
  ])('a webhook that %s is none to speak of', async (_, more) => {
    expect(worthSaying(await check({ [VALIDATING]: items(foreign('meek', more)) }, { pre: true }))).toEqual(
      [],
    );
  });

  const MAPS = `${HOOKS}/mutatingadmissionpolicies?limit=250`;
  const BINDINGS = `${HOOKS}/mutatingadmissionpolicybindings?limit=250`;
  const map = (name: string, expression: string, more: Json = {}) => ({
    metadata: { name },
    spec: { reinvocationPolicy: 'IfNeeded', mutations: [{ jsonPatch: { expression } }], ...more },
  });
  const boundTo = (policyName: string, more: Json = {}) => ({
    metadata: { name: policyName },
    spec: { policyName, ...more },
  });
  const covering = (...resources: readonly string[]) => ({
    resourceRules: [{ apiGroups: ['', 'apps'], apiVersions: ['v1'], operations: ['CREATE'], resources }],
  });
  const withParameters = { paramKind: { apiVersion: 'v1', kind: 'ConfigMap' } };
  const SERVED = well({
    resources: [
      { name: 'pods', kind: 'Pod', namespaced: true },
      { name: 'configmaps', kind: 'ConfigMap', namespaced: true },
    ],
  });
  const proxied = (name: string) => `/api/v1/namespaces/other/services/https:${name}:443/proxy`;
  const lenient = { failurePolicy: 'Ignore', sideEffects: 'None' };
  const patching = (...operations: readonly Json[]) =>
    well({ response: { patch: encoded(JSON.stringify(operations)) } });
  const NO_HOOK = { [TRY]: tried(hooked(undefined)) };
  const takers = { [MUTATING]: items(foreign('taker', lenient), foreign('other', lenient)) };
  const REMOVES = patching({ op: 'remove', path: '/spec/containers/0/lifecycle' });

  it.each<[what: string, changes: Answers, by: string]>([
    [
      'a MutatingAdmissionPolicy that is bound',
      {
        ...NO_HOOK,
        ...takers,
        [MAPS]: items(map('idle', 'lifecycle'), map('hygiene', 'preStop'), map('labels', 'metadata')),
        [BINDINGS]: items(boundTo('hygiene'), boundTo('labels')),
      },
      'MutatingAdmissionPolicy hygiene changes it',
    ],
    [
      'a MutatingAdmissionPolicy, beside a webhook that does it, too',
      {
        ...NO_HOOK,
        ...takers,
        [proxied('taker')]: REMOVES,
        [MAPS]: items(map('hygiene', 'preStop')),
        [BINDINGS]: items(boundTo('hygiene')),
      },
      'one of these changes it: MutatingAdmissionPolicy hygiene, MutatingWebhookConfiguration taker',
    ],
    [
      'a MutatingAdmissionPolicy whose conditions may not hold, beside a webhook that cannot be asked',
      {
        ...NO_HOOK,
        [MUTATING]: items(foreign('other', lenient)),
        [MAPS]: items(map('hygiene', 'preStop', { matchConditions: [{ expression: 'x' }] })),
        [BINDINGS]: items(boundTo('hygiene')),
      },
      'one of these changes it: MutatingAdmissionPolicy hygiene, MutatingWebhookConfiguration other',
    ],
    [
      'no policy that is about other objects or only labels pods',
      {
        ...NO_HOOK,
        ...takers,
        [proxied('taker')]: REMOVES,
        [MAPS]: items(
          map('templates', 'lifecycle', { matchConstraints: covering('deployments') }),
          map('spot', '"/metadata/labels/example.com~1lifecycle"'),
          map('nodes', '{"lifecycle": "spot"}'),
        ),
        [BINDINGS]: items(boundTo('templates'), boundTo('spot'), boundTo('nodes')),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'no policy whose binding is for other namespaces, other objects or without its parameters',
      {
        ...NO_HOOK,
        ...takers,
        [proxied('taker')]: REMOVES,
        '/api/v1': SERVED,
        [MAPS]: items(
          map('elsewhere', 'preStop'),
          map('templates', 'preStop'),
          map('excluding', 'preStop'),
          map('unset', 'preStop', withParameters),
        ),
        [BINDINGS]: items(
          boundTo('elsewhere', { matchResources: { namespaceSelector: { matchLabels: { team: 'x' } } } }),
          boundTo('templates', { matchResources: covering('deployments') }),
          boundTo('excluding', {
            matchResources: { excludeResourceRules: covering('pods').resourceRules },
          }),
          boundTo('unset', { paramRef: { name: 'limits', parameterNotFoundAction: 'Allow' } }),
        ),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'a policy whose binding selects this pod and has its parameters',
      {
        ...NO_HOOK,
        '/api/v1': SERVED,
        '/api/v1/namespaces/default/configmaps/limits': well({ metadata: { name: 'limits' } }),
        [MAPS]: items(map('set', 'preStop', { ...withParameters, matchConstraints: covering('pods') })),
        [BINDINGS]: items(
          boundTo('set', {
            paramRef: { name: 'limits', parameterNotFoundAction: 'Allow' },
            matchResources: {
              namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'default' } },
            },
          }),
        ),
      },
      'MutatingAdmissionPolicy set changes it',
    ],
    [
      'no webhook that answers that it leaves the pod alone, or that spares pods with a plan',
      {
        ...NO_HOOK,
        [proxied('other')]: patching(),
        [MUTATING]: items(
          foreign('other', lenient),
          foreign('sparing', {
            ...lenient,
            matchConditions: [
              { name: 'a', expression: "!('linger.dev/plan' in object.metadata.annotations)" },
            ],
          }),
          foreign('taker', { ...lenient, sideEffects: 'Some' }),
        ),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'no webhook that gives a sidecar its own hook, or the pod a label of that name',
      {
        ...NO_HOOK,
        ...takers,
        [proxied('taker')]: REMOVES,
        [proxied('other')]: patching(
          { op: 'add', path: '/spec/containers/0', value: { name: 'proxy', lifecycle: { preStop: {} } } },
          { op: 'add', path: '/spec/containers/1/lifecycle/postStart', value: {} },
          { op: 'add', path: '/metadata/labels/lifecycle', value: 'spot' },
        ),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'no rule that excludes the namespace, is for Deployments or updates, or changes what is there already',
      {
        ...NO_HOOK,
        [proxied('taker')]: REMOVES,
        [proxied('kyverno')]: patching(),
        [MUTATING]: items(
          foreign('taker', lenient),
          foreign('kyverno', {
            ...lenient,
            name: 'mutate.kyverno.svc-ignore',
            reinvocationPolicy: 'IfNeeded',
          }),
        ),
        '/apis/kyverno.io/v1/clusterpolicies?limit=250': items(
          ...[
            { exclude: { any: [{ resources: { namespaces: ['def*', 'kube-system'] } }] } },
            { match: { any: [{ resources: { kinds: ['apps/v1/Deployment'] } }] } },
            { match: { any: [{ resources: { kinds: ['Pod'], operations: ['UPDATE'] } }] } },
            { mutate: { targets: [{ kind: 'Pod' }], patchStrategicMerge: { lifecycle: null } } },
          ].map((rule, index) => ({
            metadata: { name: `rule-${index}` },
            spec: { rules: [{ mutate: { patchStrategicMerge: { lifecycle: null } }, ...rule }] },
          })),
        ),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'no policy of Kyverno that is for existing objects only',
      {
        ...NO_HOOK,
        [proxied('taker')]: REMOVES,
        [proxied('kyverno')]: patching(),
        [MUTATING]: items(
          foreign('taker', lenient),
          ...['mutate.kyverno.svc-ignore', 'mpol.validate.kyverno.svc-ignore'].map((name) =>
            foreign('kyverno', { ...lenient, name, reinvocationPolicy: 'IfNeeded' }),
          ),
        ),
        '/apis/kyverno.io/v1/clusterpolicies?limit=250': items({
          metadata: { name: 'background' },
          spec: { admission: false, rules: [{ mutate: { patchStrategicMerge: { lifecycle: null } } }] },
        }),
        '/apis/policies.kyverno.io/v1/mutatingpolicies?limit=250': items({
          metadata: { name: 'existing' },
          spec: {
            evaluation: { admission: { enabled: false }, mutateExisting: { enabled: true } },
            mutations: [{ patchType: 'JSONPatch', jsonPatch: { expression: 'lifecycle' } }],
          },
        }),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'a policy whose webhook selects the namespace, which may not be read',
      {
        ...NO_HOOK,
        '/api/v1/namespaces/default': refused(403, 'no'),
        [MUTATING]: items(
          foreign('kyverno', {
            ...lenient,
            name: 'mutate.kyverno.svc-ignore',
            reinvocationPolicy: 'IfNeeded',
            namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'default' } },
          }),
        ),
        '/apis/kyverno.io/v1/clusterpolicies?limit=250': items({
          metadata: { name: 'hygiene' },
          spec: { rules: [{ mutate: { patchStrategicMerge: { lifecycle: null } } }] },
        }),
      },
      'ClusterPolicy hygiene changes it',
    ],
    [
      'no policy of an engine that is not there',
      {
        ...NO_HOOK,
        [MUTATING]: items(foreign('taker', lenient)),
        '/apis/kyverno.io/v1/clusterpolicies?limit=250': items({
          metadata: { name: 'left' },
          spec: { rules: [{ mutate: { patchStrategicMerge: { lifecycle: null } } }] },
        }),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'a webhook whose own answer takes it',
      { ...NO_HOOK, ...takers, [proxied('taker')]: REMOVES, [proxied('other')]: patching() },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'a webhook that replaces the container',
      {
        ...NO_HOOK,
        ...takers,
        [proxied('taker')]: patching({ op: 'replace', path: '/spec/containers/0', value: { name: 'app' } }),
        [proxied('other')]: patching({
          op: 'replace',
          path: '/spec/containers/0',
          value: { name: 'app', lifecycle: { preStop: { sleep: { seconds: 5 } } } },
        }),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'webhooks that do not answer',
      { ...NO_HOOK, ...takers },
      'one of these changes it: MutatingWebhookConfiguration taker, MutatingWebhookConfiguration other',
    ],
    [
      'the only one that is called',
      {
        ...NO_HOOK,
        [MUTATING]: items(
          foreign('taker', lenient),
          foreign('elsewhere', { ...lenient, objectSelector: { matchLabels: { not: 'there' } } }),
        ),
      },
      'MutatingWebhookConfiguration taker changes it',
    ],
    [
      'what cuts a grace',
      {
        [TRY]: tried(hooked(5, 50)),
        ...takers,
        [proxied('taker')]: REMOVES,
        [proxied('other')]: patching({ op: 'add', path: '/spec/terminationGracePeriodSeconds', value: 50 }),
      },
      'MutatingWebhookConfiguration other changes it',
    ],
  ])('names what undoes it: %s', async (_what, changes, by) => {
    const said = (await check(changes, { pre: true })).filter(({ code }) => code === 'Admission');
    const [, line] = said;
    expect(`${line?.state} ${line?.text}`).toMatch(
      new RegExp(`^warning .* comes back from admission with.*: ${by}$`),
    );
  });

  const CUT = { [TRY]: tried(hooked(5, 50)) };
  const ASSIGNS = '/apis/mutations.gatekeeper.sh/v1/assign?limit=250';
  const assign = { metadata: { name: 'grace' }, spec: { location: 'spec.terminationGracePeriodSeconds' } };
  const gatekeeper = (name: string, more: Json = {}) =>
    foreign(name, { ...lenient, name: 'mutation.gatekeeper.sh', ...more });
  const SETS = patching({ op: 'replace', path: '/spec/terminationGracePeriodSeconds', value: 50 });
  const EARLIER = /^ok .* with a grace of 50 s instead of 90 s: what changes it comes before Linger$/;

  it.each<[what: string, changes: Answers, says: RegExp]>([
    ['a policy', { [ASSIGNS]: items(assign), [MUTATING]: items(gatekeeper('gatekeeper')) }, EARLIER],
    [
      'a policy, beside a later webhook that leaves the pod alone',
      {
        [ASSIGNS]: items(assign),
        [MUTATING]: items(gatekeeper('gatekeeper'), foreign('other', lenient)),
        [proxied('other')]: patching(),
      },
      EARLIER,
    ],
    [
      'a policy whose webhook is asked again',
      {
        [ASSIGNS]: items(assign),
        [MUTATING]: items(gatekeeper('gatekeeper', { reinvocationPolicy: 'IfNeeded' })),
      },
      /^warning .*: Assign grace changes it$/,
    ],
    [
      'a policy whose webhook comes later',
      { [ASSIGNS]: items(assign), [MUTATING]: items(gatekeeper('zz')) },
      /^warning .*: Assign grace changes it$/,
    ],
    ['all webhooks', { [MUTATING]: items(foreign('a', lenient), foreign('b', lenient)) }, EARLIER],
    [
      'the webhook whose own answer says so',
      {
        [MUTATING]: items(foreign('a', lenient), foreign('other', lenient)),
        [proxied('a')]: SETS,
        [proxied('other')]: patching(),
      },
      EARLIER,
    ],
    [
      'a webhook that may be innocent',
      { [MUTATING]: items(foreign('a', lenient), foreign('other', lenient)) },
      /^warning .*: MutatingWebhookConfiguration other changes it$/,
    ],
    [
      'one of two webhooks that set it',
      {
        [MUTATING]: items(foreign('a', lenient), foreign('other', lenient)),
        [proxied('a')]: SETS,
        [proxied('other')]: SETS,
      },
      /^warning .*: MutatingWebhookConfiguration other changes it$/,
    ],
  ])('what comes before Linger undoes nothing: %s', async (_what, changes, says) => {
    const said = (await check({ ...CUT, ...changes }, { pre: true })).filter(
      ({ code }) => code === 'Admission',
    );
    const [, line] = said;
    expect(`${line?.state} ${line?.text}`).toMatch(says);
  });

  it('takes no raised grace and no container that is put in front for a loss', async () => {
    const { spec } = hooked(5, 120);
    const injected = { spec: { ...spec, containers: [{ name: 'istio-proxy' }, ...spec.containers] } };
    expect(worthSaying(await check({ [TRY]: tried(injected) }, { pre: true }))).toEqual([]);
  });

  it('says which webhooks are asked after Linger', async () => {
    const changes = {
      [MUTATING]: items(
        foreign('a-first', { failurePolicy: 'Ignore' }),
        foreign('mesh', { failurePolicy: 'Ignore' }),
      ),
    };
    const texts = (await check(changes, { pre: true })).filter(({ code }) => code === 'OtherWebhooks');
    expect(texts.map(({ state, text }) => `${state} ${text}`)).toEqual([
      expect.stringMatching(/^ok called after Linger: mesh\./),
    ]);
  });

  it('has nothing against a cluster without Linger', async () => {
    const none = { [OWN_HOOK]: refused(404, 'not found') };
    const checks = await check(none, { pre: true });
    expect(worthSaying(checks)).toEqual([]);
    expect(checks.find(({ code }) => code === 'Webhook')?.text).toMatch(
      /^there is no Mutating.* linger yet$/,
    );
  });

  it('tries its pod elsewhere while there is no namespace, and says so', async () => {
    const gone = { '/api/v1/namespaces/linger': refused(404, 'not found'), [TRY]: tried(hooked(5)) };
    const [line] = (await check(gone, { pre: true })).filter(({ code }) => code === 'Admission');
    expect(line).toMatchObject({
      state: 'ok',
      text: expect.stringContaining('namespace default (namespace linger does not exist yet)'),
    });
  });

  it.each([
    'pods "x" is forbidden: exceeded quota: all, requested: pods=1, used: pods=9, limited: pods=9',
    'pods "x" is forbidden: [minimum memory usage per Container is 100Mi, but request is 16Mi]',
  ])('blames no quota or limit there: %s', async (message) => {
    const gone = { '/api/v1/namespaces/linger': refused(404, 'not found'), [TRY]: refused(403, message) };
    const [line] = (await check(gone, { pre: true })).filter(({ code }) => code === 'Admission');
    expect(line).toMatchObject({ state: 'unknown', cure: 'Name another namespace with --namespace.' });
  });

  it('warns of a webhook whose endpoints may not be listed', async () => {
    const changes = { [VALIDATING]: items(foreign('strict')), [slicesOf('strict')]: refused(403, 'no') };
    expect(worthSaying(await check(changes, { pre: true }))).toEqual([
      expect.stringMatching(/^warning OtherWebhooks: .*while it is down/),
    ]);
  });

  it('says when an old kubelet changes the hook', async () => {
    const old = await check({ [NODES]: items(node('old', 'v1.29.1')) }, { pre: true });
    const cure = old.find(({ code }) => code === 'Kubelets')?.cure;
    expect(cure).toContain(`for ${FLEET_SETTLE_SECONDS / 60} minutes, hook: Auto means Exec`);
  });

  it('names the rights that are missing', async () => {
    const said = worthSaying(await check({ [REVIEW]: well({ status: { allowed: false } }) }, { pre: true }));
    expect(said).toEqual([
      expect.stringMatching(
        /^failure Rights: .*create clusterroles\.rbac\.authorization\.k8s\.io.*patch configmaps/,
      ),
    ]);
  });

  it('asks for rights to all that deploy/ has', () => {
    const { resources } = parse(read('kustomization.yaml')) as { resources: readonly string[] };
    const kinds = resources.flatMap((file) =>
      parseAllDocuments(read(file)).map((document) => {
        const { apiVersion, kind } = document.toJS() as { apiVersion: string; kind: string };
        const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : '';
        const plural = kind.toLowerCase().replace(/y$/, 'ie').replace(/ss$/, 'sse');
        return `${group}/${plural}s`;
      }),
    );
    expect(
      [
        ...new Set(accessesToInstall('linger').map(({ group, resource }) => `${group}/${resource}`)),
      ].toSorted(),
    ).toEqual([...new Set(kinds)].toSorted());
  });

  it.each(['v1.32.0', 'v1.33.5-gke.1200', 'v1.34.1+k3s1', 'v1.35.0-eks-abcdef', 'v1.37.0-rc.1'])(
    'takes %s for new enough',
    async (gitVersion) => {
      const checks = await check({ '/version': well({ gitVersion }) }, { pre: true });
      expect(checks[0]).toMatchObject({ code: 'ApiServer', state: 'ok' });
    },
  );

  it('says no more where the API server cannot be asked', async () => {
    const said = await check({ '/version': refused(503, 'not\nnow') }, { pre: true });
    expect(said.map(({ code, state, text }) => [code, state, text])).toEqual([
      ['ApiServer', 'failure', expect.stringMatching(/^http:.*: 503: not now$/)],
    ]);
  });
});

describe('afterwards', () => {
  const CLOSED = { failurePolicy: 'Fail' };
  const OPEN_TO_ITSELF = { namespaceSelector: {}, objectSelector: {} };
  it.each<Row>([
    [
      'no CRDs',
      () => ({ '/apis/linger.dev/v1alpha1': refused(404, 'not found') }),
      /^warning CustomResources: not served: clusterterm/,
    ],
    [
      'a webhook that leads elsewhere',
      () => ({
        [OWN_HOOK]: own({ clientConfig: { service: { namespace: 'old' }, caBundle: encoded(caBundle) } }),
      }),
      /^failure Webhook: linger points at namespace old/,
    ],
    [
      'a webhook whose Service is not there',
      () => ({ [SERVICE]: refused(404, 'not found') }),
      /^failure Webhook: linger points at Service linger\/linger, which does not exist/,
    ],
    [
      'a webhook that calls a port that its Service does not have',
      () => ({ [SERVICE]: service(8443) }),
      /^failure Webhook: linger calls port 443 of Service linger\/linger, which has 8443/,
    ],
    [
      'a Service that leads to no replica, though the API server still has its connections',
      () => ({ [slicesOf('linger', 'linger')]: items({ endpoints: [{ conditions: { ready: false } }] }) }),
      /^failure Webhook: Service linger\/linger has no ready endpoint .* it selects {"app":"linger"}/,
    ],
    [
      'a webhook that is asked about no namespace',
      () => ({
        [OWN_HOOK]: own({ namespaceSelector: { matchLabels: { linger: 'yes' } } }),
        '/api/v1/namespaces/default': well({ metadata: { labels: { linger: 'yes' } } }),
      }),
      /^failure Webhook: the namespaceSelector of linger matches no namespace/,
    ],
    [
      'no right to ask for the rights of others',
      () => ({ [REVIEW_OF_OTHERS]: refused(403, 'forbidden') }),
      /^unknown Rights: could not be checked: 403/,
    ],
    [
      'a webhook that is asked about its own pods',
      () => ({ [OWN_HOOK]: own(OPEN_TO_ITSELF) }),
      /^warning Webhook: linger is called for Linger’s own pods/,
    ],
    [
      'and fails closed',
      () => ({
        [OWN_HOOK]: own({ ...OPEN_TO_ITSELF, ...CLOSED, matchConditions: closing }),
      }),
      /^failure Webhook: linger is called for Linger’s own pods/,
    ],
    [
      'a webhook that fails closed for a CNI',
      () => ({ [OWN_HOOK]: own(CLOSED) }),
      /^failure Webhook: linger fails closed and is called for DaemonSets/,
    ],
    [
      'a webhook without its conditions',
      () => ({ [OWN_HOOK]: own({ matchConditions: [] }) }),
      /^warning Webhook: linger has no matchConditions/,
    ],
    [
      'an empty caBundle',
      () => ({ [OWN_HOOK]: own({ clientConfig: { service: { namespace: 'linger' } } }) }),
      /^failure Certificate: the webhook configuration has no caBundle/,
    ],
    [
      'no right to read the Secret',
      () => ({ [SECRET]: refused(403, 'forbidden') }),
      /^unknown Certificate: could not be checked/,
    ],
    [
      'no Secret',
      () => ({ [SECRET]: refused(404, 'not found') }),
      /^failure Certificate: there is no Secret linger\/linger-certificates/,
    ],
    [
      'a Secret that holds nothing',
      () => ({ [SECRET]: secret('nothing') }),
      /^failure Certificate: .* cannot be parsed/,
    ],
    [
      'a certificate that has expired',
      () => ({}),
      /^failure Certificate: .* expired on /,
      { now: new Date(NOW.getTime() + 400 * DAY_MS) },
    ],
    [
      'a certificate that is due',
      () => ({}),
      /^warning Certificate: .*is overdue for renewal; valid for /,
      { now: new Date(NOW.getTime() + 280 * DAY_MS) },
    ],
    [
      'one replica of two',
      () => ({ [PODS]: items(replica('a', 'one'), replica('b', 'two', false)) }),
      /^warning Replicas: 1 of 2 ready, on one; b: ImagePullBackOff: no such image$/,
    ],
    [
      'an update that is stuck',
      () => ({ [PODS]: items(replica('a', 'one'), replica('b', 'two'), replica('c', 'two', false)) }),
      /^warning Replicas: 2 of 2 ready, on one, two, but an update is stuck; c: ImagePullBackOff: no such image$/,
    ],
    [
      'both on one node',
      () => ({ [PODS]: items(replica('a', 'one'), replica('b', 'one')) }),
      /^warning Replicas: 2 of 2 ready, on one alone/,
    ],
    [
      'a hook that another takes out',
      () => ({
        [TRY]: tried({ metadata: { annotations: { 'linger.dev/plan': '{}' } }, ...hooked(undefined) }),
      }),
      /^failure Answer: .*has Linger’s plan but no hook: another webhook or a policy changes it/,
    ],
    [
      'a hook that another takes out, beside a container with its own',
      () => {
        const { spec } = hooked(undefined);
        const proxy = { name: 'proxy', lifecycle: { preStop: { exec: { command: ['drain'] } } } };
        return {
          [TRY]: tried({
            metadata: { annotations: { 'linger.dev/plan': '{}' } },
            spec: { ...spec, containers: [...spec.containers, proxy] },
          }),
        };
      },
      /^failure Answer: .*has Linger’s plan but no hook/,
    ],
    [
      'an answer that never came',
      () => ({ [TRY]: tried({}), [PROXY]: refused(405, 'only POST is served here') }),
      /^failure Answer: .*without an answer from Linger; its Service is reachable, so suspect the certificate/,
    ],
    [
      'an answer that never came, while the floor gives pods a wait',
      () => ({
        [TRY]: tried({
          metadata: {
            annotations: {
              'linger.dev/plan':
                '{"v":1,"by":"floor","wait":5,"grace":95,"baseGrace":90,"hook":"Sleep","containers":["app"]}',
            },
          },
          ...hooked(5, 95),
        }),
        [PROXY]: refused(405, 'only POST is served here'),
      }),
      /^failure Answer: .*without an answer from Linger, with the wait of the floor; its Service is reachable/,
    ],
    [
      'and no way either',
      () => ({ [TRY]: tried({}), [PROXY]: refused(503, 'no endpoints available') }),
      /^failure Answer: .*; its Service is not reachable through the API server: 503: no endpoints available$/,
    ],
    [
      'pods that are refused',
      () => ({ [TRY]: refused(500, 'failed calling webhook "pods.linger.dev": no') }),
      /^failure Answer: Linger cannot be reached, and pods are rejected/,
    ],
    [
      'a namespace with a policy of its own',
      () => ({ [TRY]: refused(403, 'pods "x" is forbidden: exceeded quota') }),
      /^unknown Answer: the dry run of a pod was rejected in namespace default: 403: .*exceeded quota$/,
    ],
    [
      'no right to create pods',
      () => ({ [TRY]: refused(403, 'pods is forbidden: User "me" cannot create resource "pods"') }),
      /^unknown Answer: could not be checked: 403/,
    ],
    [
      'a webhook that knows no dry runs',
      () => ({ [TRY]: refused(400, 'admission webhook "x" does not support dry run') }),
      /^unknown Answer: the dry run of a pod was rejected/,
    ],
    [
      'a namespace that opts out',
      () => ({
        '/api/v1/namespaces/default': well({ metadata: { labels: { 'linger.dev/inject': 'false' } } }),
      }),
      /^unknown Answer: the selectors of the webhook exclude namespace default, so Linger is not called there$/,
    ],
    [
      'a NetworkPolicy that shuts API servers out',
      () => ({
        [NETWORK]: items({ metadata: { name: 'deny' }, spec: { podSelector: {}, policyTypes: ['Ingress'] } }),
      }),
      /^failure NetworkPolicy: NetworkPolicy deny blocks port 8443: no API server/,
    ],
    [
      'a NetworkPolicy that opens another port than the one of the Deployment',
      () => ({
        [DEPLOYMENT]: flagged('--port=9443'),
        [NETWORK]: items({
          metadata: { name: 'usual' },
          spec: { podSelector: {}, policyTypes: ['Ingress'], ingress: [{ ports: [{ port: 8443 }] }] },
        }),
      }),
      /^failure NetworkPolicy: NetworkPolicy usual blocks port 9443/,
    ],
    [
      'one that shuts Linger in',
      () => ({
        [NETWORK]: items({
          metadata: { name: 'shut' },
          spec: {
            podSelector: {},
            policyTypes: ['Egress'],
            egress: [{ ports: [{ port: 53, protocol: 'UDP' }] }],
          },
        }),
      }),
      /^failure NetworkPolicy: NetworkPolicy shut blocks egress to port 6443: replicas cannot call/,
    ],
    [
      'one that does not know the port of this cluster’s API servers',
      () => ({ [slicesOf('kubernetes', 'default')]: items({ ports: [{ name: 'https', port: 16443 }] }) }),
      /^failure NetworkPolicy: NetworkPolicy linger blocks egress to port 16443: replicas cannot call API servers$/,
    ],
    [
      'nor does the default where nobody may see that port',
      () => ({
        [slicesOf('kubernetes', 'default')]: refused(403, 'forbidden'),
        [NETWORK]: items({
          metadata: { name: 'shut' },
          spec: { podSelector: {}, policyTypes: ['Egress'], egress: [{ ports: [{ port: 8443 }] }] },
        }),
      }),
      /^failure NetworkPolicy: NetworkPolicy shut blocks egress to port 443 or 6443: /,
    ],
    [
      'one that shuts helpers out',
      () => ({
        [NETWORK]: items({
          metadata: { name: 'tight' },
          spec: {
            podSelector: {},
            policyTypes: ['Ingress'],
            ingress: [{ ports: [{ port: 8443 }, { port: 'admin' }] }],
          },
        }),
      }),
      /^warning NetworkPolicy: NetworkPolicy tight blocks port 8445 \(hold\): hooks/,
    ],
    [
      'one that keeps helpers from getting out of their namespace',
      () => ({
        [HELPERS]: items({ metadata: { namespace: 'shop' } }, { metadata: { namespace: 'pay' } }),
        [EVERY_NETWORK]: items(
          egress('shop', 'deny', {}),
          egress('shop', 'web', { matchLabels: { app: 'web' } }, { ports: [{ port: 443 }] }),
          egress('pay', 'deny', {}),
          egress(
            'pay',
            'linger',
            {},
            {
              to: [{ namespaceSelector: { matchLabels: { 'app.kubernetes.io/name': 'linger' } } }],
              ports: [{ port: 8440, endPort: 8449 }],
            },
          ),
          egress('other', 'deny', {}),
        ),
      }),
      /^warning NetworkPolicy: NetworkPolicy shop\/deny, shop\/web blocks egress to port 8445 of namespace linger: hooks/,
      { wantingHold: ['shop', 'pay'] },
    ],
    [
      'a Service whose port is none of a container’s',
      () => ({
        [DEPLOYMENT]: ported([{ name: 'webhook', containerPort: 8443 }]),
        [SERVICES]: items(named('linger', 'webhook'), named('linger-hold', 'hold'), {
          metadata: { name: 'other' },
          spec: { selector: { app: 'other' }, ports: [{ port: 1 }] },
        }),
      }),
      /^warning Ports: port 1234 of Service linger\/linger-hold leads to hold, a port that no container/,
    ],
    [
      'a Service to a port where no replica listens',
      () => ({
        [DEPLOYMENT]: ported([{ name: 'webhook', containerPort: 8443 }], '--port=9443'),
        [NETWORK]: items(),
        [SERVICES]: items(named('linger', 'webhook'), {
          metadata: { name: 'of-another-program-there' },
          spec: { selector: { 'app.kubernetes.io/name': 'prometheus' }, ports: [{ port: 9090 }] },
        }),
      }),
      /^failure Ports: port 1234 of Service linger\/linger leads to 8443, where no replica listens \(by its flags: webhook 9443, /,
    ],
    [
      'a leader whose clock is ahead',
      () => ({ [LEASE]: lease('a_1f', -70) }),
      /^warning Leader: a_1f leads, and its clock is 70 s ahead of this machine’s/,
    ],
    [
      'policies that could not all be read',
      () => ({}),
      /^unknown HoldHelper: policies cannot all be read, so hook Hold may be in use: may not be listed$/,
      { policiesUnread: 'may not be listed' },
    ],
    ['no leader', () => ({ [LEASE]: refused(404, 'not found') }), /^warning Leader: no replica leads/],
    [
      'a Lease without an instant',
      () => ({ [LEASE]: well({ spec: { holderIdentity: 'a_1f' } }) }),
      /^warning Leader: a_1f holds the Lease, with no renewal time/,
    ],
    [
      'a leader that is gone',
      () => ({ [LEASE]: lease('a_1f', 600) }),
      /^warning Leader: a_1f holds the Lease, renewed 10 min ago/,
    ],
    [
      'a watch that is behind',
      () => ({ [statusOf('b')]: status(false) }),
      /^warning Watches: b: watch not current: pods$/,
    ],
    [
      'a consumer that nobody reaches',
      () => ({ [CONSUMERS]: consumersMap(['edge', 'False', 'Unreachable'], ['x', 'Unknown', 'Waiting']) }),
      /^warning Consumers: edge: Unreachable: Unreachable it is\.$/,
    ],
    [
      'nothing published',
      () => ({ [CONSUMERS]: refused(404, 'not found') }),
      /^warning Consumers: ConfigMap linger\/linger-consumers does not exist yet$/,
    ],
    [
      'a policy that is broken',
      () => ({ [CLUSTER_POLICIES]: items(policy('base', 'False', 'Invalid')) }),
      /^warning Policies: ClusterTerminationPolicy base is not in force: Invalid: /,
    ],
    [
      'a policy of a file that is broken',
      () => ({}),
      /^warning Policies: not in force: ConfigMap linger\/linger-policies a\.yaml:3: mode$/,
      { fileProblems: ['ConfigMap linger/linger-policies a.yaml:3: mode'] },
    ],
    [
      'policies of files that may not be looked at',
      () => ({}),
      /^unknown Policies: could not be checked: forbidden$/,
      { filesUnread: new KubeFailure('Forbidden', 'forbidden') },
    ],
    [
      'a namespace without the helper',
      () => ({ [HELPERS]: items({ metadata: { namespace: 'shop' } }) }),
      /^warning HoldHelper: ConfigMap linger-hold-\w+ is missing in 1 namespace \(team\): /,
      { wantingHold: ['shop', 'team'] },
    ],
    [
      'a helper that is being deleted',
      () => ({
        [HELPERS]: items({ metadata: { namespace: 'shop', deletionTimestamp: '2026-01-01T00:00:00Z' } }),
      }),
      /^warning HoldHelper: ConfigMap linger-hold-\w+ is being deleted in shop: once it is gone, /,
      { wantingHold: ['shop'] },
    ],
    [
      'Hold that cannot be had for another reason',
      () => ({ [HELPERS]: items({ metadata: { namespace: 'shop' } }) }),
      /^warning HoldHelper: pods get Sleep instead of Hold in shop: there is no helper for s390x \(node z\)$/,
      { wantingHold: ['shop'], noHold: 'there is no helper for s390x (node z)' },
    ],
    [
      'Hold that is asked for, and switched off, though its helper is still there',
      () => ({
        [DEPLOYMENT]: well({
          spec: { replicas: 2, template: { spec: { containers: [{ args: ['--hold-port=0'] }] } } },
        }),
        [HELPERS]: items({ metadata: { namespace: 'shop' } }),
      }),
      /^warning HoldHelper: Hold is off \(--hold-port=0\): pods that ask for Hold get Sleep, in shop$/,
      { wantingHold: ['shop'] },
    ],
    [
      'Hold without a Service',
      () => ({ [HOLD]: refused(404, 'not found'), [HELPERS]: items({ metadata: { namespace: 'shop' } }) }),
      /^warning HoldHelper: there is no Service linger\/linger-hold: /,
      { wantingHold: ['shop'] },
    ],
    [
      'pods that call an address which the Hold Service no longer has',
      () => ({ [statusOf('a')]: status(true, { unreached: 3 }) }),
      /^warning HoldHelper: 3 running pods with hook Hold call an address that the Hold Service no longer has/,
    ],
    [
      'replicas of an earlier version, which do not say whether pods call such an address',
      () => ({
        [statusOf('a')]: status(true, { held: 0, unreached: undefined }),
        [statusOf('b')]: status(true, { held: 0, unreached: undefined }),
      }),
      /^unknown HoldHelper: whether running pods call an address that the Hold Service no longer has is not known: /,
    ],
    [
      'policies that cannot be read',
      () => ({}),
      /^unknown HoldHelper: could not be checked: no policy there$/,
      { wantingHold: new LingerError('settings-invalid', 'no policy there') },
    ],
  ])('%s', async (_, changes, expected, asked) => {
    await expectOnly(changes(), expected, asked);
  });

  it.each([
    ['rbac.yaml', /^may list pods$/, /^failure Rights: .* may not list pods: watches fail/],
    ['rbac.yaml', /^may create events$/, /^warning Rights: .* may not create events: watches fail/],
    ['role-publish.yaml', / leases\./, /^failure Rights: .* may not get leases.coordination.k8s.io linger, /],
    ['role-pods.yaml', /^may (list|patch) pods in linger$/, /^warning Rights: .* patch pods: the canary/],
    ['role-certificates.yaml', /^may \w+ secrets /, /^failure Rights: .* get secrets linger-certificates, /],
    ['rbac-audit.yaml', / ingresses\./, /^warning Rights: .* may not list ingresses.networking.k8s.io: the/],
    ['rbac-hold.yaml', / linger-hold-test /, /^warning Rights: .* may not create pods linger-hold-test, /],
  ])('a ServiceAccount without what %s gives it: %s', async (manifest, missing, expected) => {
    const said = (await check({ [REVIEW_OF_OTHERS]: allowingAllBut(missing) })).filter(
      ({ state }) => state !== 'ok',
    );
    expect(said.map(({ code, state, text }) => `${state} ${code}: ${text}`)).toEqual([
      expect.stringMatching(expected),
    ]);
    expect(said[0]?.cure).toContain(`deploy/${manifest}`);
  });

  it('a leader that may no longer deliver the helper of Hold, though its role is there', async () => {
    const denied = {
      [REVIEW_OF_OTHERS]: allowingAllBut(/ linger-hold-[0-9a-f]{16}$/),
    };
    const role = '/apis/rbac.authorization.k8s.io/v1/clusterroles/linger-hold-delivery';
    const rights = async (changes: Answers) =>
      (await check(changes)).find(({ code }) => code === 'Rights')?.text;
    expect(await rights({ ...denied, [role]: well({}) })).toMatch(/may not .*create configmaps linger-hold-/);
    expect(await rights(denied)).not.toMatch(/create configmaps linger-hold-/);
  });

  it('asks for no right that the flags of the Deployment make superfluous', async () => {
    const args = ['--certs=/x', '--audit-every', '0', '--hold-port=0'];
    const changes = (flags: readonly string[], env: readonly object[] = []) => ({
      [DEPLOYMENT]: well({
        spec: { replicas: 2, template: { spec: { containers: [{ args: flags, env }] } } },
      }),
      [REVIEW_OF_OTHERS]: allowingAllBut(/ secrets |linger-hold|ingresses|policyreports/),
    });
    expect(worthSaying(await check(changes(args)))).toEqual([]);
    expect(
      worthSaying(await check(changes(args, [{ name: 'LINGER_POLICY_REPORTS', value: 'wgpolicyk8s.io' }]))),
    ).toEqual([
      expect.stringMatching(/^warning Rights: .* may not list policyreports.wgpolicyk8s.io linger, /),
    ]);
    expect(worthSaying(await check(changes([])))).toHaveLength(2);
  });

  it.each([true, false])('asks for exactly the rights that deploy/ gives; delivery: %s', (delivers) => {
    const flags = (group: string) => (name: string) =>
      ({ 'certs-secret': 'linger-certificates', 'policy-reports': group, 'delete-on-node-shutdown': '' })[
        name
      ];
    const installation = { namespace: 'linger', configuration: 'linger' };
    const asked = ['wgpolicyk8s.io', 'openreports.io'].flatMap((group) =>
      [...declaredRights(flags(group), installation, delivers)].flatMap(([manifest, accesses]) =>
        accesses.map((access) => inWords(manifest.replace('deploy/', ''), access)),
      ),
    );
    // Roles for people are no rights of replicas.
    const files = readdirSync(join(ROOT, 'deploy')).filter(
      (file) => /^(rbac|role)[\w-]*\.yaml$/.test(file) && file !== 'rbac-view.yaml',
    );
    const given = files.flatMap((file) => {
      const roles = parseAllDocuments(read(file)).map((each) => each.toJS() as RoleObject);
      // Not of users, nor what the leader does only for those who do not apply the helper themselves.
      const others = delivers ? /-policies-/ : /-policies-|-delivery$/;
      const ours = roles.filter(({ metadata: { name } }) => !others.test(name));
      return ours.flatMap(({ kind, rules = [] }) =>
        rules.flatMap(({ apiGroups, resources, resourceNames = [undefined], verbs }) =>
          apiGroups.flatMap((group) =>
            resources.flatMap((resource) =>
              resourceNames.flatMap((name) => {
                const place = kind === 'Role' ? { namespace: 'linger' } : {};
                const what = { group, resource, ...(name !== undefined && { name }), ...place };
                return verbs.map((verb) => inWords(file, { ...what, verb }));
              }),
            ),
          ),
        ),
      );
    });
    expect([...new Set(asked)].toSorted()).toEqual(given.toSorted());
  });

  it('says how to let pods in again, by the name of the configuration', async () => {
    const changes = {
      [`${HOOKS}/mutatingwebhookconfigurations/mine`]: own(),
      [TRY]: refused(500, 'failed calling webhook "pods.linger.dev": no'),
    };
    const checks = await check(changes, { configuration: 'mine' });
    expect(checks.find(({ code }) => code === 'Answer')?.cure).toMatch(
      /kubectl delete mutatingwebhookconfiguration mine\.$/,
    );
  });

  it('no replica: what keeps their pods out, and who cannot be asked', async () => {
    const message = 'failed calling webhook "v.example"';
    const status = { conditions: [{ type: 'ReplicaFailure', status: 'True', message }] };
    const said = worthSaying(
      await check({ [DEPLOYMENT]: well({ spec: { replicas: 2 }, status }), [PODS]: items() }),
    );
    expect(said).toEqual([
      `failure Replicas: 0 of 2 ready; ${message}`,
      'warning Leader: a_1f leads, renewed 1 s ago by its clock, but is not a pod of this installation',
      'unknown Watches: no replica is ready, so none can be asked',
      'unknown Canary: no replica is ready, so none can be asked',
    ]);
  });

  it('replicas are asked at the port of the Deployment', async () => {
    const at = (pod: string) => statusOf(pod).replace(':8080', ':9080');
    const metered = { [at('a')]: status(), [at('b')]: status(false) };
    const changes = { [DEPLOYMENT]: flagged('--admin-port=9080'), [NETWORK]: items(), ...metered };
    const said = worthSaying(await check(changes));
    expect(said).toEqual([expect.stringMatching(/^warning Watches: b: watch not current: pods$/)]);
  });

  it.each([
    [
      'may not be asked',
      refused(403, 'pods/proxy is forbidden'),
      /^Get the permission to get pods\/proxy in namespace linger/,
    ],
    ['answers something else', well('<html>'), /^Open port 8080 to API servers/],
  ])('a replica that %s: lines say so', async (_, answer, cure) => {
    const unknown = (await check({ [statusOf('a')]: answer })).filter(({ state }) => state === 'unknown');
    expect(unknown.map(({ code }) => code)).toEqual(['Watches', 'Canary']);
    for (const line of unknown) expect(line.cure).toMatch(cure);
  });

  it('a Secret of one’s own that is missing: what to do, beside the caBundle, and why replicas do not start', async () => {
    const volumes = [{ name: 'certs', secret: { secretName: 'my-tls' } }];
    const containers = [{ args: ['--certs=/etc/linger/certs'] }];
    const why = 'MountVolume.SetUp failed for volume "certs" : secret "my-tls" not found';
    const waiting = { reason: 'ContainerCreating' };
    const pod = { metadata: { name: 'a' }, status: { containerStatuses: [{ state: { waiting } }] } };
    const checks = await check({
      [DEPLOYMENT]: well({ spec: { replicas: 2, template: { spec: { containers, volumes } } } }),
      [OWN_HOOK]: own({ clientConfig: { service: { namespace: 'linger' } } }),
      [PODS]: items(pod),
      [`/api/v1/namespaces/linger/events?fieldSelector=${encodeURIComponent('involvedObject.name=a,reason=FailedMount')}`]:
        items({ message: 'an earlier one' }, { message: why }),
    });
    const said = checks.filter(({ code }) => code === 'Certificate' || code === 'Replicas');
    expect(said.map(({ state, text }) => `${state}: ${text}`)).toEqual([
      expect.stringMatching(/^failure: the webhook configuration has no caBundle/),
      'failure: there is no Secret linger/my-tls',
      `failure: 0 of 2 ready; a: ContainerCreating: ${why}`,
    ]);
    expect(said[1]?.cure).toMatch(/^It is your own: create it/);
  });

  describe('a certificate of one’s own', () => {
    const volumes = [{ name: 'certs', secret: { secretName: 'my-tls' } }];
    const containers = [{ args: ['--certs=/etc/linger/certs'] }];
    const said = async (text: string, more: Answers = {}, daysLater = 0) => {
      const checks = await check(
        {
          [DEPLOYMENT]: well({ spec: { replicas: 2, template: { spec: { containers, volumes } } } }),
          '/api/v1/namespaces/linger/secrets/my-tls': secret(text),
          ...more,
        },
        { now: new Date(NOW.getTime() + daysLater * DAY_MS) },
      );
      return checks
        .filter(({ code }) => code === 'Certificate')
        .map(({ state, text }) => `${state}: ${text}`);
    };

    it('is due when a quarter of its life is left: nobody else renews it', async () => {
      expect(await said(cert, {}, 270)).toEqual([
        expect.stringMatching(/^ok: .*\/my-tls is trusted and valid/),
      ]);
      expect(await said(cert, {}, 280)).toEqual([
        expect.stringMatching(/^warning: .*\/my-tls expires soon; valid/),
      ]);
    });

    it('without a DNS name is refused by API servers, whatever its common name', async () => {
      const pem = signedByItself('linger.linger.svc', days(25, NOW));
      const hook = own({
        clientConfig: { service: { namespace: 'linger', name: 'linger' }, caBundle: encoded(pem) },
      });
      expect(await said(pem, { [OWN_HOOK]: hook }, 1)).toEqual([
        expect.stringMatching(
          /^failure: .*\/my-tls does not cover linger\.linger\.svc, which API servers call/,
        ),
      ]);
    });
  });

  it('no webhook configuration: the certificate is not said to be trusted', async () => {
    const gone = { [OWN_HOOK]: refused(404, 'not found') };
    expect(worthSaying(await check(gone))).toEqual([
      'failure Webhook: there is no MutatingWebhookConfiguration linger: pods are created without Linger',
      expect.stringMatching(/^unknown Certificate: .* is valid for .* nothing says who trusts it$/),
    ]);
  });

  it('no installation at all', async () => {
    const gone = refused(404, 'not found');
    const said = worthSaying(
      await check({ [OWN_HOOK]: gone, [DEPLOYMENT]: gone, [SECRET]: gone, [PODS]: items() }),
    );
    expect(said.slice(0, 3)).toEqual([
      'failure Webhook: there is no MutatingWebhookConfiguration linger: pods are created without Linger',
      'failure Certificate: there is no Secret linger/linger-certificates',
      'failure Replicas: there is no Deployment linger in namespace linger',
    ]);
  });
});

interface RoleObject {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly rules?: readonly Readonly<
    Record<'apiGroups' | 'resources' | 'resourceNames' | 'verbs', string[]>
  >[];
}

const inWords = (file: string, { verb, resource, group, name, namespace }: Access) =>
  `${file}: ${verb} ${resource}.${group} ${name ?? '*'} in ${namespace ?? '*'}`;

/** @param missing of `may VERB RESOURCE.GROUP NAME in NAMESPACE`, each part where there is one */
const allowingAllBut = (missing: RegExp) => (asked: string) => {
  const { spec } = JSON.parse(asked) as {
    spec: {
      resourceAttributes: Partial<
        Record<'verb' | 'resource' | 'subresource' | 'group' | 'name' | 'namespace', string>
      >;
    };
  };
  const { verb, resource, subresource, group, name, namespace } = spec.resourceAttributes;
  const what = `${resource}${subresource ? `/${subresource}` : ''}${group ? `.${group}` : ''}`;
  const words = ['may', verb, what, name ?? [], namespace === undefined ? [] : ['in', namespace]].flat(2);
  return well({ status: { allowed: !missing.test(words.join(' ')) } });
};

const HELPERS = `/api/v1/configmaps?${query('fieldSelector', `metadata.name=${readHelperObject().name}`)}`;
