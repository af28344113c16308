/** Hunks with their signs; the two lines with the file's name say nothing here. */
export function Diff({ text }: { readonly text: string }) {
  const lines = text.split('\n').slice(2, -1);
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
