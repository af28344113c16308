import type { Server } from 'node:http';
import {
  type Answers,
  dashboardApp,
  newToken,
  pageApp,
  readDashboardAssets,
  readPage,
} from '../dashboard/index.ts';
import { adminServer, listen } from '../webhook/index.ts';

/** Other machines must not reach it, whatever the other settings are. */
const LOOPBACK = '127.0.0.1';

/** `address`: the address to open. */
interface Opened {
  readonly server: Server;
  readonly address: string;
}

/**
 * Serves the dashboard to one user on this machine. Its address contains the token of this run.
 * @throws LingerError `page-missing`, `port-unavailable`
 */
export async function openDashboard(
  answers: Answers,
  port: number,
  onError: (error: Error) => void,
): Promise<Opened> {
  const token = newToken();
  const server = adminServer(dashboardApp(answers, token, await readDashboardAssets()));
  const taken = await listen(server, LOOPBACK, port, '--port', onError);
  return { server, address: `http://${LOOPBACK}:${taken}/#token=${token}` };
}

/**
 * Serves the page for manifests, which makes its decisions in the browser and sends nothing here.
 * @param port 0 chooses a free one
 * @throws LingerError `page-missing`, `port-unavailable`
 */
export async function openPage(port: number, onError: (error: Error) => void): Promise<Opened> {
  const server = adminServer(pageApp(await readPage()));
  const taken = await listen(server, LOOPBACK, port, '--page-port', onError);
  return { server, address: `http://${LOOPBACK}:${taken}/` };
}
