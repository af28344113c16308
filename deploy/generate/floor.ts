import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { ANNOTATION, FLOOR, HOOKS, MIRROR_POD_ANNOTATION } from '../../src/core/api/index.ts';
import { MESH_PROXIES } from '../../src/core/decision/decide.ts';
import { OS_LABELS, WINDOWS_BUILD } from '../../src/core/decision/pod.ts';

/*
 * The MutatingAdmissionPolicy that gives pods a wait while Linger is down. It decides less than src/core/decision does, by what
 * the leader has written into one ConfigMap; test/floor holds both against each other with the API server's own packages.
 */

const text = (value: string) => `'${value}'`;
const list = (values: Iterable<string>) => `[${[...values].map(text).join(', ')}]`;

/** The member of a pod or namespace, as an optional map. */
const mapOf = (path: string) => `${path}.orValue({})`;
const ANNOTATIONS = mapOf('object.metadata.?annotations');
const HOLDERS = ['object', 'namespaceObject'] as const;

/** Only what certainly says `true` or `Enforce` lets a pod through: anything else may have been meant to restrain. */
const OPT_INS = [
  ...HOLDERS.flatMap((holder) =>
    ['annotations', 'labels'].map(
      (member) => [holder, member, ANNOTATION.inject, '1|t|T|true|TRUE|True', 'true'] as const,
    ),
  ),
  ...HOLDERS.map((holder) => [holder, 'annotations', ANNOTATION.mode, '(?i:enforce)', 'Enforce'] as const),
].map(
  ([holder, member, key, pattern, otherwise]) =>
    `[${holder}.metadata.?${member}[?${text(key)}].orValue(${text(otherwise)})].all(each, each.size() < 100 && each.matches(r'^\\s*(${pattern})\\s*$'))`,
);

/**
 * More than any real pod has, of whatever a pod has many of. Evaluating an expression has a limit of cost, and validation, which
 * limits the sizes of other things, comes later: without these limits, authors of pods could make evaluations fail, and
 * with them the alert about it fire.
 */
const MOST_ENTRIES = 100;
/** The most labels and the like that a patched pod has: the API server takes seconds to patch one with 16,000. */
const MOST_KEYS = 1_000;
const MOST_NAME_CHARACTERS = 63;
/** The longest list of container names in an annotation, far longer than people write, and the longest stamp. */
const [MOST_NAMES_CHARACTERS, MOST_STAMP_CHARACTERS] = [2_000, 10_000];
/** Beyond it sums might overflow. 31 years. */
const MOST_GRACE = 999_999_999;

/** Workloads that drain by themselves: by label, or by what the hook of a container calls. See `OWN_DRAINS`. */
const OWN_DRAINS = [
  ...['serving.knative.dev/revision', 'agones.dev/gameserver'].map(
    (key) => `!(${text(key)} in ${mapOf('object.metadata.?labels')})`,
  ),
  "!object.spec.containers.map(c, c.?lifecycle.?preStop.?httpGet.?path.orValue(''))" +
    ".exists(path, path == '/wait-for-drain' || path.startsWith('/shutdown'))",
];

/** Not sure to be for Linux, where there is a `sleep` program. As `isWindows`, and wider. */
const WINDOWS =
  "object.spec.?os.?name.orValue('') != 'linux' && (" +
  [
    "object.spec.?os.?name.orValue('') != ''",
    'has(object.spec.runtimeClassName)',
    `'${WINDOWS_BUILD}' in ${mapOf('object.spec.?nodeSelector')}`,
    ...OS_LABELS.map((key) => `object.spec.?nodeSelector[?${text(key)}].orValue('linux') != 'linux'`),
    `[object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])].exists(terms, terms.size() > ${MOST_ENTRIES} || terms.map(term, term.?matchExpressions.orValue([])).exists(listed, listed.size() > ${MOST_ENTRIES} || listed.exists(each, each.key in ${list([...OS_LABELS, WINDOWS_BUILD])})))`,
    '([object.spec.?securityContext] + (object.spec.containers + object.spec.?initContainers.orValue([])).map(c, c.?securityContext)).exists(each, each.?windowsOptions.hasValue())',
  ].join(' || ') +
  ')';

