import type { ComponentChildren } from 'preact';
import type { RequestError } from './ask.ts';

/** What could not be read, and what to do about it. */
export function Failure({ failure }: { readonly failure: RequestError }) {
  return (
    <section class="failure" role="alert">
      <h1>{failure.code === 'no-token' ? 'This tab has no key to Linger' : 'This cannot be shown'}</h1>
      <p>{failure.message}</p>
    </section>
  );
}

/** A judgement in one word, recognisable by its shape as well as its colour. */
export function Verdict({
  tone,
  children,
}: {
  readonly tone: VerdictTone;
  readonly children: ComponentChildren;
}) {
  return (
    <span class={`verdict ${tone}`}>
      <span aria-hidden="true">{SHAPES[tone]}</span> {children}
    </span>
  );
}

export type VerdictTone = 'good' | 'bad' | 'idle' | 'open';

const SHAPES: Readonly<Record<VerdictTone, string>> = { good: '●', bad: '▲', idle: '○', open: '◇' };

/** Foreign names may be long, and may be written from right to left, so each is isolated from the text around it. */
export function Name({ children }: { readonly children: string }) {
  return <bdi class="name">{children}</bdi>;
}

/** Which workloads lose requests, and what that is based on. */
export function Headline(props: {
  readonly report: { readonly headline: string; readonly basis: readonly string[] };
}) {
  const { headline, basis } = props.report;
  return (
    <>
      <div role="status">
        <h1 class="headline">{headline}</h1>
      </div>
      {basis.map((each) => (
        <p key={each} class="quiet basis">
          {each}
        </p>
      ))}
    </>
  );
}

/** The head of a table: columns of text, then columns of numbers, some of which may be hidden. */
export function Head(props: {
  readonly words: readonly string[];
  readonly numbers?: readonly string[];
  readonly extra?: readonly string[];
}) {
  const { words, numbers = [], extra = [] } = props;
  const look = (each: string) => (extra.includes(each) ? 'number extra' : 'number');
  return (
    <thead>
      <tr>
        {[...words, ...numbers].map((each, index) => (
          <th key={each} scope="col" class={index < words.length ? undefined : look(each)}>
            {each}
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** Buttons of which one is pressed. @param of the values with their labels */
export function Choice<T extends string>(props: {
  readonly title: string;
  readonly of: readonly (readonly [value: T, words: string])[];
  readonly chosen: string | undefined;
  readonly onChoose: (value: T) => void;
}) {
  const { title, of, chosen, onChoose } = props;
  return (
    <fieldset class="examples">
      <legend>{title}</legend>
      {of.map(([value, words]) => (
        <button key={value} type="button" aria-pressed={value === chosen} onClick={() => onChoose(value)}>
          {words}
        </button>
      ))}
    </fieldset>
  );
}
