import { createHash } from 'node:crypto';
import { cpSync, existsSync, globSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { cached } from './cached.ts';
import { must } from './command.ts';
import { onNodeFiles, type SentRequest, sentIn } from './gateways.ts';
import { logFile, waitHealthy } from './health.ts';
import { network } from './network.ts';
import { readRecord, startProcess, stopProcess } from './process.ts';
import { findProgram, MissingRequirement } from './requirements.ts';
import { type ClusterSettings, statePaths } from './settings.ts';

const SOURCE = join(import.meta.dirname, 'eureka');
const JAR = 'eureka-1.jar';
/** Classes as the JVM has them in memory: a start takes 3 s of processor time with them, and 11 s without. */
const CLASSES = 'classes.jsa';
const FLAGS = '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx192m';
const SERVER_PORT = 8761;
const CALLER_PORT = 18_083;
/** A JVM starts, while the machine does other things. */
const START_MS = 120_000;

/** Changes with the sources. */
function folderIn(cacheDir: string): { readonly cacheDir: string; readonly name: string } {
  const hash = createHash('sha256');
  for (const file of globSync('**/*.{xml,java,yaml}', { cwd: SOURCE }).toSorted())
    hash.update(`${file}\0`).update(readFileSync(join(SOURCE, file)));
  return { cacheDir, name: `eureka-${hash.digest('hex').slice(0, 16)}` };
}

/**
 * Spring Cloud's Eureka server, an application that registers itself there, and one that sends to it, by Maven. Where Maven
 * cannot make them it is said why, and {@link builtEureka} finds nothing.
 */
export async function ensureEureka(cacheDir: string, say: (line: string) => void): Promise<void> {
  try {
    for (const program of ['java', 'mvn'])
      if (findProgram(program) === undefined)
        throw new MissingRequirement(`no ${program} in PATH; Debian: maven`);
    await cached(cacheDir, folderIn(cacheDir).name, async (into) => {
      say('building the applications of Eureka (60 MB, cached afterwards)');
      const source = join(into, 'source');
      cpSync(SOURCE, source, { recursive: true });
      await must(['mvn', '-B', '-q', '-f', join(source, 'pom.xml'), 'package']);
      await must([
        'java',
        '-Djarmode=tools',
        '-jar',
        join(source, 'target', JAR),
        'extract',
        '--destination',
        into,
        '--force',
      ]);
      rmSync(source, { recursive: true });
      const words = [...FLAGS.split(' '), `-XX:ArchiveClassesAtExit=${CLASSES}`];
      const once = ['-Dspring.context.exit=onRefresh', '-jar', JAR, '--spring.profiles.active=orders'];
      // The path of the JAR is part of what is archived, so it is relative.
      await must(['java', ...words, ...once], { cwd: into });
    });
  } catch (error) {
    say(`Eureka is left out: ${(error as Error).message.slice(0, 500)}`);
  }
}

/** Where the applications are; undefined: they could not be made. */
export function builtEureka(settings: ClusterSettings): string | undefined {
  const { cacheDir, name } = folderIn(settings.cacheDir);
  const folder = join(cacheDir, name);
  return existsSync(folder) ? folder : undefined;
}

/** Runs one of them, from wherever. */
function command(folder: string, profile: string): string {
  const java = `${findProgram('java')} ${FLAGS} -XX:SharedArchiveFile=${CLASSES}`;
  return `cd ${folder} && exec ${java} -jar ${JAR} --spring.profiles.active=${profile}`;
}

export interface Eureka {
  /** What clients have as serviceUrl. */
  readonly url: string;
  /** Its host and port, as nc takes them. */
  readonly at: string;
  /** The application that sends to those of the registry, by Spring Cloud LoadBalancer: to that of a path's name. */
  readonly caller: {
    readonly name: string;
    readonly address: string;
    readonly port: number;
    sent(): readonly SentRequest[];
  };
  /** A container that runs the application that registers itself by this name. */
  readonly container: (application: string) => ReturnType<typeof onNodeFiles>;
  stop(): Promise<void>;
}

/** Starts the server and the caller on the node. What `down` removes, it removes, too. */
export async function startEureka(settings: ClusterSettings, folder: string): Promise<Eureka> {
  const paths = statePaths(settings.stateDir);
  const { nodeAddress: address } = network;
  const url = `http://${address}:${SERVER_PORT}/eureka`;
  const start = async (profile: string, port: number) => {
    const argv = ['sh', '-c', `${command(folder, profile)} --server.port=${port}`];
    const component = {
      name: `eureka-${profile}`,
      argv,
      health: { url: `http://${address}:${port}/actuator/health` },
    };
    await startProcess({
      name: component.name,
      argv,
      runDir: paths.run,
      logFile: logFile(paths, component.name),
      env: { ...process.env, EUREKA: `${url}/` },
    });
    await waitHealthy(component, paths, { timeoutMs: START_MS });
  };
  const stop = async () => {
    for (const profile of ['caller', 'server']) {
      const record = readRecord(paths.run, `eureka-${profile}`);
      if (record !== undefined) await stopProcess(record, paths.run);
    }
  };
  await stop();
  await start('server', SERVER_PORT);
  await start('caller', CALLER_PORT);
  const log = logFile(paths, 'eureka-caller');
  return {
    url,
    at: `${address} ${SERVER_PORT}`,
    caller: { name: 'Spring Cloud LoadBalancer', address, port: CALLER_PORT, sent: () => sentIn(log) },
    container: (application) =>
      onNodeFiles('app', command(folder, 'orders'), { APPLICATION: application, EUREKA: `${url}/` }),
    stop,
  };
}
