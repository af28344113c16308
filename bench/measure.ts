import { checkSameResult } from './answers.ts';
import { CONNECTIONS, drive, type LoadResult } from './load.ts';
import { memoryOf } from './machine.ts';
import { type Server, type ServerName, type Surroundings, startServer, stopServer } from './servers.ts';
import type { Settings } from './settings.ts';

export interface Body {
  /** As the table names it. */
  readonly label: string;
  readonly reviewFile: string;
  readonly bytes: number;
}

/** All that was measured of one server with one body; `closed` and `open` hold one result per round. */
export interface Measurement {
  readonly server: ServerName;
  readonly body: Body;
  /** Reviews per second of the open loop, the same for all servers. */
  readonly rate: number;
  readonly closed: LoadResult[];
  readonly open: LoadResult[];
  readonly rssMb: number;
  readonly peakRssMb: number;
}

/** The open loop runs at this share of what the slowest can do: enough to queue now and then, far from saturation. */
const RATE_SHARE = 0.6;

/** Starts Linger and stops it again, which leaves its compiled source in the cache, as an image holds it. */
export async function fillCompileCache(body: Body, surroundings: Surroundings): Promise<void> {
  const server = await startServer('linger', surroundings);
  await checkSameResult([server], body.reviewFile);
  await stopServer(server);
}

/** Fresh servers; same result? warm up; then rounds in which every server has its turn. */
export async function measureBody(
  body: Body,
  settings: Settings,
  surroundings: Surroundings,
): Promise<Measurement[]> {
  console.error(`\n${body.label}: ${body.bytes} bytes, ${CONNECTIONS} connections`);
  const servers: Server[] = [];
  try {
    for (const name of settings.servers) servers.push(await startServer(name, surroundings));
    await checkSameResult(servers, body.reviewFile);
    const rate = await warmUp(servers, body, settings, surroundings);
    const measurements = servers.map((server) => ({
      server,
      closed: [] as LoadResult[],
      open: [] as LoadResult[],
    }));
    for (let round = 0; round < settings.rounds; round++) {
      // Each round begins with another server, so that none always follows the same one.
      for (const at of servers.keys()) {
        const { server, closed, open } = measurements[(round + at) % servers.length]!;
        const load = { reviewFile: body.reviewFile, seconds: settings.seconds };
        closed.push(await drive(server, load, surroundings));
        open.push(await drive(server, { ...load, rate }, surroundings));
        console.error(
          progress(`round ${round + 1}/${settings.rounds}`, server, closed.at(-1)!, open.at(-1)!),
        );
      }
    }
    return measurements.map(({ server, closed, open }) => ({
      server: server.name,
      body,
      rate,
      closed,
      open,
      ...memoryOf(server),
    }));
  } finally {
    await Promise.all(servers.map(stopServer));
  }
}

/** Exercises all servers, and takes from a second pass the rate of the open loop. */
async function warmUp(
  servers: readonly Server[],
  { reviewFile }: Body,
  settings: Settings,
  surroundings: Surroundings,
): Promise<number> {
  const throughputs: number[] = [];
  for (const server of servers) {
    await drive(server, { reviewFile, seconds: settings.warmupSeconds }, surroundings);
    const { rps } = await drive(server, { reviewFile, seconds: settings.warmupSeconds }, surroundings);
    throughputs.push(rps);
  }
  const rate = Math.max(Math.floor((RATE_SHARE * Math.min(...throughputs)) / 10) * 10, 10);
  console.error(`  warm: ${throughputs.map((rps) => rps.toFixed(0)).join(', ')}/s; open loop at ${rate}/s`);
  return rate;
}

function progress(round: string, server: Server, closed: LoadResult, open: LoadResult): string {
  return `  ${round} ${server.name}: ${closed.rps.toFixed(0)}/s; p50 ${open.p50ms.toFixed(2)} p99 ${open.p99ms.toFixed(2)} ms`;
}
