import { spawn } from 'node:child_process';

export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  /** The exit code; 128 + signal number is not imitated: a signal reads as null. */
  readonly code: number | null;
}

export interface CommandOptions {
  readonly stdin?: string;
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Milliseconds until the command is killed with SIGKILL. Default: never. */
  readonly timeoutMs?: number;
  /** Called with every complete line the command writes to stderr, as it comes. */
  readonly onErrorLine?: (line: string) => void;
}

/** A command that was expected to succeed did not. The message carries its stderr. */
export class CommandFailure extends Error {
  readonly argv: readonly string[];
  readonly result: CommandResult;

  constructor(argv: readonly string[], result: CommandResult) {
    const said = (result.stderr || result.stdout).trim();
    super(`${argv.join(' ')}: exit ${result.code ?? 'by signal'}${said === '' ? '' : `\n${said}`}`);
    this.name = 'CommandFailure';
    this.argv = argv;
    this.result = result;
  }
}

/** Runs a program to its end. Rejects only when it cannot be started. */
export function run(argv: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const [program = '', ...args] = argv;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: options.env ?? process.env,
      timeout: options.timeoutMs,
      killSignal: 'SIGKILL',
      stdio: 'pipe',
    });
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    if (options.onErrorLine !== undefined) eachLine(child.stderr, options.onErrorLine);
    // A program that exits without reading its input breaks the pipe; its exit code tells the story.
    child.stdin.on('error', () => {});
    child.stdin.end(options.stdin ?? '');
    child.on('error', (error) => reject(new Error(`cannot start ${program}: ${error.message}`)));
    child.on('close', (code) =>
      resolve({ stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString(), code }),
    );
  });
}

/** Like {@link run}, but a non-zero exit throws {@link CommandFailure}. Returns stdout. */
export async function must(argv: readonly string[], options: CommandOptions = {}): Promise<string> {
  const result = await run(argv, options);
  if (result.code !== 0) throw new CommandFailure(argv, result);
  return result.stdout;
}

/** Splits a stream into lines; a last line without a newline counts too. */
export function eachLine(stream: NodeJS.ReadableStream, line: (text: string) => void): void {
  let rest = '';
  stream.on('data', (chunk: Buffer | string) => {
    const parts = (rest + chunk.toString()).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts) line(part);
  });
  stream.on('end', () => {
    if (rest !== '') line(rest);
  });
}
