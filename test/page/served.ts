import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { type Answers, dashboardApp, type readDashboardAssets } from '../../src/dashboard/index.ts';

export const TOKEN = 'the-token-of-this-run';

/** The page over these sources, on loopback until the test ends. */
export async function servePage(
  sources: Answers,
  files: Awaited<ReturnType<typeof readDashboardAssets>>,
): Promise<{ readonly at: string; readonly end: () => void }> {
  const server = createServer(dashboardApp(sources, TOKEN, files)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const end = () => {
    server.close();
    server.closeAllConnections();
  };
  onTestFinished(end);
  return { at: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, end };
}
