import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { newSnapshotHolder } from '../../src/core/decision/index.ts';
import type { PolicyState } from '../../src/core/manifest/index.ts';
import { followPolicyFiles } from '../../src/policy-files/index.ts';
import { inPieces } from '../../src/timing/index.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, replaceFile, serving } from '../cli/linger.ts';
import { waitNow } from '../cli/reviewing.ts';
import { cpuSeconds, teamPolicies } from '../cli/team-policies.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { longestTurn } from '../webhook/longest-turn.ts';

const certs = sharedCertificates();

const SHOP = '---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: team-7}}\n';

describe('ten thousand policies', () => {
  // The bundle does it in 2.4 s; from the sources each thread strips types for another half second or more.
  it.runIf(process.platform === 'linux')(
    'a server has started with them after 5 s of computing',
    async () => {
      const directory = await emptyDirectory();
      await writeFile(join(directory, 'teams.yaml'), teamPolicies(10_000, '17s') + SHOP);
      const server = await serving(certs(), ['--cluster', 'off', '--policies', directory]);
      const seconds = await cpuSeconds(server.pid);
      console.log(`10,000 policies: ${seconds} s of CPU until it listens`);
      expect(seconds).toBeLessThan(5);
      expect(await waitNow(server, onTestFinished as AtEnd)).toBe(17);
    },
  );
});

describe('a reload of policies of 1 MB', () => {
  it('never holds reviews up for more than 50 ms', async () => {
    const directory = await emptyDirectory();
    const file = join(directory, 'teams.yaml');
    await writeFile(file, teamPolicies(5_500, '17s'));
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const changed = Promise.withResolvers<PolicyState>();
    const snapshot = newSnapshotHolder('Enforce');
    const take = async (state: PolicyState) => {
      await inPieces(snapshot.applying({ kind: 'documents', documents: state.documents }));
      if (state.documents.clusterPolicies[0]?.spec.wait?.fixed === 18) changed.resolve(state);
    };
    await take(await followPolicyFiles(directory, take, ending.signal, 50));
    const longest = await longestTurn(async () => {
      await replaceFile(file, teamPolicies(5_500, '18s'));
      await changed.promise;
    });
    console.log(`1 MB of policies: at most ${longest.toFixed(1)} ms in one turn`);
    expect(longest).toBeLessThan(50);
  });
});
