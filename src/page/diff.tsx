import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';

/**
 * What changes, like `diff -u`: hunks with their signs, but without the two lines with the file's name, which would say
 * nothing here.
 */
export function Diff({ before, after }: { readonly before: string; readonly after: string }) {
  const options = { context: 3, headerOptions: FILE_HEADERS_ONLY };
  const lines = createTwoFilesPatch('', '', before, after, '', '', options).split('\n').slice(2, -1);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so the keyboard must reach it
    <pre class="diff" tabIndex={0}>
      {lines.map((line, index) => (
        <span key={index} class={SIGNS[line[0] ?? ' ']}>
          {line}
          {'\n'}
        </span>
      ))}
    </pre>
  );
}

const SIGNS: Readonly<Record<string, string>> = { '+': 'added', '-': 'removed', '@': 'hunk', ' ': 'same' };
