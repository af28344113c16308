import { fewOf, isString, memberAt } from '../core/api/index.ts';
import {
  type CheckOptions,
  failure,
  type Inquiry,
  type Judgement,
  ok,
  problemsOr,
  type Seen,
  warning,
} from './checks.ts';
import installed from './installed.json' with { type: 'json' };
import { APPLY, deployment, flagsOf, isZero, type ReplicaFlags } from './replicas.ts';

export interface Access {
  readonly group: string;
  /** Including its subresource, if any: `pods/status`. */
  readonly resource: string;
  readonly name?: string;
  readonly verb: string;
  readonly namespace?: string;
}

/**
 * The rights needed for server-side apply of the installed objects. @param objects those of `deploy/`, or of `deploy/floor`
 */
export function accessesToInstall(
  namespace: string,
  objects: readonly string[] = installed.objects,
): readonly Access[] {
  return objects.flatMap((object) => {
    const [, resource = '', group = '', namespaced] = /^(\w+)(?:\.(\S*))?( namespaced)?$/.exec(object) ?? [];
    const place = namespaced === undefined ? {} : { namespace };
    return ['get', 'create', 'patch'].map((verb) => ({ group, resource, verb, ...place }));
  });
}

export async function rightsToInstall(inquiry: Inquiry): Promise<Seen> {
  const asked = accessesToInstall(inquiry.options.namespace);
  const missing = await missingOf(inquiry, asked);
  if (missing.length > 0)
    return failure(
      `your account lacks rights that an installation needs: ${missing.join(', ')}`,
      'Install as cluster-admin, or have these rights granted.',
    );
  const granted = ok(`your account has all ${asked.length} rights that an installation needs`);
  // RBAC does not allow granting rights that the granter lacks. Source: k8s.io/kubernetes pkg/registry/rbac (escalation
  // check).
  const escalate = { group: 'rbac.authorization.k8s.io', resource: 'clusterroles', verb: 'escalate' };
  if ((await mayDo(inquiry, escalate)) || (await mayDo(inquiry, { group: '*', resource: '*', verb: '*' })))
    return granted;
  return [
    granted,
    warning(
      'your account may not escalate roles: the API server rejects Roles that grant more than the account has',
      'Get the rights in deploy/rbac*.yaml and deploy/role-*.yaml for yourself, or install as cluster-admin.',
    ),
  ];
}

/** The additional rights that an installation with the floor needs. @returns the names of those that are missing */
export function missingForFloor(inquiry: Inquiry): Promise<readonly string[]> {
  // The creator of a policy must be able to read everything that the policy may read. Source: k8s.io/kubernetes
  // pkg/registry/admissionregistration/mutatingadmissionpolicy (authz.go).
  const parameters = { group: '', resource: 'configmaps', name: '*', verb: 'get', namespace: '*' };
  return missingOf(inquiry, [...accessesToInstall(inquiry.options.namespace, installed.floor), parameters]);
}

/** @returns the names of the rights that are missing */
async function missingOf(
  inquiry: Inquiry,
  asked: readonly Access[],
  account?: Account,
): Promise<readonly string[]> {
  const may = await Promise.all(asked.map((access) => mayDo(inquiry, access, account)));
  return asked
    .filter((_, index) => !may[index])
    .map(({ verb, group, resource, name }) =>
      [verb, `${resource}${group === '' ? '' : `.${group}`}`, name ?? []].flat().join(' '),
    );
}

/** A ServiceAccount; undefined: the current user. */
type Account = { readonly namespace: string; readonly name: string } | undefined;

async function mayDo(inquiry: Inquiry, access: Access, account?: Account): Promise<boolean> {
  const [resource, subresource] = access.resource.split('/');
  const resourceAttributes = { ...access, resource, subresource };
  const kind = account === undefined ? 'SelfSubjectAccessReview' : 'SubjectAccessReview';
  const everyone = ['system:authenticated', 'system:serviceaccounts'];
  const { answer } = await inquiry.post(`/apis/authorization.k8s.io/v1/${kind.toLowerCase()}s`, {
    apiVersion: 'authorization.k8s.io/v1',
    kind,
    spec: {
      resourceAttributes,
      ...(account !== undefined && {
        user: `system:serviceaccount:${account.namespace}:${account.name}`,
        groups: [...everyone, `system:serviceaccounts:${account.namespace}`],
      }),
    },
  });
  return memberAt(answer, ['status', 'allowed']) === true;
}

/** What fails if the rights of a manifest are missing. */
interface Consequence {
  readonly without: string;
  /** Matches missing rights without which Linger does not work at all; undefined: none. */
  readonly grave?: RegExp;
  /** Whether the flags of the Deployment make use of these rights; undefined: always. */
  readonly used?: (flag: ReplicaFlags) => boolean;
}

