import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { discoveryConsumerSpec, fillTemplate, type TemplateValues } from '../../../src/core/api/index.ts';
import { runs } from '../../property/runs.ts';

const POD: TemplateValues = {
  address: '10.1.2.3',
  port: 8080,
  pod: 'web-1',
  namespace: 'shop',
  labels: { app: 'orders', empty: '' },
};

it.each([
  ['{pod}.{namespace}/{address}:{port}', 'web-1.shop/10.1.2.3:8080'],
  ['{"a": {"ip": "{address}"}}', '{"a": {"ip": "10.1.2.3"}}'],
  ['{label:app}', 'orders'],
  ['{ip} {label:} {{pod}} {Pod}', '{ip} {label:} {web-1} {Pod}'],
])('fills %s', (template, filled) => {
  expect(fillTemplate(template, POD)).toBe(filled);
});

it('fills nothing into what it has filled in', () => {
  expect(fillTemplate('{label:app}', { ...POD, labels: { app: 'pod' } })).toBe('pod');
});

it.each([
  ['a label that is missing', '{label:tier}', {}],
  ['an empty label', '{label:empty}', {}],
  ['a label by a name of objects', '{label:constructor}', {}],
  ['no port', '{port}', { port: undefined }],
  ['a longer result', '{pod}'.repeat(400), { pod: 'x'.repeat(253) }],
] as const)('refuses %s', (_, template, change) => {
  expect(() => fillTemplate(template, { ...POD, ...change })).toThrow(RangeError);
});

/** What an attacker would put into names and labels, were they allowed to: the API server's own rules are not relied on. */
const hostile = fc.oneof(
  fc.constantFrom(
    ...[
      '..',
      '.',
      '../..',
      '%2e%2e',
      '/',
      '\\\\evil',
      '@evil',
      '#',
      '?',
      '&x=1',
      '\r\nHost: evil',
      '\0',
      '"',
      '{pod}',
    ],
    ...['a\r\nb', 'a/../b', 'a b', 'ä', '-a', 'a-', '.a', '$&', '$1', ' a', '<a>', "'", '`', 'a\n'],
  ),
  fc.string({ unit: 'binary' }),
  fc.stringMatching(/^[a-z0-9][-a-z0-9.]{0,20}$/),
);
const values = fc.record({
  address: fc.oneof(fc.ipV4(), fc.ipV6(), hostile),
  port: fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: undefined }),
  pod: hostile,
  namespace: hostile,
  labels: fc.record({ app: hostile }),
});
const placeholder = fc.constantFrom('{address}', '{port}', '{pod}', '{namespace}', '{label:app}');
const piece = fc.oneof(placeholder, fc.constantFrom('/', '?', '&', '=', ':', 'x', '.', '%20', '@', '//'));
const template = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''));

function filled(text: string, pod: TemplateValues): string | undefined {
  try {
    return fillTemplate(text, pod);
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}

describe('whatever a pod is called', () => {
  it('a request goes to the host that the author wrote, below the path that he wrote', () => {
    fc.assert(
      fc.property(template, values, (rest, pod) => {
        const url = `http://registry.example:8080/v1/{pod}/${rest}`;
        const spec = { measure: { declared: { lag: '1s' } }, appliesTo: { namespaceSelector: {} } };
        const deregister = { http: { method: 'PUT', url } };
        // Segments that lead out of the path are the only reason to refuse one.
        const climbs = url
          .replace(/\?.*$/s, '')
          .split('/')
          .some((each) => each === '.' || each === '..');
        expect(discoveryConsumerSpec.safeParse({ ...spec, deregister }).success).toBe(!climbs);
        if (climbs) return;
        const text = filled(url, pod);
        if (text === undefined) return;
        const read = new URL(text);
        expect(read.origin).toBe('http://registry.example:8080');
        expect(read.username + read.password + read.hash).toBe('');
        // Values open no query and end no segment: with harmless ones the request has as many of each.
        const plain = new URL(fillTemplate(url, { ...POD, address: '10.1.2.3', labels: { app: 'a' } }));
        expect(read.pathname.split('/').length).toBe(plain.pathname.split('/').length);
        expect([...read.searchParams].length).toBe([...plain.searchParams].length);
        expect(text.length).toBeLessThanOrEqual(16_384);
      }),
      runs(1_000),
    );
  });

  it('a header stays one header, and a JSON document the one that its author wrote', () => {
    fc.assert(
      fc.property(values, (pod) => {
        const header = filled('{pod} {label:app}', pod);
        expect(header ?? '').toMatch(/^[ -~]*$/);
        const body = filled('{"pod": "{pod}", "ip": "{address}", "in": "{namespace}"}', pod);
        if (body !== undefined)
          expect(JSON.parse(body)).toEqual({ pod: pod.pod, ip: pod.address, in: pod.namespace });
      }),
      runs(1_000),
    );
  });
});
