import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type LabelRequirement,
  type Labels,
  parseLabelQuery,
  selects,
} from '../../../src/core/api/selector.ts';

const In = (key: string, ...values: string[]): LabelRequirement => ({ key, operator: 'In', values });
const NotIn = (key: string, ...values: string[]): LabelRequirement => ({ key, operator: 'NotIn', values });
const Exists = (key: string): LabelRequirement => ({ key, operator: 'Exists' });
const DoesNotExist = (key: string): LabelRequirement => ({ key, operator: 'DoesNotExist' });

describe('a label query is read as kubectl reads it', () => {
  it.each<[query: string, ...requirements: LabelRequirement[]]>([
    ['app=web', In('app', 'web')],
    ['app==web', In('app', 'web')],
    [' app = web ', In('app', 'web')],
    ['app!=web', NotIn('app', 'web')],
    ['app', Exists('app')],
    ['!app', DoesNotExist('app')],
    ['! app', DoesNotExist('app')],
    ['app in (web)', In('app', 'web')],
    ['app in(web, api)', In('app', 'web', 'api')],
    ['app notin (web,api)', NotIn('app', 'web', 'api')],
    ['app=', In('app', '')],
    ['app=,tier', In('app', ''), Exists('tier')],
    ['app!=', NotIn('app', '')],
    ['app in (,web)', In('app', '', 'web')],
    ['app in (web,)', In('app', 'web', '')],
    [
      'app=web,tier!=cache,!old,zone',
      In('app', 'web'),
      NotIn('tier', 'cache'),
      DoesNotExist('old'),
      Exists('zone'),
    ],
    ['app in (a,b),tier', In('app', 'a', 'b'), Exists('tier')],
    ['app.kubernetes.io/name=web_1.2', In('app.kubernetes.io/name', 'web_1.2')],
    ['in in (notin)', In('in', 'notin')],
    ['notin=in', In('notin', 'in')],
    ['app=web,app!=api', In('app', 'web'), NotIn('app', 'api')],
  ])('%s', (query, ...requirements) => {
    expect(parseLabelQuery(query)).toEqual({ matchExpressions: requirements });
  });

  it.each([
    '',
    ' ',
    ',',
    'app=web,',
    ',app=web',
    'app=web,,tier',
    'app=web tier=cache',
    'app=a=b',
    'app in',
    'app in web',
    'app in (web',
    'app in ()',
    'app in (web)x',
    'app in (web api)',
    'app notin ((web))',
    '!',
    '!!app',
    '!app=web',
    '=web',
    '(app)',
    'app===web',
    'replicas>3',
    'replicas < 3',
    '-app=web',
    'app=-web',
    'App.Example/name=web',
    '/name=web',
    'a/b/c=web',
    `app=${'x'.repeat(64)}`,
    'app=wéb',
  ])('refuses %j', (query) => {
    expect(parseLabelQuery(query)).toBeUndefined();
  });

  const key = fc.constantFrom('app', 'tier', 'app.kubernetes.io/name', 'in', 'notin');
  const value = fc.constantFrom<string[]>('web', 'api', '', 'in', '1');
  // `in ()` is refused, as kubectl does.
  const values = fc.uniqueArray(value, { minLength: 1, maxLength: 3 }).filter((all) => all.join('') !== '');
  const space = fc.constantFrom('', ' ');
  const written = fc.oneof(
    fc.tuple(key, fc.constantFrom('=', '==', '!='), value, space).map(([k, operator, v, s]) => ({
      text: `${k}${s}${operator}${s}${v}`,
      holds: (labels: Labels) => (labels[k] === v) === (operator !== '!='),
    })),
    fc.tuple(key, fc.constantFrom('in', 'notin'), values, space).map(([k, operator, all, s]) => ({
      text: `${k} ${operator}${s}(${all.join(`,${s}`)}${s})`,
      holds: (labels: Labels) => {
        const held = labels[k];
        return (held !== undefined && all.includes(held)) === (operator === 'in');
      },
    })),
    fc.tuple(key, fc.boolean()).map(([k, absent]) => ({
      text: absent ? `!${k}` : k,
      holds: (labels: Labels) => (labels[k] === undefined) === absent,
    })),
  );
  const labels = fc.dictionary(key, value);

  it('and then selects what has all that is asked', () => {
    fc.assert(
      fc.property(fc.array(written, { minLength: 1, maxLength: 4 }), labels, (all, held) => {
        const selector = parseLabelQuery(all.map(({ text }) => text).join(','));
        expect(selector).toBeDefined();
        expect(selects(selector ?? {}, held)).toBe(all.every(({ holds }) => holds(held)));
      }),
    );
  });

  it('no text makes it fail, or take long', () => {
    const text = fc.string({ unit: fc.constantFrom(...'ab=!(), in<>/'), maxLength: 200 });
    fc.assert(fc.property(text, (query) => void parseLabelQuery(query)));
    expect(parseLabelQuery('!'.repeat(100_000))).toBeUndefined();
    expect(parseLabelQuery(`${' '.repeat(100_000)}<`)).toBeUndefined();
  });
});
