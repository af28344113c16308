import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type * as api from '../../src/core/api/index.ts';
import type * as decision from '../../src/core/decision/index.ts';
import type * as lag from '../../src/core/lag/index.ts';
import type * as manifest from '../../src/core/manifest/index.ts';
import type * as exposition from '../../src/telemetry/exposition.ts';
import { runs } from '../property/runs.ts';
import { counted, stepsOf } from '../property/steps.ts';
import { mostSteps } from './inputs.ts';
import type * as targets from './targets.ts';

const { TARGETS } = await counted<typeof targets>('test/fuzz/targets.ts');
const core = await counted<typeof api>('src/core/api/index.ts');
const { annotationLayers, parsePlan } = await counted<typeof decision>('src/core/decision/index.ts');
const { plannedFromJson, consumersFromJson, LagHistory } = await counted<typeof lag>('src/core/lag/index.ts');
const { readManifests } = await counted<typeof manifest>('src/core/manifest/index.ts');
const { parseExposition } = await counted<typeof exposition>('src/telemetry/exposition.ts');

/** Reads a text, and fails only in ways that are foreseen. */
interface Reader {
  readonly read: (text: string) => void;
  /** What may stand in front of the repeated part, and behind it: the text is read up to there. */
  readonly around: readonly string[];
  /** What may be repeated, in any order. */
  readonly pieces: readonly string[];
}

const ODD = [
  'a',
  '1',
  '.',
  ' ',
  '\t',
  '\n',
  '"',
  "'",
  '\\',
  ',',
  ':',
  '=',
  '{',
  '}',
  '[',
  ']',
  '(',
  ')',
  '-',
  '#',
  'é',
  '\0',
];

const JSON_PIECES = [
  '{"a":',
  '[',
  ']',
  '}',
  '1',
  '1e9',
  '"',
  '\\u0031',
  ',',
  '"a"',
  ':',
  '"12345":"12345",',
  '{},',
  'null',
  ' ',
];

const ofTarget = (
  target: keyof typeof TARGETS,
  around: readonly string[],
  pieces: readonly string[],
): Reader => ({
  read: (text) => TARGETS[target](Buffer.from(text)),
  around,
  pieces,
});

