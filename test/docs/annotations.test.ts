import { describe, expect, test } from 'vitest';
import { REPORT_ANNOTATION } from '../../src/audit/index.ts';
import { VERBS } from '../../src/cli/commands.ts';
import { ANNOTATION } from '../../src/core/api/index.ts';
import {
  annotationLayers,
  NODE_BUDGET_LABEL,
  type Plan,
  parsePlan,
  renderPlan,
  WAIT_REASONS,
  type WaitReason,
} from '../../src/core/decision/index.ts';
import { HEARTBEAT_ANNOTATION } from '../../src/core/lag/index.ts';
import { TRIED_ANNOTATION } from '../../src/hold/index.ts';
import { LEADER_LABEL, SHARED_ANNOTATIONS } from '../../src/leader/index.ts';
import { CANARY_LABEL } from '../../src/measurement/index.ts';
import { RUN_LABEL } from '../../src/prove/index.ts';
import { codeOf, codesOf, PAGES, read, tableUnder } from './markdown.ts';

const PAGE = 'docs/reference/annotations.md';
const readByLinger = tableUnder(PAGE, 'Read by Linger');
const known: readonly string[] = Object.values(ANNOTATION);
/** Labels, and an audience. */
const others: readonly (string | undefined)[] = [
  HEARTBEAT_ANNOTATION,
  CANARY_LABEL,
  LEADER_LABEL,
  NODE_BUDGET_LABEL,
  RUN_LABEL,
  VERBS.serve.flags.reportsAudience.fallback,
];
const ofObjects: readonly string[] = [
  ...Object.values(SHARED_ANNOTATIONS),
  TRIED_ANNOTATION,
  // Read by deploy/hold-policy.yaml alone.
  'linger.dev/unused',
  ...Object.values(REPORT_ANNOTATION),
];

test('the table has exactly the annotations that are read', () => {
  const expected = known.filter((key) => key !== ANNOTATION.plan && key !== ANNOTATION.holdToken);
  expect(readByLinger.map((row) => codeOf(row.annotation)).toSorted()).toEqual(expected.toSorted());
});

test('the annotations that are written are documented', () => {
  const documented = tableUnder(PAGE, 'Written by Linger').map((row) => codeOf(row.annotation));
  expect(documented).toEqual([ANNOTATION.plan, ANNOTATION.holdToken]);
});

describe.each(readByLinger)('$annotation', (row) => {
  const key = codeOf(row.annotation);
  const values = codesOf(row.values).map((value) => value.replaceAll('"', ''));

  test.each(values)('takes the documented value %s', (value) => {
    const { layers, notes } = annotationLayers('Pod', { [key]: value }, {});
    expect(notes).toEqual([]);
    expect(Object.keys(layers[0]?.values ?? {})).not.toEqual([]);
  });

  test('a value that does not parse names the alternatives, and all of them are documented', () => {
    const text = annotationLayers('Pod', { [key]: ',' }, {}).notes[0]?.text ?? '';
    const [, expected = ''] = /expected (.*), got/.exec(text) ?? [];
    const alternatives = [...expected.matchAll(/\b[A-Z][a-z]+\b/g)].map(([word]) => word);
    expect(expected).not.toBe('');
    for (const alternative of alternatives) expect(values).toContain(alternative);
  });
});

describe('the plan annotation', () => {
  // Required: a member that is added to the type, and not here, does not compile.
  const plan: Required<Plan> = {
    by: 'floor',
    wait: 30,
    grace: 60,
    baseGrace: 30,
    hook: 'Sleep',
    containers: ['app'],
    policy: 'built-in',
    why: 'measured',
    coverage: 0.99,
    samples: 812,
    extended: { app: 5 },
    least: 5,
    hold: { min: 5, max: 60, percentile: 99, initial: 30, probes: 0.2 },
    digest: '7f3a09c1',
  };

  test('the table has exactly its members, in their order', () => {
    const documented = tableUnder(PAGE, 'Written by Linger', 1).map((row) => codeOf(row.member));
    expect(documented).toEqual(Object.keys(JSON.parse(renderPlan(plan)) as object));
  });

  test.each(Object.keys(WAIT_REASONS))('%s is a why that is read back', (why) => {
    const { hold: _h, by: _b, ...slept } = plan;
    expect(parsePlan(renderPlan({ ...slept, why: why as WaitReason }))?.why).toBe(why);
  });
});

test.each(PAGES)('%s names no linger.dev annotation that does not exist', (page) => {
  const named = [...read(page).matchAll(/(?<![\w.])linger\.dev\/([a-z-]+)(?![\w.])/g)].map(([text]) => text);
  for (const key of named) expect([...known, ...ofObjects, ...others]).toContain(key);
});
