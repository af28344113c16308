import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { PolicyState } from '../../src/core/manifest/index.ts';
import { followPolicyFiles, POLL_MS } from '../../src/policy-files/policy-files.ts';
import { emptyDirectory, replaceFile, until } from '../cli/linger.ts';
import { swapMounted } from '../cluster/mounted.ts';

const POLL = 25;
const named = (...names: string[]) =>
  names
    .map(
      (name) =>
        `---\napiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: ${name}}\nspec: {}\n`,
    )
    .join('');

interface Watched {
  readonly directory: string;
  /** What has been announced, the start first: the names in force, and what is wrong. */
  readonly seen: string[];
  /** Resolves when as many announcements have come, and a few more looks have brought no other. */
  readonly settled: (count: number) => Promise<string[]>;
  readonly write: (name: string, text: string) => Promise<void>;
  readonly stop: () => void;
}

/** A folder with the policy `first` in a.yaml, and the watch on it. */
async function watched(pollMs = POLL): Promise<Watched> {
  const directory = join(await emptyDirectory(), 'policies');
  await mkdir(directory);
  const write = (name: string, text: string) => replaceFile(join(directory, name), text);
  await write('a.yaml', named('first'));
  const seen: string[] = [];
  const ending = new AbortController();
  const announce = ({ documents, problems }: PolicyState) => {
    const names = documents.clusterPolicies.map(({ metadata }) => metadata.name).join();
    seen.push([names, ...problems.map(({ message }) => `problem: ${message}`)].join('; '));
  };
  announce(await followPolicyFiles(directory, announce, ending.signal, pollMs));
  const stop = () => ending.abort();
  onTestFinished(stop);
  const settled = async (count: number) => {
    await until(async () => seen.length >= count);
    await new Promise((resolve) => setTimeout(resolve, 5 * pollMs));
    return seen;
  };
  return { directory, seen, settled, write, stop };
}

describe('a watched folder', () => {
  it('that does not change is not announced', async () => {
    const { settled, write } = await watched();
    await write('a.yaml', named('first'));
    await write('.hidden.yaml', 'x');
    expect(await settled(1)).toEqual(['first']);
  });

  it('changed files are announced once, as a whole set', async () => {
    const { settled, write } = await watched();
    await write('a.yaml', named('second'));
    expect(await settled(2)).toEqual(['first', 'second']);
    await write('b.yaml', named('third'));
    expect(await settled(3)).toEqual(['first', 'second', 'second,third']);
  });

  it('a deleted file is removed', async () => {
    const { directory, settled } = await watched();
    await rm(join(directory, 'a.yaml'));
    expect(await settled(2)).toEqual(['first', '']);
  });

  it('a file that cannot be read is a problem, and the others count', async () => {
    const { settled, write } = await watched();
    await write('b.yaml', 'a: [');
    await write('c.yaml', named('third'));
    expect((await settled(2)).at(-1)).toMatch(/^first,third; problem: b\.yaml:1/);
    await write('b.yaml', named('second'));
    expect((await settled(3)).at(-1)).toBe('first,second,third');
  });

  it('a document that cannot be used keeps its last good version, and the others of its file change', async () => {
    const { settled, write } = await watched();
    await write('a.yaml', named('first', 'second', 'third'));
    await settled(2);
    await write(
      'a.yaml',
      named('first', 'third', 'fourth') + named('second').replace('spec: {}', 'spec: {waits: 1}'),
    );
    expect((await settled(3)).at(-1)).toMatch(
      /^first,third,fourth,second; problem: a\.yaml document 4: .*spec\.waits/,
    );
    await write('a.yaml', named('first'));
    expect((await settled(4)).at(-1)).toBe('first');
  });

  it('a file that is no YAML any more keeps all its documents', async () => {
    const { settled, write } = await watched();
    await write('a.yaml', `${named('first')}---\na: [\n`);
    expect((await settled(2)).at(-1)).toMatch(/^first; problem: a\.yaml:/);
  });

  it('vanished: a problem, and nothing is taken away; back again: none', async () => {
    const { directory, settled } = await watched();
    await rename(directory, `${directory}-gone`);
    expect((await settled(2)).at(-1)).toMatch(/^first; problem: .*cannot be read.*ENOENT/);
    await writeFile(join(`${directory}-gone`, 'a.yaml'), named('second'));
    await rename(`${directory}-gone`, directory);
    expect((await settled(3)).at(-1)).toBe('second');
  });

  it('that cannot be read at the start: every pod is kept in Audit until it can', async () => {
    const directory = join(await emptyDirectory(), 'policies');
    const states: PolicyState[] = [];
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const take = (state: PolicyState) => void states.push(state);
    take(await followPolicyFiles(directory, take, ending.signal, POLL));
    const [first] = states;
    expect(first?.unknown).toBe(true);
    expect(first?.documents.clusterPolicies.map(({ spec }) => spec)).toEqual([
      { ceiling: { mode: 'Audit' } },
    ]);
    // A file among others that cannot be read may hold the one that says Audit.
    await mkdir(join(directory, 'b.yaml'), { recursive: true });
    await writeFile(join(directory, 'a.yaml'), named('first'));
    await until(async () => states.some(({ documents }) => documents.clusterPolicies.length === 2));
    expect(states.at(-1)?.unknown).toBe(true);
    await rm(join(directory, 'b.yaml'), { recursive: true });
    await until(async () => states.at(-1)?.unknown === false);
    expect(states.at(-1)?.documents.clusterPolicies.map(({ metadata }) => metadata.name)).toEqual(['first']);
    // From now on, what was in force stays.
    await rename(directory, `${directory}-gone`);
    await until(async () => (states.at(-1)?.problems.length ?? 0) > 0);
    expect(states.at(-1)?.documents.clusterPolicies.map(({ metadata }) => metadata.name)).toEqual(['first']);
  });

  it('swapped as a ConfigMap is: one announcement, no error', async () => {
    const { directory, seen, settled } = await watched();
    await rm(join(directory, 'a.yaml'));
    await swapMounted(directory, '..1', { 'a.yaml': named('one') });
    await until(async () => seen.includes('one'));
    await settled(2);
    seen.length = 0;
    await swapMounted(directory, '..2', { 'a.yaml': named('two') });
    await rm(join(directory, '..1'), { recursive: true });
    expect(await settled(1)).toEqual(['two']);
  });

  it('edited in a copy of a mount, whose link does not change: announced a little later', async () => {
    const { directory, seen, settled } = await watched();
    await rm(join(directory, 'a.yaml'));
    await swapMounted(directory, '..1', { 'a.yaml': named('one') });
    await until(async () => seen.includes('one'));
    await settled(2);
    await writeFile(join(directory, 'a.yaml'), named('edited'));
    await until(async () => seen.includes('edited'));
  });

  it('a file caught half-written is not taken for a shorter one', async () => {
    // The watch and the writer share a thread: however busy the machine is, only one look falls between the halves.
    const { directory, settled } = await watched(400);
    await writeFile(join(directory, 'a.yaml'), named('half'));
    await new Promise((resolve) => setTimeout(resolve, 250));
    await writeFile(join(directory, 'a.yaml'), named('half', 'whole'));
    expect(await settled(2)).toEqual(['first', 'half,whole']);
  });

  it('is let go when the signal aborts, and what happens then is not announced', async () => {
    const { settled, write, stop } = await watched();
    stop();
    await write('a.yaml', named('second'));
    expect(await settled(1)).toEqual(['first']);
  });
});

