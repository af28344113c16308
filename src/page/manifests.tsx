import { render } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { asError } from '../core/api/index.ts';
import { POLICIES } from '../core/report/index.ts';
import type { Overview, Questions } from './asked.ts';
import { askWorker, followProgress } from './asking.ts';
import { copyText, download } from './copied.tsx';
import { chosenIn, filesIn } from './drop.ts';
import type { DroppedFile, TakenFor } from './dropped.ts';
import { Editor, keepForUndo } from './editor.tsx';
import { openedIn, useOpened, withOpened } from './fragment.ts';
import { fragmentOf, type Linked, LONGEST_LINK, linkedIn } from './link.ts';
import './page.css';
import { Choice, Headline, Name } from './parts.tsx';
import { Policy } from './policy.tsx';
import { type Query, ROWS, WorkloadList } from './workload-list.tsx';

// The page for manifests: a single file, which makes its own decisions and requests nothing from a server.

/** Views by their name in the address. The first one is the start page. */
const SHOWN: Readonly<Record<string, readonly [title: string, manifest: string, policies?: string]>> = {
  web: ['A web Deployment', 'web'],
  'own-hook': ['A hook of its own', 'own-hook', 'extend-sleeps'],
  team: ['A team’s own wait', 'web', 'team-override'],
  audit: ['Audit first', 'web', 'first-week-audit'],
  none: ['Nothing to wait for', 'nothing-to-wait-for'],
};
const EXAMPLE_WORDS = Object.entries(SHOWN).map(([name, [title]]) => [name, title] as const);

function textsOf(example: string): Linked {
  const [, manifest, policies] = SHOWN[example] ?? SHOWN.web ?? [];
  return {
    manifest: EXAMPLES.manifests[manifest ?? ''] ?? '',
    policies: EXAMPLES.policies[policies ?? ''] ?? '',
  };
}

/**
 * The pause after the last key press: only the last of several quick ones counts, because the worker handles one text at a
 * time.
 */
const PAUSE_MS = 20;

interface State {
  readonly texts: Linked;
  readonly taken: readonly TakenFor[];
}

/** The worker judges one input after another. Of those that arrive in the meantime, only the last is judged. */
class Judging {
  #running = false;
  #next: Linked | undefined;

  async judge(texts: Linked, done: (overview: Overview) => void): Promise<void> {
    this.#next = texts;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#next !== undefined) {
        const { manifest, policies }: Linked = this.#next;
        this.#next = undefined;
        done(await askWorker('judge', manifest, policies));
      }
    } finally {
      this.#running = false;
    }
  }
}

const judging = new Judging();

