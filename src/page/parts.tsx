import type { ComponentChildren } from 'preact';
import type { RequestError } from './ask.ts';

/** What could not be had, and what to do. */
export function Failure({ failure }: { readonly failure: RequestError }) {
  return (
    <section class="failure" role="alert">
      <h1>{failure.code === 'no-token' ? 'This tab has no key to Linger' : 'This cannot be shown'}</h1>
      <p>{failure.message}</p>
    </section>
  );
}

/** A word of judgement, by its shape as well as its colour. */
export function Verdict({ tone, children }: { readonly tone: Tone; readonly children: ComponentChildren }) {
  return (
    <span class={`verdict ${tone}`}>
      <span aria-hidden="true">{SHAPES[tone]}</span> {children}
    </span>
  );
}

export type Tone = 'good' | 'bad' | 'idle' | 'open';

const SHAPES: Readonly<Record<Tone, string>> = { good: '●', bad: '▲', idle: '○', open: '◇' };

/** Names of others may be long, and may read from right to left: each is isolated from the text around it. */
export function Name({ children }: { readonly children: string }) {
  return <bdi class="name">{children}</bdi>;
}

/** The head of a table: columns of words, then columns of numbers. */
export function Head(props: { readonly words: readonly string[]; readonly numbers?: readonly string[] }) {
  const { words, numbers = [] } = props;
  return (
    <thead>
      <tr>
        {[...words, ...numbers].map((each, index) => (
          <th key={each} scope="col" class={index < words.length ? undefined : 'number'}>
            {each}
          </th>
        ))}
      </tr>
    </thead>
  );
}