/** A container that runs as long as the pod, and has a port or a readiness probe. A mesh's proxy says nothing of its pod. */
const SERVES =
  "(object.spec.containers + object.spec.?initContainers.orValue([]).filter(c, c.?restartPolicy.orValue('') == 'Always'))" +
  '.exists(c, (c.?ports.orValue([]).size() > 0 || has(c.readinessProbe)) && ' +
  `(!(c.name in ${list(MESH_PROXIES)}) || object.spec.containers.all(each, each.name in ${list(MESH_PROXIES)})))`;

const PLAN = `object.metadata.?annotations[?${text(ANNOTATION.plan)}].orValue('')`;
const GRACE = 'int(object.spec.?terminationGracePeriodSeconds.orValue(30))';
/** An entry is `wait initial grace.max hook kinds containers`, or `none`. */
const entryOf = (namespace: string) =>
  `params.?data[?${namespace}].orValue(params.?data[?${text(FLOOR.newNamespaces)}].orValue('none'))`;

/**
 * Pods for which these are false cost the API server a third of what others do: it does not convert, patch and decode them, which
 * it does even for an empty patch. A pod that is left out in the first round has no second, so these may only ask what webhooks
 * do not change, or what is settled: most second rounds end here. There is no `namespaceObject` and no variable in them.
 */
const MATCH_CONDITIONS = {
  'no-mirror-pod': `!(${text(MIRROR_POD_ANNOTATION)} in ${ANNOTATIONS})`,
  'of-usual-size': [ANNOTATIONS, mapOf('object.metadata.?labels'), mapOf('object.spec.?nodeSelector')]
    .map((entries) => `${entries}.size() <= ${MOST_KEYS}`)
    .join(' && '),
  'to-be-given-a-wait': `${PLAN} != '' || ${entryOf('request.namespace')} != 'none'`,
  'without-another-plan': `${PLAN} == '' || ${PLAN}.startsWith('${FLOOR.stamp}')`,
  'not-settled':
    `${PLAN} == '' || !${PLAN}.contains('"grace":' + string(${GRACE}) + ',') || ` +
    'object.spec.containers.exists(c, !c.?lifecycle.?preStop.hasValue())',
};

const MAY = [
  `(variables.plan == '' || variables.own)`,
  ...[
    'object.spec.containers',
    'object.spec.?initContainers.orValue([])',
    'object.metadata.?ownerReferences.orValue([])',
  ].map((entries) => `${entries}.size() <= ${MOST_ENTRIES}`),
  ...OPT_INS,
  "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && owner.kind in variables.entry[4].split(','))",
  ...OWN_DRAINS,
  `variables.grace > 0 && variables.grace <= ${MOST_GRACE}`,
  `${ANNOTATIONS}[?${text(ANNOTATION.containers)}].orValue('').size() <= ${MOST_NAMES_CHARACTERS}`,
  SERVES,
  `(variables.entry[3] != 'Exec' || !(${WINDOWS}))`,
];

const NUMBER = '[0-9]{1,9}';
const STAMP_PATTERN = `^${FLOOR.stamp.replace('{', '\\{')}"wait":${NUMBER},"grace":${NUMBER},"baseGrace":${NUMBER},"hook":"(Sleep|Exec)","containers":\\["[^\\]]*"\\]\\}$`;
/** As an earlier round of this policy has written it. */
const numberIn = (key: string) => `int(variables.plan.find('"${key}":[0-9]+').find('[0-9]+'))`;
const HOOK_OF = {
  Sleep: "dyn({'sleep': {'seconds': variables.wait}})",
  Exec: "dyn({'exec': {'command': ['sleep', string(variables.wait)]}})",
};
// The texts above are what the decision renders and recognises.
for (const [name, rendered] of [
  ['Sleep', { sleep: { seconds: 7 } }],
  ['Exec', { exec: { command: ['sleep', '7'] } }],
] as const)
  if (JSON.stringify(HOOKS[name].render({ wait: 7 })) !== JSON.stringify(rendered))
    throw new Error(`the floor's hook ${name} differs from the decision's`);

