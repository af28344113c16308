import { useEffect, useRef, useState } from 'preact/hooks';
import type { PlaygroundProblem, PlaygroundReport } from '../dashboard/index.ts';
import { askServer, RequestError } from './ask.ts';
import { ExplainedPlan } from './explained.tsx';
import { Choice, Failure } from './parts.tsx';

interface Texts {
  readonly manifest: string;
  readonly policies: string;
}

/** By the name in the address. The first one greets. */
const SHOWN: Readonly<Record<string, readonly [title: string, manifest: string, policies?: string]>> = {
  web: ['A web Deployment', 'web'],
  'own-hook': ['A hook of its own', 'own-hook', 'extend-sleeps'],
  team: ['A team’s own wait', 'web', 'team-override'],
  audit: ['Audit first', 'web', 'first-week-audit'],
  none: ['Nothing to wait for', 'nothing-to-wait-for'],
};

const EXAMPLE_WORDS = Object.entries(SHOWN).map(([name, [title]]) => [name, title] as const);

/** After the last key: long enough for a word, too short to notice. */
const PAUSE_MS = 150;

function textsOf(example: string): Texts {
  const [, manifest, policies] = SHOWN[example] ?? SHOWN.web ?? [];
  return {
    manifest: EXAMPLES.manifests[manifest ?? ''] ?? '',
    policies: EXAMPLES.policies[policies ?? ''] ?? '',
  };
}

/** A file that is dropped beside the texts does not take the place of the page. */
const stay = (event: DragEvent) => event.dataTransfer?.types.includes('Files') && event.preventDefault();
for (const type of ['dragover', 'drop'] as const) addEventListener(type, stay);

export function Playground() {
  const asked = new URLSearchParams(location.search).get('example');
  const [example, setExample] = useState<string | undefined>(
    asked !== null && asked in SHOWN ? asked : 'web',
  );
  const [texts, setTexts] = useState(() => textsOf(example ?? 'web'));
  const [report, setReport] = useState<PlaygroundReport>();
  const [failure, setFailure] = useState<RequestError>();

  useEffect(() => {
    const ending = new AbortController();
    const explain = async () => {
      try {
        setReport(await askServer<PlaygroundReport>('/explain', texts, ending.signal));
        setFailure(undefined);
      } catch (error) {
        if (error instanceof RequestError) setFailure(error);
      }
    };
    const timer = setTimeout(() => void explain(), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      ending.abort();
    };
  }, [texts]);

  const choose = (name: string) => {
    history.replaceState(null, '', `${location.pathname}?example=${name}`);
    setExample(name);
    setTexts(textsOf(name));
  };
  const change = (part: Partial<Texts>) => {
    if (example !== undefined) history.replaceState(null, '', location.pathname);
    setExample(undefined);
    setTexts({ ...texts, ...part });
  };
  const problems = report?.problems ?? [];
  return (
    <div class="playground">
      <section class="inputs" aria-label="Manifest and policy">
        <Choice title="Examples" of={EXAMPLE_WORDS} chosen={example} onChoose={choose} />
        <Editor
          label="Manifest"
          hint="Paste or drop YAML or JSON: Deployments, Pods, Services …"
          text={texts.manifest}
          problems={problems.filter((each) => each.in === 'manifest')}
          rows={26}
          onChange={(manifest) => change({ manifest })}
        />
        <Editor
          label="Policy"
          hint="Optional. Without one, the built-in values apply."
          text={texts.policies}
          problems={problems.filter((each) => each.in === 'policies')}
          rows={8}
          onChange={(policies) => change({ policies })}
        />
      </section>
      <section class="results" aria-label="Result">
        {failure !== undefined && <Failure failure={failure} />}
        {failure === undefined && report !== undefined && <Results report={report} />}
      </section>
    </div>
  );
}

