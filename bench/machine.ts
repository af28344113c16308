import { readFileSync } from 'node:fs';
import { cpus, release, totalmem, type } from 'node:os';

// What a measurement says about the machine and the processes on it. Linux: proc(5).

/** A tenth of one of the two cores; an idle cluster in the background needs half of that. */
export const QUIET_CPU = 0.1;

export interface Process {
  readonly pid: number;
}

export function describeMachine(): string {
  const [first] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${first?.model.trim() ?? 'unknown CPU'}, ${cpus().length} cores, ${memory} GiB, ${type()} ${release()}`;
}

/** Resident memory now and at its peak, in megabytes (10^6 bytes). */
export function memoryOf({ pid }: Process): { rssMb: number; peakRssMb: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const megabytes = (field: string): number => {
    const kibibytes = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1];
    if (kibibytes === undefined) throw new Error(`/proc/${pid}/status has no ${field}`);
    return (Number(kibibytes) * 1024) / 1e6;
  };
  return { rssMb: megabytes('VmRSS'), peakRssMb: megabytes('VmHWM') };
}

/** CPU seconds that all threads of the process have used. Field 14 and 15 of proc(5), in ticks of 10 ms. */
export function cpuSecondsOf({ pid }: Process): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Seconds that all cores together were not idle, of the first line of /proc/stat: proc(5), in ticks of 10 ms. */
export function busySeconds(): number {
  const [, user, nice, system, , , irq, softirq, steal] = readFileSync('/proc/stat', 'utf8').split(/\s+/, 9);
  return [user, nice, system, irq, softirq, steal].reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
}