/**
 * The first round sees the pod without a plan. A second one, after webhooks have changed it, sees the plan of the first: it gives
 * containers that were added their hooks, shortens all hooks where the grace was cut, or the API server would refuse the pod,
 * and never raises the grace again.
 */
const VARIABLES = {
  entry: `${entryOf('namespaceObject.metadata.name')}.split(' ')`,
  plan: PLAN,
  // Matched as a whole: in a forged plan, what is no number is never read as one.
  own: `variables.plan.size() <= ${MOST_STAMP_CHARACTERS} && variables.plan.matches(r'${STAMP_PATTERN}')`,
  grace: GRACE,
  may: `variables.entry.size() == 6 && ${MAY.join(' && ')}`,
  // The API server writes these times, right before admission. Without any, nothing is known to be fresh.
  times:
    'object.metadata.?managedFields.orValue([]).filter(each, has(each.time)).map(each, timestamp(each.time))',
  isFresh: `variables.times.size() > 0 && variables.times.all(each, each <= timestamp(params.data['${FLOOR.validUntil}']))`,
  stood: `variables.own ? [${['wait', 'grace', 'baseGrace'].map(numberIn).join(', ')}] : []`,
  wanted:
    'variables.own ? variables.stood[0] : ' +
    'variables.isFresh ? int(variables.entry[0]) : [int(variables.entry[0]), int(variables.entry[1])].max()',
  limit: 'variables.own ? variables.grace : int(variables.entry[2])',
  base: 'variables.own ? [variables.stood[2], variables.grace].min() : variables.grace',
  // fitGrace.
  raised: '[variables.base, [variables.base + variables.wanted, variables.limit].min()].max()',
  wait:
    'variables.own && variables.grace >= variables.stood[1] ? [variables.stood[0], variables.grace].min() : ' +
    '[variables.wanted, variables.raised - [variables.base, (variables.limit * 9 + 9) / 10].min()].min()',
  raisedTo: 'variables.own ? variables.grace : variables.raised',
  kind: `!variables.own ? variables.entry[3] : variables.plan.contains('"hook":"Exec"') ? 'Exec' : 'Sleep'`,
  hook: `variables.kind == 'Exec' ? ${HOOK_OF.Exec} : ${HOOK_OF.Sleep}`,
  // Containers that wait are in each of these lists that is not empty. `?`: only where no container has a hook.
  named:
    `[object.metadata.?annotations[?${text(ANNOTATION.containers)}].orValue(''), variables.entry[5] == '?' && ` +
    "!object.spec.containers.exists(c, c.?lifecycle.?preStop.hasValue()) ? '' : variables.entry[5]]" +
    ".map(each, each.split(',').map(name, name.trim()))",
  claimed: "variables.plan.find(r'\\[[^\\]]*\\]')",
  // For each container, 0: it is left alone, 1: it has no hook, 2: nor a lifecycle, 3: it has the hook of an earlier round.
  states:
    `object.spec.containers.map(c, c.name.size() > ${MOST_NAME_CHARACTERS} || ` +
    "c.?restartPolicy.orValue(object.spec.?restartPolicy.orValue('Always')) != 'Always' ? 0 : " +
    "!c.?lifecycle.?preStop.hasValue() ? (!variables.may || !variables.named.all(each, each == [''] || c.name in each) ? 0 : has(c.lifecycle) ? 1 : 2) : " +
    `variables.own && variables.claimed.contains('"' + c.name + '"') && ` +
    '(int(c.?lifecycle.?preStop.?sleep.?seconds.orValue(-1)) == variables.stood[0] || ' +
    "c.?lifecycle.?preStop.?exec.?command.orValue([]) == ['sleep', string(variables.stood[0])]) ? 3 : 0)",
  stamp:
    `'${FLOOR.stamp}"wait":' + string(variables.wait) + ',"grace":' + string(variables.raisedTo) + ',"baseGrace":' + ` +
    `string(variables.own ? variables.stood[2] : variables.grace) + ',"hook":"' + variables.kind + '","containers":["' + ` +
    `object.spec.containers.transformList(at, c, variables.states[at] > 0, c.name).join('","') + '"]}'`,
};

