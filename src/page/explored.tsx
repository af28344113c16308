import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';

/**
 * A picture whose values are read by pointing at it, or one after the other with the arrow keys. To a screen reader, it is a
 * slider over its values.
 */
export function Explored(props: {
  readonly label: string;
  /** How many values there are. */
  readonly count: number;
  readonly inWords: (index: number) => string;
  /**
   * The index of the value near a point, whose coordinates are 0 at the left and the top, and 1 at the right and the bottom;
   * undefined: none.
   */
  readonly near: (x: number, y: number) => number | undefined;
  /** Called to open a value. */
  readonly onOpen?: (index: number) => void;
  /** @param index the value that is currently read */
  readonly children: (index: number | undefined) => ComponentChildren;
}) {
  const { label, count, inWords, near, onOpen, children } = props;
  const [chosen, choose] = useState<number>();
  const index = chosen === undefined || chosen >= count ? undefined : chosen;
  const point = ({ currentTarget, clientX, clientY }: PointerEvent) => {
    const { left, top, width, height } = (currentTarget as Element).getBoundingClientRect();
    choose(near((clientX - left) / width, (clientY - top) / height));
  };
  const press = (event: KeyboardEvent) => {
    const steps: Readonly<Record<string, number>> = {
      ArrowRight: 1,
      ArrowUp: 1,
      ArrowLeft: -1,
      ArrowDown: -1,
      PageUp: 10,
      PageDown: -10,
      Home: -count,
      End: count,
    };
    const step = steps[event.key];
    if (event.key === 'Enter' && index !== undefined) onOpen?.(index);
    if (step === undefined || count === 0) return;
    event.preventDefault();
    // The list of workloads handles arrow keys in its own way.
    event.stopPropagation();
    const from = index ?? (step > 0 ? -1 : count);
    choose(Math.min(count - 1, Math.max(0, from + step)));
  };
  if (count === 0) return <>{children(undefined)}</>;
  return (
    <div class="explored">
      <div
        role="slider"
        tabIndex={0}
        aria-label={label}
        aria-valuemin={1}
        aria-valuemax={count}
        aria-valuenow={(index ?? 0) + 1}
        aria-valuetext={index === undefined ? 'no value is chosen' : inWords(index)}
        class={onOpen && 'leads'}
        onPointerMove={point}
        onPointerDown={point}
        onClick={() => index !== undefined && onOpen?.(index)}
        onKeyDown={press}
      >
        {children(index)}
      </div>
      <p class="readout" aria-hidden="true">
        {index === undefined
          ? `Point at it, or press the arrow keys, to read its values${onOpen ? '; Enter opens' : ''}.`
          : inWords(index)}
      </p>
    </div>
  );
}
