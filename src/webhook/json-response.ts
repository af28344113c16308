import type { ServerResponse } from 'node:http';

/** How long a client that is answered before the end of its body may go on sending. Milliseconds. */
const LINGER_MS = 1_000;

/**
 * Ends an answer and its connection. Closing a socket with unread bytes resets the connection, and the client may then
 * lose the answer (RFC 9112, 9.6): so what it still sends is read and dropped first. Needs a Content-Length, so that the
 * client sees the end of the answer before that of the connection.
 */
function endUnread(response: ServerResponse, body: string): void {
  const { req: request } = response;
  if (request.complete) {
    response.end(body);
    return;
  }
  response.write(body);
  const end = () => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(end, LINGER_MS);
  request.once('end', end).once('close', end).resume();
}

/** @param closing the connection ends with this answer, whatever the client still sends */
export function answerJson(response: ServerResponse, status: number, body: string, closing = false): void {
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
  if (closing) endUnread(response.setHeader('Connection', 'close').writeHead(status, headers), body);
  else response.writeHead(status, headers).end(body);
}