const PLAN_PATH = `/metadata/annotations/${ANNOTATION.plan.replace('/', '~1')}`;
const containers = (state: string, operation: string) =>
  `object.spec.containers.transformList(at, c, variables.states[at] ${state}, JSONPatch{${operation}})`;
const at = (rest: string) => `path: '/spec/containers/' + string(at) + '${rest}'`;

const MUTATION = `
!(variables.may || variables.own) || !variables.states.exists(each, each > 0) ? [] :
variables.wait < 1 ? (!variables.own ? [] :
  ${containers('== 3', `op: 'remove', ${at('/lifecycle/preStop')}`)} +
  [JSONPatch{op: 'remove', path: '${PLAN_PATH}'}]) :
variables.stamp == variables.plan ? [] :
  ${containers('== 1', `op: 'add', ${at('/lifecycle/preStop')}, value: variables.hook`)} +
  ${containers('== 2', `op: 'add', ${at('/lifecycle')}, value: dyn({'preStop': variables.hook})`)} +
  ${containers('== 3', `op: 'replace', ${at('/lifecycle/preStop')}, value: variables.hook`)} +
  [JSONPatch{op: 'add', path: '/spec/terminationGracePeriodSeconds', value: variables.raisedTo}] +
  (has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: dyn({})}]) +
  [JSONPatch{op: 'add', path: '${PLAN_PATH}', value: variables.stamp}]
`;

/** The webhook's own selectors, as text: the chart changes both in the same way. */
function selectors(): string {
  const webhook = readFileSync(join(import.meta.dirname, '..', 'webhook.yaml'), 'utf8');
  const found = /^ {4}namespaceSelector:\n[\s\S]*?(?=^ {4}matchConditions:)/m.exec(webhook)?.[0];
  if (found === undefined) throw new Error('deploy/webhook.yaml: expected selectors before matchConditions');
  return found;
}

const API_VERSION = 'admissionregistration.k8s.io/v1';
const METADATA = { name: FLOOR.policy, labels: { 'app.kubernetes.io/name': 'linger' } };

function policy(): object {
  return {
    apiVersion: API_VERSION,
    kind: 'MutatingAdmissionPolicy',
    metadata: METADATA,
    spec: {
      // For errors in the expressions. A patch of a wrong type would refuse the pod all the same.
      failurePolicy: 'Ignore',
      // A container that a webhook adds gets its hook, too; and a grace that one cuts shortens the wait.
      reinvocationPolicy: 'IfNeeded',
      paramKind: { apiVersion: 'v1', kind: 'ConfigMap' },
      matchConstraints: {
        resourceRules: [
          {
            apiGroups: [''],
            apiVersions: ['v1'],
            operations: ['CREATE'],
            resources: ['pods'],
            scope: 'Namespaced',
          },
        ],
      },
      matchConditions: Object.entries(MATCH_CONDITIONS).map(([name, expression]) => ({ name, expression })),
      variables: Object.entries(VARIABLES).map(([name, expression]) => ({ name, expression })),
      mutations: [{ patchType: 'JSONPatch', jsonPatch: { expression: MUTATION.trim() } }],
    },
  };
}

function binding(): object {
  return {
    apiVersion: API_VERSION,
    kind: 'MutatingAdmissionPolicyBinding',
    metadata: METADATA,
    spec: {
      policyName: FLOOR.policy,
      // Without the ConfigMap pods are created as they are.
      paramRef: { name: FLOOR.configMap, namespace: 'linger', parameterNotFoundAction: 'Allow' },
    },
  };
}

export function floorText(): string {
  const header =
    '# Generated by `npm run generate` from deploy/generate/floor.ts: change that. Kubernetes 1.36 or later.\n' +
    '# Gives pods a wait while Linger is down, from what its leader has written into the ConfigMap linger-floor.\n';
  const [first, second] = [policy(), binding()].map((each) =>
    stringify(each, { lineWidth: 0, version: '1.1' }),
  );
  const marker = '    resourceRules:\n';
  return `${header}${first?.replace(marker, selectors() + marker)}---\n${second}`;
}
