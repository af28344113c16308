import type { ServerResponse } from 'node:http';

/** How long a client that is answered before the end of its body may continue to send. Milliseconds. */
const LINGER_MS = 1_000;

/**
 * Ends an answer and its connection. Closing a socket with unread bytes resets the connection, and the client may then lose
 * the answer (RFC 9112, 9.6): so the rest of what it sends is first read and dropped. The answer needs a Content-Length,
 * which shows the client that the answer has ended before the connection does.
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

/** @param closing closes the connection after this answer, whatever the client still sends */
export function answerJson(response: ServerResponse, status: number, body: string, closing = false): void {
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
  if (closing) endUnread(response.setHeader('Connection', 'close').writeHead(status, headers), body);
  else response.writeHead(status, headers).end(body);
}
