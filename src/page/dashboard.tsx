import { type ComponentType, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { ApiRoot } from '../dashboard/index.ts';
import { askServer, type RequestError, takeToken } from './ask.ts';
import { Time, useEvent } from './live.tsx';
import './page.css';
import { Failure } from './parts.tsx';

type View = ApiRoot['views'][number];

/** Each view is loaded when it is opened. */
const VIEWS: Readonly<Record<View, readonly [title: string, load: () => Promise<ComponentType>]>> = {
  now: ['Now', async () => (await import('./now.tsx')).Now],
  workloads: ['Workloads', async () => (await import('./workloads.tsx')).Workloads],
  timeline: ['A termination', async () => (await import('./termination.tsx')).Timeline],
  lag: ['Lag', async () => (await import('./lag.tsx')).Lag],
  'what-if': ['What if', async () => (await import('./what-if.tsx')).WhatIf],
  consumers: ['Consumers', async () => (await import('./consumers.tsx')).Consumers],
};

/** The frame of all views; the address determines which one is shown. */
function Shell() {
  const [root, setRoot] = useState<ApiRoot>();
  const [failure, setFailure] = useState<RequestError>();
  const [path, setPath] = useState(location.pathname);
  useEffect(() => void askServer<ApiRoot>('/').then(setRoot, setFailure), []);
  useEvent(window, 'popstate', () => setPath(location.pathname));
  const shown = root?.views.find((view) => path === `/${view}`) ?? root?.views[0];
  const [title = '', load] = shown === undefined ? [] : VIEWS[shown];
  const [view, setView] = useState<{ readonly Shown: ComponentType }>();
  useEffect(() => {
    setView(undefined);
    void load?.().then((Shown) => setView({ Shown }));
  }, [load]);
  useEffect(() => {
    document.title = title === '' ? 'Linger' : `${title} · Linger`;
  }, [title]);
  const open = (view: View) => (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    history.pushState(null, '', `/${view}`);
    // Like the Back button; this also restarts a view that is already open.
    dispatchEvent(new PopStateEvent('popstate'));
  };
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header>
        <span class="mark">
          <img src="/icon.svg" alt="" width="24" height="24" />
          Linger
        </span>
        {root !== undefined && root.views.length > 1 && (
          <nav aria-label="Views">
            {root.views.map((view) => (
              <a
                key={view}
                href={`/${view}`}
                aria-current={view === shown ? 'page' : undefined}
                onClick={open(view)}
              >
                {VIEWS[view][0]}
              </a>
            ))}
          </nav>
        )}
        {root?.source != null && <bdi class="source">{root.source}</bdi>}
      </header>
      {root?.recording !== undefined && <Recorded {...root.recording} />}
      <main id="main" tabIndex={-1}>
        {failure !== undefined && <Failure failure={failure} />}
        {view !== undefined && <view.Shown />}
      </main>
    </>
  );
}

/** Shown on every view, so that a recording is not mistaken for one of the reader's own clusters. */
function Recorded({ of, from, lasts }: NonNullable<ApiRoot['recording']>) {
  return (
    <aside class="recorded" aria-label="Recording">
      <strong>Recording, not your cluster:</strong> {of}; {Math.round(lasts / 60)} minutes from{' '}
      <Time at={from} day />, over and over.
    </aside>
  );
}

await takeToken();
const place = document.getElementById('page');
if (place !== null) render(<Shell />, place);