const CONSEQUENCES: Readonly<Record<string, Consequence>> = {
  'deploy/rbac.yaml': {
    grave: /^(list|watch) /,
    without: 'watches fail when they reconnect, reports are rejected, or statuses and Events are missing',
  },
  'deploy/role-publish.yaml': { grave: /./, without: 'no replica leads, or measurements are not kept' },
  'deploy/role-pods.yaml': {
    without: 'the canary measures nothing, and the Service linger-reports has no endpoint',
  },
  'deploy/role-certificates.yaml': {
    grave: /./,
    without: 'the certificate expires within a week, and the caBundle is not restored',
    used: (flag) => flag('certs-secret') !== undefined,
  },
  'deploy/rbac-audit.yaml': {
    without: 'the leader’s audit fails or is incomplete',
    used: (flag) => !isZero(flag('audit-every')),
  },
  'deploy/rbac-hold.yaml': {
    without: 'pods get Sleep where policies ask for hook Hold',
    used: (flag) => !isZero(flag('hold-port')),
  },
  'deploy/rbac-node-shutdown.yaml': {
    without: 'the pods of a node that is shutting down are not deleted',
    used: (flag) => flag('delete-on-node-shutdown') !== undefined,
  },
  'deploy/rbac-policy-reports.yaml': {
    without: 'policy reports are not written',
    used: (flag) => (flag('policy-reports') ?? 'off') !== 'off',
  },
};

/** If this role does not exist, the helper is installed with `linger hold manifest` instead. */
const DELIVERY_ROLE = 'linger-hold-delivery';

/**
 * The rights that the manifests of this version give to the ServiceAccount, as far as these flags use them; by manifest.
 * @param delivers whether the leader should deliver the helper of Hold to namespaces
 */
export function declaredRights(
  flag: ReplicaFlags,
  { namespace, configuration }: Pick<CheckOptions, 'namespace' | 'configuration'>,
  delivers: boolean,
): ReadonlyMap<string, readonly Access[]> {
  const renamed = (resource: string, name: string) => {
    if (resource === 'secrets') return flag('certs-secret') ?? name;
    return resource === 'mutatingwebhookconfigurations' ? configuration : name;
  };
  const rights = new Map<string, readonly Access[]>();
  for (const { manifest, name: role, namespaced, rules } of installed.roles as readonly InstalledRole[]) {
    if ((role === DELIVERY_ROLE && !delivers) || CONSEQUENCES[manifest]?.used?.(flag) === false) continue;
    const place = namespaced ? { namespace } : {};
    const accesses = rules.flatMap(({ apiGroups, resources, resourceNames = [undefined], verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) =>
          resourceNames.flatMap((name) => {
            const named = name === undefined ? {} : { name: renamed(resource, name) };
            return verbs.map((verb) => ({ group, resource, ...named, verb, ...place }));
          }),
        ),
      ),
    );
    const reports = flag('policy-reports');
    const asked = accesses.filter(({ resource, group }) => !/reports$/.test(resource) || group === reports);
    rights.set(manifest, [...(rights.get(manifest) ?? []), ...asked]);
  }
  return rights;
}

interface InstalledRole {
  readonly manifest: string;
  readonly name: string;
  readonly namespaced: boolean;
  readonly rules: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly resourceNames?: readonly string[];
    readonly verbs: readonly string[];
  }[];
}

/**
 * Checked here, because the API server checks some rights only when a watch is opened, and others only when they are used.
 */
export async function replicaRights(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const declared = await deployment(inquiry);
  if (declared === undefined) return [];
  const account = memberAt(declared, ['spec', 'template', 'spec', 'serviceAccountName']);
  const name = isString(account) ? account : 'default';
  const delivery = `/apis/rbac.authorization.k8s.io/v1/clusterroles/${DELIVERY_ROLE}`;
  // If the role exists, missing rights mean that its binding is missing. An account that may not read it gets no false
  // warning.
  const delivers = (await inquiry.find(delivery).catch(() => undefined)) !== undefined;
  const rights = declaredRights(flagsOf(declared), inquiry.options, delivers);
  const problems: Judgement[] = [];
  for (const [manifest, accesses] of rights) {
    const missing = await missingOf(inquiry, accesses, { namespace, name });
    if (missing.length === 0) continue;
    const { without, grave } = CONSEQUENCES[manifest] ?? { without: 'what needs them fails' };
    const judge = grave !== undefined && missing.some((right) => grave.test(right)) ? failure : warning;
    problems.push(
      judge(
        `ServiceAccount ${namespace}/${name} may not ${fewOf(missing)}: ${without}`,
        `The role and its binding are in ${manifest}: ${APPLY}`,
      ),
    );
  }
  const all = [...rights.values()].flat().length;
  return problemsOr(problems, ok(`ServiceAccount ${name} has all ${all} rights that its flags need`));
}
