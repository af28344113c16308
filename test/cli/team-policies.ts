import { readFile } from 'node:fs/promises';

/** As many policies, each for the namespaces of one team. */
export const teamPolicies = (count: number, wait: string) =>
  Array.from(
    { length: count },
    (_, index) =>
      `apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: team-${index}}\n` +
      `spec:\n  namespaceSelector: {matchLabels: {team: team-${index}}}\n  wait: {from: Fixed, fixed: ${wait}}\n`,
  ).join('---\n');

/** Seconds of CPU that a process has taken. Source: proc_pid_stat(5), in hundredths on every Linux. */
export async function cpuSeconds(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
