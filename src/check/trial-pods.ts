import { asFailure, type FailureReason, type Json, oneLine } from '../cluster/index.ts';
import {
  FLOOR,
  isSelected,
  isString,
  type Labels,
  memberAt,
  NO_LABELS,
  recordsAt,
  span,
} from '../core/api/index.ts';
import { isMarker, renderPlan } from '../core/decision/index.ts';
import {
  failure,
  type Inquiry,
  type Judgement,
  ok,
  problemsOr,
  type Seen,
  unknown,
  warning,
} from './checks.ts';
import { changersOf, hasLost, type Taken } from './pod-changers.ts';
import { namespaceLabels, OWN_LABELS, ownWebhook } from './pod-webhooks.ts';

const TRIAL_GRACE = 90;
const HOOK_SECONDS = 5;

const APP = 'app';

/** The prefix of trial pods' names, by which deploy/annotation-policy.yaml recognises them. */
export const TRIAL_NAME = 'linger-check-';

/** A pod with a hook and a grace as Linger sets them, which conforms to the level restricted of Pod Security. */
function trialPod(annotations: Labels, labels: Labels) {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { generateName: TRIAL_NAME, annotations, labels },
    spec: {
      automountServiceAccountToken: false,
      terminationGracePeriodSeconds: TRIAL_GRACE,
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: APP,
          image: 'registry.example/never-pulled',
          ports: [{ containerPort: 8080 }],
          resources: { requests: { cpu: '10m', memory: '16Mi' }, limits: { cpu: '100m', memory: '64Mi' } },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
        },
      ],
    },
  };
}

/** The annotations of a pod that Linger has changed, because other policies may exclude those. */
const PLANNED: Labels = {
  'linger.dev/plan': renderPlan({
    wait: HOOK_SECONDS,
    grace: TRIAL_GRACE,
    baseGrace: TRIAL_GRACE - HOOK_SECONDS,
    hook: 'Sleep',
    containers: [APP],
    policy: 'linger check',
    why: 'fixed',
  }),
};

/** @param more members of the container */
function withHook({ spec, ...pod }: ReturnType<typeof trialPod>, more: object = {}) {
  const hook = { lifecycle: { preStop: { sleep: { seconds: HOOK_SECONDS } } } };
  const containers = spec.containers.map((each) => ({ ...each, ...more, ...hook }));
  return { ...pod, spec: { ...spec, containers } };
}

/** Returns the pod after admission and validation with any warnings, or why it is rejected. @throws KubeFailure otherwise */
async function tryPod(inquiry: Inquiry, namespace: string, pod: object) {
  try {
    return await inquiry.post(`/api/v1/namespaces/${namespace}/pods?dryRun=All`, pod);
  } catch (thrown) {
    const { reason, message } = asFailure(thrown);
    // Quotas and Pod Security respond with 403 as well. Source: k8s.io/apiserver endpoints/handlers/responsewriters
    // (ForbiddenMessage).
    const isAnswer = reason === 'Forbidden' && !/ cannot \w+ resource /.test(message);
    if (!isAnswer && !ANSWERED.has(reason)) throw thrown;
    return { rejected: oneLine(message) };
  }
}

const ANSWERED: ReadonlySet<FailureReason> = new Set(['Refused', 'ServerError', 'Conflict']);

/** Messages of the plugins ResourceQuota and LimitRanger. */
const QUOTAS = /(exceeded|failed) quota| per (Container|Pod) is /;

/** The resources of Linger's own pods in deploy/deployment.yaml. */
const OWN_RESOURCES = { requests: { cpu: '50m', memory: '128Mi' }, limits: { memory: '512Mi' } };

