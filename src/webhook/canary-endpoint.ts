import type { Server } from 'node:http';
import { CANARY_IDENTITY_HEADER } from '../core/api/index.ts';
import { http, RARELY_CHECKED } from './server.ts';

/** A flip makes 40 connections a second for each consumer; more than this do not come from the canary. */
const MOST_CONNECTIONS = 512;
const TIMEOUT_MS = 5_000;

/**
 * Answers any request with the identity of this replica: in a header, and in the body for gateways that drop headers.
 * Nothing of the request is echoed. Each connection is closed after its answer, so that none is reused.
 * @param identity random, so that answers of an earlier process cannot be mistaken for those of this one
 */
export function canaryServer(identity: string): Server {
  const body = `${CANARY_IDENTITY_HEADER} ${identity}\n`;
  const headers = {
    [CANARY_IDENTITY_HEADER]: identity,
    'content-type': 'text/plain; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    connection: 'close',
  };
  const timeouts = { headersTimeout: TIMEOUT_MS, requestTimeout: TIMEOUT_MS };
  const limits = { ...timeouts, ...RARELY_CHECKED };
  const server = http.createServer(limits, (request, response) => {
    // Close the connection, because the body of the request is not read.
    response.writeHead(200, headers).end(request.method === 'HEAD' ? undefined : body);
  });
  server.maxConnections = MOST_CONNECTIONS;
  return server;
}
