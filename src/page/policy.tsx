import { useEffect, useState } from 'preact/hooks';
import { asError } from '../core/api/index.ts';
import type { WhatIf } from '../core/report/index.ts';
import { askWorker } from './asking.ts';
import { BeforeAfter } from './before-after.tsx';
import { Takeaway } from './copied.tsx';
import { Choice } from './parts.tsx';

type Hook = 'Auto' | 'Hold';
const HOOKS: readonly (readonly [Hook, string])[] = [
  ['Auto', 'A fixed wait'],
  ['Hold', 'Hold'],
];
type Kept = 'Keep' | 'Extend';
const KEPT: readonly (readonly [Kept, string])[] = [
  ['Keep', 'Keep own hooks'],
  ['Extend', 'Extend own sleeps'],
];

/** The effect of a policy for all namespaces of the manifests, with Linger’s webhook installed. */
export function Policy({ judged }: { readonly judged: number }) {
  const [seconds, setSeconds] = useState(30);
  const [existingHook, setExistingHook] = useState<Kept>('Keep');
  const [hook, setHook] = useState<Hook>('Auto');
  const [most, setMost] = useState(60);
  const [isOpen, setOpen] = useState(false);
  const [trial, setTrial] = useState<WhatIf>();
  const [failure, setFailure] = useState('');
  useEffect(() => {
    if (!isOpen) return;
    let isLatest = true;
    const hold = hook === 'Hold' ? { hook, hold: { max: `${most}s` } } : {};
    const fields = { wait: { from: 'Fixed', fixed: `${seconds}s` }, existingHook, ...hold };
    askWorker('whatIf', fields).then(
      (answer) => {
        if (!isLatest) return;
        setTrial(answer);
        setFailure('');
      },
      (error: unknown) => isLatest && setFailure(asError(error).message),
    );
    return () => {
      isLatest = false;
    };
  }, [judged, seconds, existingHook, hook, most, isOpen]);
  return (
    <details class="what-if" open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>What if a policy said otherwise?</summary>
      <div class="filters">
        <label class="search">
          <span>
            Wait{hook === 'Hold' ? ', without an answer' : ''}: {seconds} s
          </span>
          <input
            type="range"
            min={0}
            max={120}
            value={seconds}
            onInput={({ currentTarget: { value } }) => setSeconds(Number(value))}
          />
        </label>
        <Choice title="Hook" of={HOOKS} chosen={hook} onChoose={setHook} />
        {hook === 'Hold' && (
          <label class="search">
            <span>Hold for at most: {most} s</span>
            <input
              type="range"
              min={5}
              max={300}
              value={most}
              onInput={({ currentTarget: { value } }) => setMost(Number(value))}
            />
          </label>
        )}
        <Choice title="Hooks of their own" of={KEPT} chosen={existingHook} onChoose={setExistingHook} />
      </div>
      {hook === 'Hold' && (
        <p>
          What it would be in a cluster where Linger runs with Hold: each pod is kept from SIGTERM until
          everything that sends to it has dropped it, for {most} s at most. A manifest cannot carry Hold: the
          patches above stay as they are. Where Linger cannot be asked, its pods wait {seconds} s.
        </p>
      )}
      {failure !== '' && <p role="alert">{failure}</p>}
      {trial !== undefined && (
        <>
          <BeforeAfter before={trial.before} after={trial.after} />
          <Apply title="1. Apply with mode Audit: it changes no pod" text={trial.audit} name="audit.yaml" />
          <Apply title="2. Then with mode Enforce" text={trial.enforce} name="enforce.yaml" />
        </>
      )}
    </details>
  );
}

function Apply(props: { readonly title: string; readonly text: string; readonly name: string }) {
  const { title, text, name } = props;
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <Takeaway name={name} text={text} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so the keyboard must reach it */}
      <pre tabIndex={0}>
        <span>{text}</span>
      </pre>
    </section>
  );
}
