import { stringify } from 'yaml';
import { TRIAL_NAME } from '../../src/check/trial-pods.ts';
import { EXISTING_HOOK_RULES, MODES } from '../../src/core/api/choices.ts';
import {
  DURATION,
  DURATION_HINT,
  LONGEST_DURATION,
  LONGEST_DURATION_TEXT,
} from '../../src/core/api/duration.ts';
import { celPattern } from '../../src/core/api/fields.ts';
import { HOOK_CHOICES } from '../../src/core/api/hooks.ts';
import { ANNOTATION } from '../../src/core/api/names.ts';
import { POD_LIMITS } from '../../src/core/decision/pod.ts';

/*
 * ValidatingAdmissionPolicies by which kubectl says at once what is wrong with a linger.dev annotation. They accept exactly
 * what src/core/decision reads: the cluster suite puts both to the same table of values.
 */

/** What JavaScript's trim() takes off; RE2's \\s knows ASCII only. */
const SPACES =
  '\\t\\n\\v\\f\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}';
const TRIM = `find(r'[^${SPACES}](?s:.*[^${SPACES}])?')`;

/** Case-insensitive as JavaScript's toLowerCase() is: of ASCII letters, only k has a third form, the Kelvin sign. */
function anyCase(word: string): string {
  const forms = (letter: string) =>
    `[${letter.toLowerCase()}${letter.toUpperCase()}${/k/i.test(letter) ? '\\x{212a}' : ''}]`;
  return [...word].map(forms).join('');
}

const matches = (pattern: string) => `value.matches(r'^(${pattern})$')`;
const oneOf = (words: readonly string[]) => matches(words.map(anyCase).join('|'));

/** A number of each unit from which on CEL's duration() could overflow; all are far beyond the longest duration. */
const DIGITS_TOO_MANY = { h: 4, 'm([^s]|$)': 6, s: 8, ms: 11, '(us|µs|μs)': 14, ns: 17 };
const FAR_TOO_LONG = Object.entries(DIGITS_TOO_MANY)
  .map(([unit, digits]) => `(^|[a-zµμ])0*[1-9]\\d{${digits - 1},}(\\.\\d*)?${unit}`)
  .join('|');

interface AnnotationRule {
  readonly key: string;
  /** CEL that is true for a value that Linger reads; `value` is replaced by the value. */
  readonly valid: string;
  readonly expected: string;
}

const words = (choices: readonly string[]) => choices.join(', ').replace(/, ([^,]*)$/, ' or $1');

const RULES: readonly AnnotationRule[] = [
  {
    key: ANNOTATION.inject,
    valid: matches('1|t|T|true|TRUE|True|0|f|F|false|FALSE|False'),
    expected: '"true" or "false"',
  },
  { key: ANNOTATION.mode, valid: oneOf(MODES), expected: words(MODES) },
  {
    key: ANNOTATION.wait,
    valid:
      `value.size() <= ${LONGEST_DURATION_TEXT} && value.matches(${celPattern(DURATION)}) && ` +
      `!value.matches(r'${FAR_TOO_LONG}') && duration(value) <= duration('${LONGEST_DURATION}')`,
    expected: `${DURATION_HINT}, at most ${LONGEST_DURATION}`,
  },
  { key: ANNOTATION.hook, valid: oneOf(HOOK_CHOICES), expected: words(HOOK_CHOICES) },
  {
    key: ANNOTATION.containers,
    valid:
      `value.matches(r'[^,${SPACES}]') && value.size() <= ${POD_LIMITS.containers * 64} && ` +
      `value.split(',').filter(name, name.matches(r'[^${SPACES}]')).size() <= ${POD_LIMITS.containers}`,
    expected: 'container names, separated by commas',
  },
  { key: ANNOTATION.existingHook, valid: oneOf(EXISTING_HOOK_RULES), expected: words(EXISTING_HOOK_RULES) },
];

const KEYS = RULES.map(({ key }) => key);
/** On objects of Linger's own namespace there are more. */
const KNOWN = [...KEYS, ANNOTATION.plan, ANNOTATION.holdToken];

/** The pod, the pod template or the Namespace: what Linger reads annotations of. */
const holderOf = (object: string) =>
  `dyn(${object}).?spec.?jobTemplate.?spec.?template.or(dyn(${object}).?spec.?template).orValue(dyn(${object}))`;
const VARIABLES = [
  { name: 'holder', expression: holderOf('object') },
  { name: 'annotations', expression: 'variables.holder.?metadata.?annotations.orValue({})' },
  { name: 'labels', expression: 'variables.holder.?metadata.?labels.orValue({})' },
  { name: 'isTemplate', expression: "!(request.resource.resource in ['pods', 'namespaces'])" },
];
/** An object that has a fault already can still be changed and deleted. */
const BEFORE = [
  { name: 'before', expression: `oldObject == null ? dyn({}) : ${holderOf('oldObject')}` },
  { name: 'oldAnnotations', expression: 'variables.before.?metadata.?annotations.orValue({})' },
  { name: 'oldLabels', expression: 'variables.before.?metadata.?labels.orValue({})' },
];

