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

/** No other machine may reach it, whatever the settings of the rest are. */
const LOOPBACK = '127.0.0.1';

/** `address`: what to open. */
interface Opened {
  readonly server: Server;
  readonly address: string;
}

/**
 * Listens for the dashboard of one user on this machine; its address carries the token of this run.
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
 * Serves the page for manifests, which decides in the browser: nothing is sent here.
 * @param port 0 chooses a free one
 * @throws LingerError `page-missing`, `port-unavailable`
 */
export async function openPage(port: number, onError: (error: Error) => void): Promise<Opened> {
  const server = adminServer(pageApp(await readPage()));
  const taken = await listen(server, LOOPBACK, port, '--page-port', onError);
  return { server, address: `http://${LOOPBACK}:${taken}/` };
}
