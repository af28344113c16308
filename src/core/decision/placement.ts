import { isRecord, isString, labelOf, memberAt, NO_LABELS, setNewest, textOf } from '../api/index.ts';
import { type Fleet, type NodeFacts, nodeKind } from './fleet.ts';
import { nodeBudgetOf } from './node-budget.ts';
import { constraintsOf, entriesOf, isWindows, nodeSelectorTerms, type Pod } from './pod.ts';

/** The kinds of node among those that a pod can run on, each with an example. */
export type Kinds = ReadonlyMap<string, NodeFacts>;

interface Reach {
  readonly kinds: Kinds;
  /** The pod can run on some node, and all nodes that it can run on have Windows. */
  readonly windows: boolean;
  /** The shortest node budget, in seconds; undefined: the pod can also run on a node without one. */
  readonly budget: number | undefined;
}

/** Cached answers: by the list of nodes, which is replaced as a whole, and by the text of a pod’s node constraints. */
const ANSWERS = new WeakMap<readonly NodeFacts[], Map<string, Reach>>();
/** Bounded, because the pods of a DaemonSet each have different constraints. */
const MOST_ANSWERS = 1_000;

/** @param pod absent: one that can run anywhere */
export function reachOf({ nodes }: Fleet, pod?: Pod): Reach {
  const key = pod === undefined ? '' : constraintsOf(pod);
  const answers = ANSWERS.get(nodes) ?? new Map<string, Reach>();
  ANSWERS.set(nodes, answers);
  const known = answers.get(key);
  if (known !== undefined) return known;
  const reachable = pod === undefined || key === '' ? nodes : nodesFor(constraintsIn(pod), nodes);
  const budgets = reachable.map(({ labels }) => nodeBudgetOf(labels) ?? Number.NaN);
  const least = Math.min(...budgets);
  const reach = {
    kinds: new Map(reachable.map((node) => [nodeKind(node), node])),
    windows: reachable.length > 0 && reachable.every(({ operatingSystem }) => operatingSystem === 'windows'),
    budget: Number.isFinite(least) ? least : undefined,
  };
  setNewest(answers, key, reach, MOST_ANSWERS);
  return reach;
}

/** Whether the pod runs on Windows only: by what it says itself, or by the nodes that it can run on. */
export function runsOnWindows(pod: Pod, fleet: Fleet | undefined): boolean {
  return isWindows(pod) || (fleet !== undefined && constraintsOf(pod) !== '' && reachOf(fleet, pod).windows);
}

/**
 * The shortest time, in seconds, that a node leaves the pod when it is taken away, such as a spot node; undefined where the
 * pod can also run on nodes that stay. Taken from the nodes that it can run on, since they may have the operator's own
 * label, or a more precise one than the pod asks for (Karpenter's on Azure). Where a pool has no node yet, taken from the
 * labels that the pod asks for.
 */
export function nodeBudget(pod: Pod, fleet: Fleet | undefined): number | undefined {
  const seen = fleet && reachOf(fleet, pod).budget;
  return seen ?? (constraintsOf(pod) === '' ? undefined : askedBudget(constraintsIn(pod)));
}

function askedBudget({ selector, terms = [] }: Constraints): number | undefined {
  const selected = nodeBudgetOf(Object.fromEntries(selector));
  if (selected !== undefined) return selected;
  // Labels that only spot nodes have say `true`.
  const budgetOf = ({ key, operator, values }: Requirement) =>
    Math.min(
      ...(operator === 'Exists' ? ['true'] : operator === 'In' ? values : []).map(
        (value) => nodeBudgetOf({ [key]: textOf(value) }) ?? Number.NaN,
      ),
    );
  const budgets = terms.map((term) => Math.min(...term.map(budgetOf).filter(Number.isFinite)));
  return budgets.length > 0 && budgets.every(Number.isFinite) ? Math.min(...budgets) : undefined;
}

interface Requirement {
  readonly key: string;
  readonly operator: unknown;
  readonly values: readonly unknown[];
}

interface Constraints {
  /** The node's name; empty: any. */
  readonly nodeName: string;
  readonly linux: boolean;
  readonly selector: readonly (readonly [key: string, value: string])[];
  /** At least one term must match, with all its requirements. undefined: no constraint. */
  readonly terms: readonly (readonly Requirement[])[] | undefined;
}

/** A field selector is kept among the labels, under a key that no label can have. */
const NAME_FIELD = 'metadata.name ';

function constraintsIn({ spec }: Pod): Constraints {
  const { nodeName, nodeSelector, os } = spec;
  const all = nodeSelectorTerms(spec);
  const terms = Array.isArray(all) ? all.map(requirementsOf) : undefined;
  return {
    nodeName: isString(nodeName) ? nodeName : '',
    linux: os?.name === 'linux',
    selector: Object.entries(nodeSelector ?? NO_LABELS),
    terms,
  };
}

function requirementsOf(term: unknown): readonly Requirement[] {
  const listed = (member: string, keyOf: (key: string) => string) =>
    entriesOf(memberAt(term, [member])).map((each) => {
      const { key, operator, values } = isRecord(each) ? each : {};
      // A requirement that is malformed has no operator and counts as possibly met.
      return { key: keyOf(textOf(key)), operator: isString(key) ? operator : '', values: entriesOf(values) };
    });
  return [...listed('matchExpressions', (key) => key), ...listed('matchFields', (key) => `${key} `)];
}

/** How many comparisons one review may cost. Constraints beyond that count as met on every node. */
const MOST_COMPARISONS = 50_000;

/** The nodes where the scheduler may put the pod. Taints are not looked at: the answer may be too wide, never too narrow. */
function nodesFor(constraints: Constraints, nodes: readonly NodeFacts[]): readonly NodeFacts[] {
  const { nodeName, linux, selector, terms = [] } = constraints;
  const candidates = nodeName === '' ? nodes : nodes.filter(({ name }) => name === nodeName);
  const requirements = terms.flat();
  const each = selector.length + requirements.length + requirements.flatMap(({ values }) => values).length;
  if (each * candidates.length > MOST_COMPARISONS) return nodes;
  return candidates.filter(
    (node) =>
      !(linux && node.operatingSystem === 'windows') &&
      selector.every(([key, value]) => labelOf(node.labels, key) === value) &&
      // A term without requirements matches no node. Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity.
      (constraints.terms === undefined ||
        terms.some((term) => term.length > 0 && term.every((requirement) => meets(requirement, node)))),
  );
}

function meets({ key, operator, values }: Requirement, { name, labels }: NodeFacts): boolean {
  const value = key === NAME_FIELD ? name : labelOf(labels, key);
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return integerIn(value) > integerIn(values[0]);
    case 'Lt':
      return integerIn(value) < integerIn(values[0]);
    default:
      return true;
  }
}

function integerIn(text: unknown): number {
  return isString(text) && /^[+-]?\d{1,18}$/.test(text) ? Number(text) : Number.NaN;
}