const list = (keys: readonly string[]) => `[${keys.map((key) => `'${key}'`).join(', ')}]`;

type Member = 'annotations' | 'labels';
const PREVIOUS = { annotations: 'oldAnnotations', labels: 'oldLabels' } as const;

/** `annotations linger.dev/existing-hook` → `annotations_existing_hook` */
const variableOf = (member: Member, key: string) =>
  `${member}_${key.replace(/.*\//, '').replaceAll('-', '_')}`;

function trimmed(member: Member, { key }: AnnotationRule) {
  return { name: variableOf(member, key), expression: `variables.${member}['${key}'].${TRIM}` };
}

function refusalOf(member: Member, { key, valid, expected }: AnnotationRule) {
  const [now, before] = [`variables.${member}`, `variables.${PREVIOUS[member]}`];
  const value = `variables.${variableOf(member, key)}`;
  const unchanged = `(${before}[?'${key}'] == ${now}[?'${key}'])`;
  return {
    expression: `!('${key}' in ${now}) || ${unchanged} || (${valid.replaceAll(/\bvalue\b/g, value)})`,
    message: `${member.slice(0, -1)} ${key}: expected ${expected}`,
  };
}

const HINTS = [
  {
    expression: `!variables.labels.exists(key, key in ${list(KEYS.filter((key) => key !== ANNOTATION.inject))})`,
    message: `a label that Linger reads as an annotation only: move it to metadata.annotations (only ${ANNOTATION.inject} counts as a label)`,
  },
  {
    expression: `!variables.annotations.exists(key, key.startsWith('linger.dev/') && !(key in ${list(KNOWN)}))`,
    message: `a linger.dev annotation that Linger does not know; known are ${KEYS.join(', ')}`,
  },
  {
    expression: `!variables.isTemplate || !(object.metadata.?annotations.orValue({}).exists(key, key in ${list(KEYS)}) || object.metadata.?labels.orValue({}).exists(key, key in ${list(KEYS)}))`,
    message:
      'a linger.dev annotation or label of the workload itself has no effect: put it into the pod template (spec.template.metadata)',
  },
];

const MATCH = {
  // Linger's own pods carry what others do not: see webhook.yaml.
  namespaceSelector: {
    matchExpressions: [{ key: 'app.kubernetes.io/name', operator: 'NotIn', values: ['linger'] }],
  },
  resourceRules: [
    ['', ['pods', 'namespaces']],
    ['apps', ['deployments', 'statefulsets', 'daemonsets', 'replicasets']],
    ['batch', ['jobs', 'cronjobs']],
  ].map(([group, resources]) => ({
    apiGroups: [group],
    apiVersions: ['v1'],
    operations: ['CREATE', 'UPDATE'],
    resources,
    // The default: without it each kubectl apply would find a difference.
    scope: '*',
  })),
};

const API_VERSION = 'admissionregistration.k8s.io/v1';
const LABELS = { 'app.kubernetes.io/name': 'linger' };

function policy(
  name: string,
  variables: readonly object[],
  validations: readonly object[],
  action: 'Deny' | 'Warn',
) {
  return [
    {
      apiVersion: API_VERSION,
      kind: 'ValidatingAdmissionPolicy',
      metadata: { name, labels: LABELS },
      spec: {
        failurePolicy: 'Ignore',
        matchConstraints: MATCH,
        // The pods of a workload have the template's annotations, which were judged with the workload; and a pod that a
        // controller makes is never refused.
        matchConditions: [
          {
            name: 'made-by-a-person',
            expression:
              '!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))',
          },
          {
            // Its annotation does not parse on purpose: Linger's warning shows that the webhook has answered.
            name: 'not-a-dry-run-of-linger-check',
            expression: `!(request.dryRun && object.metadata.?generateName.orValue('') == '${TRIAL_NAME}')`,
          },
        ],
        variables,
        validations,
      },
    },
    {
      apiVersion: API_VERSION,
      kind: 'ValidatingAdmissionPolicyBinding',
      metadata: { name, labels: LABELS },
      spec: { policyName: name, validationActions: [action] },
    },
  ];
}

export function annotationPolicyText(): string {
  const [inject] = RULES as readonly [AnnotationRule, ...AnnotationRule[]];
  const refusals = [...RULES.map((rule) => refusalOf('annotations', rule)), refusalOf('labels', inject)];
  const variables = [
    ...VARIABLES.slice(0, 3),
    ...BEFORE,
    ...RULES.map((rule) => trimmed('annotations', rule)),
    trimmed('labels', inject),
  ];
  const objects = [
    ...policy('linger-annotations', variables, refusals, 'Deny'),
    ...policy('linger-annotation-hints', VARIABLES, HINTS, 'Warn'),
  ];
  const header =
    '# Generated by `npm run generate` from deploy/generate/annotation-policy.ts: change that. Kubernetes 1.30 or later.\n' +
    '# kubectl says at once what is wrong with a linger.dev annotation or label on Namespaces, workloads and bare pods.\n';
  return header + objects.map((each) => stringify(each, { lineWidth: 0, version: '1.1' })).join('---\n');
}