/** Whether hooks survive admission: those of Linger's own pods in its namespace, those of applications in others. */
export async function admission(inquiry: Inquiry): Promise<Seen> {
  const { namespace, tryIn } = inquiry.options;
  const own = await inquiry.find(`/api/v1/namespaces/${namespace}`);
  const places = own === undefined ? [tryIn] : new Set([namespace, tryIn]);
  const judged: Seen[] = [];
  for (const where of places) judged.push(await admissionIn(where, own, inquiry));
  return judged.flat();
}

async function admissionIn(where: string, own: Json | undefined, inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const isOwn = own === undefined || where === namespace;
  const like = isOwn ? 'a pod like Linger’s own' : 'a pod with a hook of Linger’s';
  // Quotas and limits of other namespaces say nothing about Linger's own.
  const sent = withHook(
    trialPod(PLANNED, OWN_LABELS),
    where === namespace ? { resources: OWN_RESOURCES } : {},
  );
  const place = `namespace ${where}${own === undefined ? ` (namespace ${namespace} does not exist yet)` : ''}`;
  const tried = await tryPod(inquiry, where, sent);
  if ('rejected' in tried) {
    // The field was dropped, so nothing is left of the hook. Source: k8s.io/kubernetes pkg/apis/core/validation
    // (validateHandler).
    if (tried.rejected.includes('handler type'))
      return warning(
        'the API server drops the native sleep hook: it is older than 1.30, or its feature gate PodLifecycleSleepAction is off',
        'Set hook: Exec in a ClusterTerminationPolicy, and make sure that every image has a `sleep`.',
      );
    const text = `${like} is rejected in ${place}: ${tried.rejected}`;
    // Quotas of another namespace say nothing about Linger's, which does not exist yet.
    if (own === undefined && QUOTAS.test(tried.rejected)) return unknown(text, ANOTHER_NAMESPACE);
    return isOwn
      ? failure(
          text,
          'Replicas would be rejected too: exempt Linger’s namespace from that policy, quota or webhook, or give the replicas what it requires (resources of the Deployment, or of the chart).',
        )
      : warning(
          text,
          'Pods of applications there may be rejected too: linger audit --server-dry-run tries each workload.',
        );
  }
  const grace = memberAt(tried.answer, ['spec', 'terminationGracePeriodSeconds']);
  const enforced =
    where === namespace && memberAt(own, ['metadata', 'labels', 'pod-security.kubernetes.io/enforce']);
  const level = isString(enforced) ? `, which enforces Pod Security ${enforced}` : '';
  const changes: readonly (readonly [Taken, string])[] = [
    ['hook', 'without its hook'],
    ['grace', `with a grace of ${String(grace)} s instead of ${TRIAL_GRACE} s`],
  ];
  const problems: Judgement[] = [];
  for (const [taken, how] of changes.filter(([each]) => hasLost(tried.answer, { sent, taken: each }))) {
    const by = await changersOf({ sent, returned: tried.answer, namespace: where, taken }, inquiry);
    problems.push(
      by === undefined
        ? ok(`a pod in ${place} comes back from admission ${how}: what changes it comes before Linger`)
        : warning(`a pod in ${place} comes back from admission ${how}: ${changedBy(by)}`, leaveAlone(by)),
    );
  }
  return problemsOr(problems, ok(`${like} is admitted in ${place}${level}, with hook and grace unchanged`));
}

function changedBy(names: readonly string[]): string {
  if (names.length === 0) return 'another webhook or a policy changes it';
  return names.length === 1 ? `${names[0]} changes it` : `one of these changes it: ${names.join(', ')}`;
}

function leaveAlone(names: readonly string[]): string {
  return names.length === 0
    ? 'Find it among the lines OtherWebhooks and the MutatingAdmissionPolicies, and make it leave preStop hooks and graces alone.'
    : `Make ${names.join(', ')} leave preStop hooks and graces alone, or exclude pods with the annotation linger.dev/plan.`;
}

/** An invalid wait: Linger, and only Linger, warns about it in any mode. */
const NO_WAIT = { 'linger.dev/wait': 'check' };