function Page({ linked }: { readonly linked: Linked | undefined }) {
  const [{ texts, taken }, setState] = useState<State>({ texts: linked ?? textsOf('web'), taken: [] });
  const [overview, setOverview] = useState<Overview>();
  const [judged, setJudged] = useState(0);
  const [failure, setFailure] = useState('');
  const [progress, setProgress] = useState('');
  useEffect(
    () => followProgress(({ what, done, total }) => setProgress(`${done} of ${total} ${what} …`)),
    [],
  );
  const [reads, setReads] = useState(0);
  const isExample = Object.keys(SHOWN).find((each) => {
    const { manifest, policies } = textsOf(each);
    return manifest === texts.manifest && policies === texts.policies;
  });

  useEffect(() => {
    const judge = () =>
      judging
        .judge(texts, (next) => {
          setOverview(next);
          setJudged((count) => count + 1);
          setFailure('');
          setProgress('');
        })
        .catch((error: unknown) => setFailure(asError(error).message));
    const timer = setTimeout(() => void judge(), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [texts, reads]);

  const read = async (files: readonly DroppedFile[]) => {
    if (files.length === 0) return;
    try {
      const next = await askWorker('read', files);
      // Dropped files replace an unchanged example, but are added to anything else.
      const kept = isExample === undefined ? texts.manifest : '';
      setState({ texts: { ...texts, manifest: kept }, taken: next });
      setReads(reads + 1);
    } catch (error) {
      setFailure(asError(error).message);
    }
  };
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    const stay = (event: DragEvent) => event.preventDefault();
    const drop = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      void filesIn(event).then((files) => latest.current(files));
    };
    addEventListener('dragover', stay);
    addEventListener('drop', drop);
    return () => {
      removeEventListener('dragover', stay);
      removeEventListener('drop', drop);
    };
  }, []);

  const change = (part: Partial<Linked>) =>
    setState((state) => ({ ...state, texts: { ...state.texts, ...part } }));
  const choose = (name: string) => {
    const next = textsOf(name);
    keepForUndo('Manifests', texts.manifest, next.manifest);
    keepForUndo('Policies', texts.policies, next.policies);
    change(next);
    document.getElementById('text-manifests')?.focus();
  };
  const problems = [...(overview?.problems ?? []), ...(overview?.notices ?? [])];
  const inFiles = problems.filter(({ file }) => file !== PASTED && file !== POLICIES);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header>
        <span class="mark">Linger</span>
        <span class="quiet">Nothing leaves this page: it decides in your browser.</span>
      </header>
      <main id="main" tabIndex={-1}>
        <div class="manifests">
          <section class="inputs" aria-label="Manifests and policies">
            <Drop read={(files) => void read(files)} />
            <Taken taken={taken} overview={overview} problems={inFiles} />
            <Editor
              label="Manifests"
              hint="Paste YAML or JSON: Deployments, Pods, Services …"
              text={texts.manifest}
              problems={problems.filter(({ file }) => file === PASTED)}
              rows={18}
              onChange={(manifest) => change({ manifest })}
            />
            <Editor
              label="Policies"
              hint="Optional. Without one, the built-in values apply."
              text={texts.policies}
              problems={problems.filter(({ file }) => file === POLICIES)}
              rows={5}
              onChange={(policies) => change({ policies })}
            />
            <Choice title="Examples" of={EXAMPLE_WORDS} chosen={isExample} onChoose={choose} />
            <p class="quiet">An example takes the place of the text; Ctrl+Z brings yours back.</p>
          </section>
          <section class="results" aria-label="Result">
            {failure !== '' && <p role="alert">{failure}</p>}
            {failure === '' && (overview === undefined || progress !== '') && (
              <p class="quiet">{progress || 'Reading …'}</p>
            )}
            {overview !== undefined && (
              <>
                <Headline report={{ headline: headlineOf(overview), basis: overview.basis }} />
                <Workloads overview={overview} judged={judged} />
                {overview.summary.workloads > 0 && (
                  <>
                    <Tools policies={texts.policies} />
                    <Policy judged={judged} />
                  </>
                )}
              </>
            )}
          </section>
        </div>
      </main>
    </>
  );
}

type Listed = ReturnType<Questions['list']>;

/** @param judged incremented with each judgement */
function Workloads({ overview, judged }: { readonly overview: Overview; readonly judged: number }) {
  const [query, setQuery] = useState<Query>({ search: '', sort: 'fate', limit: ROWS });
  const [list, setList] = useState<Listed>();
  const [opened, open] = useOpened();
  // Before the browser paints, which takes tens of milliseconds beside a long text.
  useLayoutEffect(() => {
    let isLatest = true;
    void askWorker('list', { ...query, open: opened }).then((answer) => isLatest && setList(answer));
    return () => {
      isLatest = false;
    };
  }, [query, opened, judged]);
  return (
    <WorkloadList
      overview={overview}
      list={list}
      query={query}
      change={(part) => setQuery((last) => ({ ...last, ...part }))}
      opened={opened}
      open={open}
      source={{ detailOf: (address) => askWorker('detail', address), patchHint: HINT, version: judged }}
    />
  );
}

const HINT = 'The manifest as linger inject writes it.';

/** The name that the worker uses for the pasted text. */
const PASTED = 'manifest.yaml';