describe('at the start', () => {
  const start = async (path: string) => {
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const { documents, problems } = await followPolicyFiles(path, () => undefined, ending.signal);
    return [documents.clusterPolicies.map(({ metadata }) => metadata.name).join(), problems.length];
  };

  it('what can be used counts', async () => {
    const directory = await emptyDirectory();
    await writeFile(join(directory, 'a.yaml'), named('good') + named('bad').replace('spec: {}', 'spec: 1'));
    await writeFile(join(directory, 'b.yaml'), 'a: [');
    expect(await start(directory)).toEqual(['good', 2]);
  });

  it('a folder that is not there is a problem', async () => {
    expect(await start('/nonexistent/policies')).toEqual(['policies-unknown', 1]);
  });
});

describe('the promise of 3 s', () => {
  it('two looks and the time to read fit into it', () => {
    expect(2 * POLL_MS).toBeLessThanOrEqual(2_500);
  });
});

describe('a policy that cannot be used from the start', () => {
  const document = (name: string, spec: string) =>
    `---\napiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: ${name}}\nspec: ${spec}\n`;

  async function starting(...texts: string[]) {
    const directory = join(await emptyDirectory(), 'policies');
    await mkdir(directory);
    await replaceFile(join(directory, 'a.yaml'), texts.join(''));
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const seen: PolicyState[] = [];
    const first = await followPolicyFiles(directory, (state) => void seen.push(state), ending.signal, POLL);
    return { first, seen, write: (text: string) => replaceFile(join(directory, 'a.yaml'), text) };
  }

  it('and says that it restrains holds what it may select in Audit, until it can be read', async () => {
    const broken = document(
      'week',
      '{mode: Audit, namespaceSelector: {matchLabels: {team: a}}, wait: {max: long}}',
    );
    const { first, seen, write } = await starting(broken);
    expect(first.documents.clusterPolicies.map(({ spec }) => spec)).toEqual([
      { namespaceSelector: { matchLabels: { team: 'a' } }, ceiling: { mode: 'Audit' } },
    ]);
    expect(first.problems).toHaveLength(1);
    await write(document('week', '{mode: Enforce}'));
    await until(async () => seen.length > 0);
    expect(seen[0]?.documents.clusterPolicies.map(({ spec }) => spec)).toEqual([{ mode: 'Enforce' }]);
  });

  it('and says nothing of the kind does nothing; names that no object can have, neither', async () => {
    const { first } = await starting(
      document('plain', '{wait: {max: long}}'),
      document('Not_A_Name', '{mode: Audit}'),
      document('fine', '{}'),
    );
    expect(first.documents.clusterPolicies.map(({ metadata }) => metadata.name)).toEqual(['fine']);
    expect(first.problems).toHaveLength(2);
  });
});
