import type { Server } from 'node:http';
import {
  type Answers,
  newToken,
  type PlaygroundRequest,
  pageApp,
  readPageAssets,
} from '../dashboard/index.ts';
import { OffLoop, workerUrl } from '../timing/index.ts';
import { adminServer, listen } from '../webhook/index.ts';

/** No other machine may reach it, whatever the settings of the rest are. */
const LOOPBACK = '127.0.0.1';

/**
 * Listens for the page of one user on this machine.
 * @param flag the one that chooses the port
 * @returns `address`: what to open; it carries the token of this run
 * @throws LingerError `page-missing`, `port-unavailable`
 */
export async function openPage(
  answers: Answers,
  port: number,
  flag: string,
  onError: (error: Error) => void,
): Promise<{ readonly server: Server; readonly address: string }> {
  const token = newToken();
  const server = adminServer(pageApp(answers, token, await readPageAssets()));
  const taken = await listen(server, LOOPBACK, port, flag, onError);
  return { server, address: `http://${LOOPBACK}:${taken}/#token=${token}` };
}

/** A megabyte of Deployments takes some seconds, in which the event loop answers reviews. */
const EXPLAINING = { timeoutMs: 60_000, heapMb: 512 };

/**
 * Opens the page that explains pasted manifests, for this machine.
 * @param port 0 chooses a free one
 * @returns `address`: with the token of this run
 * @throws LingerError `page-missing`, `port-unavailable`
 */
export async function playground(version: string, port: number, onError: (error: Error) => void) {
  const root = { version, views: ['playground'], source: null } as const;
  const worker = new OffLoop<PlaygroundRequest, string>(
    workerUrl(import.meta.url, 'playground-worker'),
    EXPLAINING,
  );
  const explain = async (request: PlaygroundRequest) => (await worker.run(request)).join('');
  return openPage({ root, explain }, port, '--page-port', onError);
}