function headlineOf({ headline, summary, problems, files }: Overview): string {
  if (summary.workloads > 0) return headline;
  if (problems.length > 0) return 'This cannot be read as it is.';
  const others = files.reduce((sum, each) => sum + each.others, 0);
  return others > 0
    ? `No workload among ${others} ${others === 1 ? 'object' : 'objects'}: add the Deployments that belong to them.`
    : 'No workload yet: paste or drop manifests.';
}

function Drop({ read }: { readonly read: (files: readonly DroppedFile[]) => void }) {
  const choose = (folder: boolean) => {
    const input = Object.assign(document.createElement('input'), { type: 'file', multiple: true });
    input.webkitdirectory = folder;
    input.addEventListener('change', () => read(chosenIn(input)));
    input.click();
  };
  return (
    <div class="drop">
      <p>
        Drop a folder, files or a zip anywhere,{' '}
        <button type="button" onClick={() => choose(true)}>
          choose a folder
        </button>{' '}
        or{' '}
        <button type="button" onClick={() => choose(false)}>
          files
        </button>
      </p>
    </div>
  );
}

/** All files that were dropped, and how each was interpreted. */
function Taken(props: {
  readonly taken: readonly TakenFor[];
  readonly overview: Overview | undefined;
  readonly problems: Overview['problems'];
}) {
  const { taken, overview, problems } = props;
  const read = overview?.files.filter(({ file }) => file !== PASTED) ?? [];
  if (read.length + taken.length + problems.length === 0) return null;
  const lines = [
    ...taken.map(({ path, as }) => [path, as] as const),
    ...problems.map(({ file, line, text }) => [line === null ? file : `${file}:${line}`, text] as const),
    ...read.map(({ file, workloads, others }) => [file, contentOf(workloads, others)] as const),
  ];
  return (
    <details class="taken" open={taken.length + problems.length > 0}>
      <summary>
        {read.length} {read.length === 1 ? 'file' : 'files'} read
        {taken.length + problems.length > 0 && `; ${taken.length + problems.length} to look at`}
      </summary>
      <ul>
        {lines.slice(0, MOST_LINES).map(([what, as]) => (
          <li key={what + as}>
            <Name>{what}</Name>: {as}
          </li>
        ))}
        {lines.length > MOST_LINES && <li>and {lines.length - MOST_LINES} more</li>}
      </ul>
    </details>
  );
}

const MOST_LINES = 500;

function contentOf(workloads: number, others: number): string {
  if (workloads + others === 0) return 'no Kubernetes object';
  const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`;
  if (workloads === 0) return counted(others, 'other object');
  return `${counted(workloads, 'workload')}${others > 0 ? `, ${counted(others, 'other object')}` : ''}`;
}

/** Tools that apply to all workloads. */
function Tools({ policies }: { readonly policies: string }) {
  const [said, setSaid] = useState('');
  const link = async () => {
    const { text, unread } = await askWorker('shareable');
    const fragment = await fragmentOf({ manifest: text, policies });
    if (fragment.length > LONGEST_LINK) {
      setSaid(
        `Too long for a link: ${fragment.length.toLocaleString()} characters, at most ${LONGEST_LINK.toLocaleString()}.`,
      );
      return;
    }
    history.replaceState(null, '', withOpened(fragment, openedIn(location.hash)));
    await copyText(location.href);
    const without =
      'without comments, the data of Secrets and ConfigMaps, and values of environment variables';
    setSaid(`Copied, ${without}.${unread > 0 ? ` ${unread} unreadable documents are left out.` : ''}`);
  };
  const save = async () => {
    for (const { name, text } of await askWorker('patched')) download(name.replaceAll('/', '_'), text);
  };
  return (
    <p class="tools">
      <button type="button" onClick={() => void save()}>
        Download all, patched
      </button>
      <button type="button" onClick={() => void link()}>
        Copy a link to this
      </button>
      <button type="button" onClick={() => print()}>
        Print
      </button>
      <span role="status" class="quiet">
        {said}
      </span>
    </p>
  );
}

const linked = await linkedIn(location.hash);
const place = document.getElementById('page');
if (place !== null) render(<Page linked={linked} />, place);