const READERS: Readonly<Record<string, Reader>> = {
  'commands of hooks': ofTarget(
    'hook',
    ['', 'sh\0-c\0', 'sh\0-c\0sleep 5;', 'sleep\0', 'timeout\0'],
    [...ODD, 'sh -c ', '$1', '`', '$(', ';', '&&', '|', '>', '<'],
  ),
  'a pod of a review': ofTarget(
    'review',
    [
      '',
      '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"metadata":{"labels":{',
    ],
    JSON_PIECES,
  ),
  'objects of watches': ofTarget(
    'watch',
    [
      '',
      '{"type":"ADDED","object":',
      '{"type":"ADDED","object":{"metadata":{"labels":{',
      '{"items":[',
      `{"type":"${' '.repeat(33_000)}","object":{"metadata":{"annotations":{`,
    ],
    JSON_PIECES,
  ),
  'pages of gateways': ofTarget(
    'page',
    [
      '',
      'a::10.0.0.1:80::health_flags::',
      '# pxname,svname,type,addr\n',
      '{"a":{"loadBalancer":{"servers":[{"url":"http://10.0.0.1',
    ],
    [
      ...ODD,
      '::',
      '10.0.0.1',
      'fd00::1',
      '::health_flags::healthy\n',
      ',"',
      '""',
      '{"url":"',
      'http://',
      '\\"',
    ],
  ),
  'pushes of istiods': ofTarget(
    'push',
    ['', '\x0a\xff\x7f'],
    ['\0', '\x01', '\x08', '\x0a', '\x0a\x02\x0a\0', '\x7f', '\x12', 'a'],
  ),
  reports: ofTarget('report', ['', '{"versions":{', '{"cursor":"'], JSON_PIECES),
  'attempts of node timers': ofTarget('attempts', ['', '{"attempts":[', '[['], JSON_PIECES),
  'lines of helpers': ofTarget('helper', ['', 'w 1 1 1 '], [...ODD, '10.0.0.1,', 'fd00::1']),
  policies: ofTarget(
    'policy',
    [
      '',
      'apiVersion: linger.dev/v1alpha1\nkind: TerminationPolicy\nmetadata: {name: a}\nspec:\n  ',
      'a: ',
      'a: |\n',
      '- ',
      '{',
      '"',
    ],
    [
      ...ODD,
      '- ',
      '? ',
      ': ',
      '&a ',
      '*a',
      '<<: *a\n',
      'a: b\n',
      '  ',
      '---\n',
      '...\n',
      '!!binary ',
      '| \n',
      '>\n',
      '{{',
      '[[',
    ],
  ),
  certificates: ofTarget(
    'certificate',
    ['', '-----BEGIN CERTIFICATE-----\n'],
    [...ODD, '-----BEGIN CERTIFICATE-----\n', '-----END CERTIFICATE-----\n', 'MIIB'],
  ),
  manifests: {
    read: (text) => void readManifests(text, 'a.yaml'),
    around: [
      '',
      `${' '.repeat(2_000)}a: b\n`,
      'kind: List\nitems:\n',
      'a: &a [1]\nb: ',
      '{"kind":"List","items":[',
      '"',
    ],
    pieces: [
      ...ODD,
      '- ',
      '? ',
      ': ',
      '*a',
      '&a ',
      'a: ',
      '\n  ',
      '---\n',
      '- a: 1\n',
      '"\\x',
      '\\\n',
      'é',
      '\r\n',
      "''",
      '%YAML\n',
    ],
  },
  'label queries': {
    read: (text) => void core.parseLabelQuery(text),
    around: ['', 'a in (', 'a='],
    pieces: [...ODD, ' in ', 'notin', '!', '!=', '=='],
  },
  durations: {
    read: (text) => void core.parseDuration(text),
    around: ['', '1'],
    pieces: [...ODD, '1h', 'ms', 's'],
  },
  'patterns of names': {
    read: (text) => void core.fitsPattern([text], 'a'.repeat(100)),
    around: [''],
    pieces: ['a', '*', '?', '.'],
  },
  'templates of requests': {
    read: (text) =>
      foreseen(() =>
        core.fillTemplate(text, {
          address: '10.0.0.1',
          port: 80,
          pod: 'a',
          namespace: 'b',
          labels: { a: 'b' },
        }),
      ),
    around: [''],
    pieces: [...ODD, '{pod}', '{label:', '{label:a}', '{address', '..', '%2f', '/'],
  },
  'texts for terminals': {
    read: (text) => void core.printable(text),
    around: [''],
    pieces: [...ODD, '\x1b[31m', '\ud800', '\u{1f600}', '\u2028'],
  },
  plans: { read: (text) => void parsePlan(text), around: ['', '{"v":1,"containers":['], pieces: JSON_PIECES },
  'annotations of pods': {
    read: (text) => {
      for (const name of ['inject', 'mode', 'wait', 'hook', 'containers', 'existing-hook', 'other'])
        annotationLayers('Pod', { [`linger.dev/${name}`]: text, [`linger.dev/${text}`]: text }, {});
    },
    around: ['', 'app,'],
    pieces: [...ODD, 'true', '30s', 'app,', 'Sleep'],
  },
  'published lags': {
    read: (text) => {
      const json = core.jsonIn(text) ?? text;
      const row = { scope: 'cluster', samples: 1, history: 1, reached: [1, 1], current: text };
      for (const each of [json, { v: 2, namespaces: { a: row }, consumers: {} }]) {
        plannedFromJson(each);
        consumersFromJson(each);
      }
      LagHistory.readPart({
        v: 1,
        key: 'a',
        latest: 1,
        reached: { samples: 1, seconds: 1 },
        slots: Array(8).fill([0, 1, text]),
      });
    },
    around: ['', '{"v":2,"namespaces":{', '{"asOf":1,"consumers":['],
    pieces: [...JSON_PIECES, '1.', '1.1,', 'zz', '.'],
  },
  expositions: {
    read: (text) => foreseen(() => parseExposition(text, new Set(['a', 'aa']))),
    around: ['', 'a{b="', 'a ', 'a{'],
    pieces: [...ODD, 'a{b="c"} 1\n', 'b="c",', '\\"', 'NaN', '1e9', '# EOF\n'],
  },
};

function foreseen(read: () => unknown): void {
  try {
    read();
  } catch (thrown) {
    if (!(thrown instanceof RangeError) && (thrown as Error).name !== 'MalformedExposition') throw thrown;
  }
}

/** Characters of the repeated part: what is quadratic takes four times as many steps for the double. */
const LENGTH = 4_096;
/** What a reader does once, whatever the length, and where it may stop by its limits only for the longer one. */
const SLACK = 2_000;

interface Shape {
  readonly before: string;
  readonly unit: string;
  readonly after: string;
}

describe.each(Object.entries(READERS))('%s', (_, { read, around, pieces }) => {
  const check = ({ before, unit, after }: Shape) => {
    const count = Math.ceil(LENGTH / unit.length);
    const stepsFor = (copies: number) => {
      const text = before + unit.repeat(copies) + after;
      return stepsOf(() => read(text), mostSteps(Buffer.byteLength(text)));
    };
    // An odd number of quotes ends nowhere.
    const once = Math.max(stepsFor(count), stepsFor(count + 1));
    expect(stepsFor(2 * count)).toBeLessThanOrEqual(2.2 * once + SLACK);
  };

  test.each(pieces)('take at most about twice as many steps for a text of double the length: %j', (unit) => {
    for (const before of around) check({ before, unit, after: '' });
  });

  test('take at most about twice as many steps for a text of double the length', () => {
    const shape = fc.record<Shape>({
      before: fc.constantFrom(...around),
      unit: fc.array(fc.constantFrom(...pieces), { minLength: 1, maxLength: 4 }).map((some) => some.join('')),
      after: fc.constantFrom('', ...pieces),
    });
    fc.assert(fc.property(shape, check), runs(100));
  });
});
