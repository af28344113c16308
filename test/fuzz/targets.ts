import { parseCertificates } from '../../src/certs/index.ts';
import { parseKey } from '../../src/certs/x509.ts';
import { KubeFailure } from '../../src/cluster/index.ts';
import { readEvent, readListPage } from '../../src/cluster/object-json.ts';
import {
  Budget,
  FOREIGN_LIMITS,
  type ForeignSource,
  PAGE_FORMAT_NAMES,
  pageReader,
  readHook,
  reportRequest,
} from '../../src/core/api/index.ts';
import { decide, type Pod, patchFor } from '../../src/core/decision/index.ts';
import { reduced } from '../../src/core/discovery/index.ts';
import { relatedObjectsIn } from '../../src/core/judge/index.ts';
import { policiesOfMap } from '../../src/core/manifest/index.ts';
import { helperLine } from '../../src/hold/connection-monitor.ts';
import { projectPod } from '../../src/informers/index.ts';
import { attemptsIn } from '../../src/measurement/index.ts';
import { screenReview } from '../../src/webhook/review.ts';
import { EMPTY_SNAPSHOT } from '../core/decision/sample-snapshot.ts';
import { takePush } from '../measurement/pushes.ts';

/**
 * Takes one input from outside. Throws where Linger would do what it must not: fail in a way that is not foreseen, or keep
 * more than its limits. The form is that of the fuzzers for JavaScript, so that they can call it, too.
 */
export type Fuzz = (data: Uint8Array) => void;

const WANTED = [
  { address: '10.0.0.1', ports: [8080] },
  { address: 'fd00::a:1', ports: [] },
];

/** The helper's own reader of /proc is C, and fuzzed with sanitizers: helper-fuzz.c. */
export const TARGETS: Readonly<Record<Exclude<ForeignSource, 'proc'>, Fuzz>> = {
  review: (data) => {
    const screened = screenReview(Buffer.from(data));
    if ('refused' in screened || screened.skip !== undefined) return;
    const decision = decide(screened.review, EMPTY_SNAPSHOT);
    if (decision.outcome === 'inject') patchFor(screened.review.object as Pod, decision);
  },
  hook: (data) => {
    // A command whose words the input separates by NUL.
    const command = Buffer.from(data).toString().split('\0');
    const budget = new Budget({
      ...FOREIGN_LIMITS.hook,
      bytes: data.length,
      parts: { most: data.length + 1 },
      steps: 4 * data.length + 64,
    });
    readHook({ exec: { command } }, budget);
    if (budget.isSpent) throw new Error(`${budget.spent} steps for ${data.length} bytes`);
  },
  related: (data) => {
    let object: unknown;
    try {
      object = JSON.parse(Buffer.from(data).toString());
    } catch {
      return;
    }
    // Two steps for each character would be more than it has entries.
    const budget = new Budget({ ...FOREIGN_LIMITS.related, steps: 2 * data.length });
    const kept = reduced(object, budget);
    const again = kept && reduced(kept, new Budget({ ...budget.limits, steps: Number.POSITIVE_INFINITY }));
    if (JSON.stringify(again) !== JSON.stringify(kept)) throw new Error('reduced twice, it is another');
    relatedObjectsIn([object], 'default');
  },
  watch: (data) => {
    const bytes = Buffer.from(data);
    unlessMalformed(() => keep(readEvent(bytes)?.object));
    unlessMalformed(() => {
      const reading = readListPage(bytes, keep);
      while (reading.next().done !== true);
    });
  },
  page: (data) => {
    const text = Buffer.from(data).toString('latin1');
    for (const format of PAGE_FORMAT_NAMES) {
      const reader = pageReader(format, WANTED);
      for (let at = 0; at < data.length; at += 4_096) reader.write(text.slice(at, at + 4_096));
      reader.end();
    }
  },
  push: takePush,
  report: (data) => {
    let body: unknown;
    try {
      body = JSON.parse(Buffer.from(data).toString());
    } catch {
      return;
    }
    reportRequest.safeParse(body);
  },
  attempts: (data) => {
    const read = attemptsIn(Buffer.from(data).toString('latin1'), { sentAt: 0, receivedAt: 1 });
    const made = 'made' in read ? read.made : [];
    if (!made.every(({ began, ended }) => began <= 0 && ended <= 1))
      throw new Error('an attempt of the future');
  },
  helper: (data) => {
    const line = helperLine(Buffer.from(data).toString('latin1'), 0);
    const numbers = [line?.established, line?.loopback].filter((each) => each !== undefined);
    if (!numbers.every(Number.isSafeInteger)) throw new Error(`a count that is none: ${numbers.join()}`);
  },
  policy: (data) => {
    policiesOfMap({ 'policy.yaml': Buffer.from(data).toString() }, 'fuzz');
  },
  certificate: (data) => {
    const text = Buffer.from(data).toString('latin1');
    parseCertificates(text);
    parseKey(text);
  },
};

function unlessMalformed(read: () => void): void {
  try {
    read();
  } catch (thrown) {
    if (!(thrown instanceof KubeFailure)) throw thrown;
  }
}

/** How much may be kept of one pod: the length of its JSON. */
const MOST_KEPT = 256 * 1024;

function keep(object: unknown): void {
  let kept: unknown;
  try {
    kept = projectPod(object as Parameters<typeof projectPod>[0]);
  } catch (thrown) {
    // The reflector counts such an object and goes on: the API server sends none.
    if (thrown instanceof TypeError) return;
    throw thrown;
  }
  if (JSON.stringify(kept).length > MOST_KEPT) throw new Error('more is kept of a pod than its limits allow');
}