/** Whether the API server reaches Linger, and the pod gets Linger's answer. */
export async function answer(inquiry: Inquiry): Promise<Seen> {
  const { tryIn } = inquiry.options;
  const own = await ownWebhook(inquiry);
  if (own === undefined) return [];
  if (!isSelected(own, await namespaceLabels(inquiry, tryIn), NO_LABELS))
    return unknown(
      `the selectors of the webhook exclude namespace ${tryIn}, so Linger is not called there`,
      ANOTHER_NAMESPACE,
    );
  const begun = performance.now();
  const pod = trialPod(NO_WAIT, NO_LABELS);
  const tried = await tryPod(inquiry, tryIn, pod);
  const tookSeconds = (performance.now() - begun) / 1000;
  if ('rejected' in tried) return judgeRejection(tried.rejected, own, inquiry);
  const found = memberAt(tried.answer, ['metadata', 'annotations', 'linger.dev/plan']);
  // Linger removes what the floor has added.
  const isStamp = isString(found) && found.startsWith(FLOOR.stamp);
  const plan = isStamp ? undefined : found;
  if (!isString(plan) && !tried.warnings.includes('linger: '))
    return failure(
      `a pod in namespace ${tryIn} was admitted without an answer from Linger${isStamp ? ', with the wait of the floor' : ''}${await serviceReached(inquiry)}`,
      'The other lines show what is wrong on the way; the API server’s log has the error (failed calling webhook).',
    );
  const took = `a pod in namespace ${tryIn} came back from Linger after ${span(tookSeconds)} (dry run)`;
  if (!isString(plan) || isMarker(plan))
    return ok(`${took}, unchanged: skipped, or the mode is Audit or Off (see Policies)`);
  // Another webhook may have added a container that has a hook of its own.
  const app = recordsAt(tried.answer, 'spec', 'containers').find(({ name }) => name === APP);
  if (memberAt(app, ['lifecycle', 'preStop']) !== undefined) return ok(`${took}, with its hook`);
  const sent = withHook(trialPod({ ...NO_WAIT, ...PLANNED }, NO_LABELS));
  const trial = { sent, returned: tried.answer, namespace: tryIn, taken: 'hook' } as const;
  const by = (await changersOf(trial, inquiry)) ?? [];
  return failure(
    `a pod in namespace ${tryIn} has Linger’s plan but no hook: ${changedBy(by)}`,
    leaveAlone(by),
  );
}

const ANOTHER_NAMESPACE = 'Name another namespace with --namespace.';

function judgeRejection(rejected: string, own: Json, { options }: Inquiry): Judgement {
  const { tryIn, configuration } = options;
  if (rejected.includes(`failed calling webhook "${String(own.name)}"`))
    return failure(
      `Linger cannot be reached, and pods are rejected: ${rejected}`,
      `The other lines show what is wrong on the way. To let pods in until it is fixed: kubectl delete mutatingwebhookconfiguration ${configuration}.`,
    );
  return unknown(
    `the dry run of a pod was rejected in namespace ${tryIn}: ${rejected}`,
    /does not support dry run/.test(rejected)
      ? 'Create a real pod, and look for the annotation linger.dev/plan.'
      : ANOTHER_NAMESPACE,
  );
}

/** Whether the API server reaches the Service through its own proxy, which verifies no certificate. */
async function serviceReached(inquiry: Inquiry): Promise<string> {
  const { namespace } = inquiry.options;
  try {
    await inquiry.text(`/api/v1/namespaces/${namespace}/services/https:linger:webhook/proxy/mutate`);
    return '';
  } catch (thrown) {
    const { reason, message } = asFailure(thrown);
    if (reason === 'Forbidden') return '';
    // Linger answers anything other than a POST with 405.
    if (message.startsWith('405'))
      return '; its Service is reachable, so suspect the certificate or the caBundle';
    return `; its Service is not reachable through the API server: ${oneLine(message)}`;
  }
}