function Results({ report }: { readonly report: PlaygroundReport }) {
  const { plans, problems, diff } = report;
  return (
    <>
      <div role="status">
        <h1 class="headline">{headlineOf(report)}</h1>
      </div>
      {plans.map((plan) => (
        <ExplainedPlan
          key={`${plan.kind}/${plan.namespace}/${plan.name}:${plan.line}`}
          plan={plan}
          because={plan.because}
        />
      ))}
      {diff !== '' && (
        <section class="diff" aria-label="What changes in the manifest">
          <h2>What changes in the manifest</h2>
          <Diff text={diff} />
        </section>
      )}
      {diff === '' && plans.length > 0 && problems.length === 0 && (
        <p class="quiet">Nothing changes in the manifest.</p>
      )}
    </>
  );
}

function headlineOf({ plans, problems }: PlaygroundReport): string {
  if (plans.length === 0)
    return problems.length > 0 ? 'This cannot be read as it is.' : 'No workload yet: paste a manifest.';
  const waiting = plans.filter(({ outcome, mode }) => outcome === 'inject' && mode !== 'Audit');
  const watched = plans.filter(({ outcome, mode }) => outcome === 'inject' && mode === 'Audit');
  const seconds = [...new Set(waiting.map(({ waitSeconds }) => waitSeconds ?? 0))].toSorted((a, b) => a - b);
  const span =
    seconds.length > 1 ? `${seconds[0]} to ${seconds.at(-1)} seconds` : `${seconds[0] ?? 0} seconds`;
  const [only] = plans;
  if (plans.length === 1 && only !== undefined) {
    if (waiting.length === 1) return `Pods of ${only.name} would wait ${span} before SIGTERM.`;
    if (watched.length === 1)
      return `Pods of ${only.name} would wait ${only.waitSeconds} seconds, but mode Audit changes nothing.`;
    return `Pods of ${only.name} would not wait.`;
  }
  if (waiting.length === 0) return `None of ${plans.length} workloads would wait.`;
  return `${waiting.length} of ${plans.length} workloads would wait: ${span} before SIGTERM.`;
}

/** Hunks with their signs; the two lines with the file's name say nothing here. */
function Diff({ text }: { readonly text: string }) {
  const lines = text.split('\n').slice(2, -1);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so the keyboard must reach it
    <pre tabIndex={0}>
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

interface EditorProps {
  readonly label: string;
  readonly hint: string;
  readonly text: string;
  readonly problems: readonly PlaygroundProblem[];
  readonly rows: number;
  readonly onChange: (text: string) => void;
}

/** A text with the numbers of its lines; what is wrong with it stands below, and leads to its line. */
function Editor({ label, hint, text, problems, rows, onChange }: EditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const id = `text-${label.toLowerCase()}`;
  const wrong = new Set(problems.map(({ line }) => line));
  const count = text.split('\n').length;

  const drop = async (event: DragEvent) => {
    const [file] = event.dataTransfer?.files ?? [];
    if (file !== undefined) onChange(await file.text());
  };
  const goTo = (line: number) => {
    const field = area.current;
    if (field === null) return;
    const lines = text.split('\n');
    const start = lines.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
    field.focus();
    field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    field.scrollTop = (field.scrollHeight / lines.length) * (line - 4);
  };
  return (
    <div class="editor">
      <label for={id}>
        {label} <small id={`${id}-hint`}>{hint}</small>
      </label>
      <div class="lines">
        <div class="gutter" ref={gutter} aria-hidden="true">
          {Array.from({ length: count }, (_, index) => (
            <span key={index} class={wrong.has(index + 1) ? 'wrong' : undefined}>
              {index + 1}
            </span>
          ))}
        </div>
        <textarea
          id={id}
          ref={area}
          rows={rows}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          wrap="off"
          aria-describedby={`${id}-hint ${id}-problems`}
          aria-invalid={problems.length > 0}
          value={text}
          onInput={({ currentTarget: { value } }) => onChange(value)}
          onScroll={({ currentTarget: { scrollTop } }) => {
            if (gutter.current !== null) gutter.current.scrollTop = scrollTop;
          }}
          onDrop={(event) => void drop(event)}
        />
      </div>
      <ul class="problems" id={`${id}-problems`} aria-live="polite">
        {problems.map(({ line, text: reason }) => (
          <li key={`${line} ${reason}`}>
            {line === null ? (
              reason
            ) : (
              <>
                <button type="button" onClick={() => goTo(line)}>
                  Line {line}
                </button>
                {reason}
              </>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
