import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { yamlText } from '../../src/cli/rendering.ts';

describe('YAML that is printed', () => {
  it.each(['no', 'on', 'y', 'Off', '1_000', '0b11', '12:30', '2026-01-01'])(
    'kubectl, which reads YAML 1.1, takes the name %s for a text',
    (name) => {
      expect(yamlText({ namespaces: [name] })).toBe(`namespaces:\n  - "${name}"\n`);
    },
  );

  it.each(['x\u202ey', 'x\u200by', 'x\u2028y', 'a\u007fb', 'x\u{e0041}y', 'two\nli\u2066nes\n'])(
    'the text %j brings no control character to a terminal, and stays the same text',
    (name) => {
      const text = yamlText({ [name]: name });
      expect(text).not.toMatch(/[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/u);
      expect(parse(text)).toEqual({ [name]: name });
    },
  );

  it('several lines stay a block', () => {
    expect(yamlText({ text: 'a\nb\n' })).toBe('text: |\n  a\n  b\n');
  });
});
