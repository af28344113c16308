import { setTimeout as sleep } from 'node:timers/promises';
import { must } from '../testbed/command.ts';

/** Where etcd serves its JSON gateway; see components.ts. */
const ETCD = 'http://127.0.0.1:2379';

/** Compacts etcd: resuming from before now yields 410. @returns the revision */
export async function compactEtcd(): Promise<string> {
  const post = async (path: string, body: unknown) => {
    const answer = await fetch(`${ETCD}/v3/kv/${path}`, { method: 'POST', body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`etcd ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as { header: { revision: string } };
  };
  const { header } = await post('range', { key: Buffer.from('/').toString('base64') });
  await post('compaction', { revision: header.revision, physical: true });
  return header.revision;
}

/** Silently drops every packet of these connections for some time. Runs in the cluster's own network. */
export async function losePackets(ports: readonly number[], ms: number): Promise<void> {
  const rules = ports.flatMap((port) => [
    ['INPUT', '-p', 'tcp', '--dport', String(port), '-j', 'DROP'],
    ['INPUT', '-p', 'tcp', '--sport', String(port), '-j', 'DROP'],
  ]);
  const change = async (action: '-I' | '-D') => {
    for (const rule of rules) await must(['iptables', '-w', action, ...rule]);
  };
  await change('-I');
  try {
    await sleep(ms);
  } finally {
    await change('-D');
  }
}
