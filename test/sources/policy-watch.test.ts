import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readPolicyFiles } from '../../src/sources/policy-files.ts';
import { POLL_MS, watchPolicyFiles } from '../../src/sources/policy-watch.ts';
import { emptyDirectory, replaceFile, until } from '../commands/linger.ts';
import { swapMounted } from './mounted.ts';

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
  /** What has been announced: the names of a set, or the message of an error. */
  readonly seen: string[];
  /** Resolves when as many announcements have come, and a few more looks have brought no other. */
  readonly settled: (count: number) => Promise<string[]>;
  readonly write: (name: string, text: string) => Promise<void>;
  readonly stop: () => Promise<void>;
}

/** A folder with the policy `first` in a.yaml, and the watch on it. */
async function watched(pollMs = POLL): Promise<Watched> {
  const directory = join(await emptyDirectory(), 'policies');
  await mkdir(directory);
  const write = (name: string, text: string) => replaceFile(join(directory, name), text);
  await write('a.yaml', named('first'));
  const seen: string[] = [];
  const ending = new AbortController();
  const events = {
    onChange: ({ clusterPolicies }: { clusterPolicies: readonly { metadata: { name: string } }[] }) =>
      void seen.push(clusterPolicies.map(({ metadata }) => metadata.name).join()),
    onError: (error: Error) => void seen.push(`error: ${error.message}`),
  };
  const { hash } = await readPolicyFiles(directory);
  const watching = watchPolicyFiles(directory, hash, events, ending.signal, pollMs);
  const stop = () => {
    ending.abort();
    return watching;
  };
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
    expect(await settled(0)).toEqual([]);
  });

  it('changed files are announced once, as a whole set', async () => {
    const { settled, write } = await watched();
    await write('a.yaml', named('second'));
    expect(await settled(1)).toEqual(['second']);
    await write('b.yaml', named('third'));
    expect(await settled(2)).toEqual(['second', 'second,third']);
  });

  it('a deleted file is removed', async () => {
    const { directory, settled } = await watched();
    await rm(join(directory, 'a.yaml'));
    expect(await settled(1)).toEqual(['']);
  });

  it('an invalid file is told once, and what comes after it is taken', async () => {
    const { settled, write } = await watched();
    await write('b.yaml', 'a: [');
    expect(await settled(1)).toEqual([expect.stringMatching(/^error: b\.yaml:1/)]);
    await write('b.yaml', named('second'));
    expect((await settled(2)).slice(1)).toEqual(['first,second']);
  });

  it('back to what was in force before the mistake: announced, so that everybody knows', async () => {
    const { directory, settled, write } = await watched();
    await write('b.yaml', 'a: [');
    await settled(1);
    await rm(join(directory, 'b.yaml'));
    expect((await settled(2)).slice(1)).toEqual(['first']);
  });

  it('vanished: told once, and nothing is taken away; back again: no news', async () => {
    const { directory, settled } = await watched();
    await rename(directory, `${directory}-gone`);
    expect(await settled(1)).toEqual([expect.stringMatching(/^error: .*cannot be read.*ENOENT/)]);
    await rename(`${directory}-gone`, directory);
    expect(await settled(1)).toHaveLength(1);
  });

  it('back with other files: they are taken', async () => {
    const { directory, settled } = await watched();
    await rename(directory, `${directory}-gone`);
    await settled(1);
    await writeFile(join(`${directory}-gone`, 'a.yaml'), named('second'));
    await rename(`${directory}-gone`, directory);
    expect((await settled(2)).slice(1)).toEqual(['second']);
  });

  it('swapped as a ConfigMap is: one announcement, no error', async () => {
    const { directory, seen, settled } = await watched();
    await rm(join(directory, 'a.yaml'));
    await swapMounted(directory, '..1', { 'a.yaml': named('one') });
    await until(async () => seen.includes('one'));
    await settled(1);
    seen.length = 0;
    await swapMounted(directory, '..2', { 'a.yaml': named('two') });
    await rm(join(directory, '..1'), { recursive: true });
    expect(await settled(1)).toEqual(['two']);
  });

  it('a file caught half-written is not taken for a shorter one', async () => {
    // The watch and the writer share a thread: however busy the machine is, only one look falls between the halves.
    const { directory, settled } = await watched(400);
    await writeFile(join(directory, 'a.yaml'), named('half'));
    await new Promise((resolve) => setTimeout(resolve, 250));
    await writeFile(join(directory, 'a.yaml'), named('half', 'whole'));
    expect(await settled(1)).toEqual(['half,whole']);
  });

  it('is let go when the signal aborts, and what happens then is not announced', async () => {
    const { settled, write, stop } = await watched();
    await stop();
    await write('a.yaml', named('second'));
    expect(await settled(0)).toEqual([]);
  });
});

describe('the promise of 3 s', () => {
  it('two looks and the time to read fit into it', () => {
    expect(2 * POLL_MS).toBeLessThanOrEqual(2_500);
  });
});
