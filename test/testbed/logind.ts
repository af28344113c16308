import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensureLogind } from './binaries.ts';
import { aptInstall, findProgram } from './requirements.ts';
import { waitUntil } from './waiting.ts';

/** A stand-in for systemd-logind on a bus of its own, from which a kubelet learns of shutdowns. */
export interface Logind {
  /** Where the kubelet reads its further configuration: `--config-dir`. */
  readonly configDir: string;
  /** Resolves once the kubelet has asked that shutdowns wait for it. */
  inhibited(): Promise<void>;
  /** Announces that the machine shuts down. */
  shutDown(): void;
  /** Takes it back. */
  cancel(): void;
  stop(): void;
}

/** What the kubelet gives pods: those that are not critical get the difference. Seconds. */
export interface ShutdownGrace {
  readonly all: number;
  readonly critical: number;
}

/** The address of the bus of a node with this state directory. */
export function busAddress(stateDir: string): string {
  return `unix:path=${join(stateDir, 'bus')}`;
}

export async function startLogind(stateDir: string, cacheDir: string, grace: ShutdownGrace): Promise<Logind> {
  const say = (line: string) => console.log(line);
  if (findProgram('dbus-daemon') === undefined) await aptInstall(['dbus']);
  const program = await ensureLogind(cacheDir, say);
  const configDir = join(stateDir, 'kubelet.conf.d');
  mkdirSync(configDir, { recursive: true });
  writeFileSync(
    join(configDir, '10-shutdown.conf'),
    `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: ${grace.all}s
shutdownGracePeriodCriticalPods: ${grace.critical}s
`,
  );
  rmSync(join(stateDir, 'bus'), { force: true });
  const configuration = join(stateDir, 'bus.conf');
  writeFileSync(
    configuration,
    `<busconfig>
  <type>system</type>
  <listen>${busAddress(stateDir)}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>
`,
  );
  const started: ChildProcess[] = [];
  const start = (command: string, args: readonly string[]) => {
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    started.push(child);
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
    return { child, output: () => output };
  };
  const stop = () => {
    for (const child of started.toReversed()) child.kill('SIGKILL');
  };
  try {
    start('dbus-daemon', [`--config-file=${configuration}`, '--nofork']);
    let logind = start(program, [busAddress(stateDir)]);
    await waitUntil('the stand-in for logind to be on its bus', () => {
      if (logind.output().includes('ready\n')) return true;
      // The bus may not have been there yet.
      if (logind.child.exitCode !== null) logind = start(program, [busAddress(stateDir)]);
      return false;
    });
    const say = (word: string) => void logind.child.stdin.write(`${word}\n`);
    return {
      configDir,
      inhibited: async () => {
        await waitUntil('the kubelet to inhibit shutdowns', () =>
          logind.output().includes('granted shutdown'),
        );
      },
      shutDown: () => say('shutdown'),
      cancel: () => say('cancel'),
      stop,
    };
  } catch (error) {
    stop();
    throw error;
  }
}
