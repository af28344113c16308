import { parse } from 'yaml';
import { read } from './markdown.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

/** What is to happen for an alert to fire, and what must not make it: values of series, as Prometheus's tests of rules have them. */
export interface AlertCase {
  readonly at: string;
  readonly every?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly fires: Readonly<Record<string, string>>;
  readonly silent: Readonly<Record<string, string>>;
}

export const { groups: alertGroups } = parse(read('deploy/alerts.yaml')) as RuleFile;
export const alertRules = alertGroups.flatMap((group) => group.rules);

const cases = parse(read('test/testdata/alerts.yaml')) as Readonly<
  Record<string, AlertCase | readonly AlertCase[]>
>;

/** One or several for each alert. */
export const alertCases: Readonly<Record<string, readonly AlertCase[]>> = Object.fromEntries(
  Object.entries(cases).map(([alert, each]) => [alert, [each].flat()]),
);
