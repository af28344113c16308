import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { RequestHandler } from 'express';

/** A new token for each run. It is in the fragment of the page's address, which browsers never send. */
export function newToken(): string {
  return randomBytes(16).toString('base64url');
}

/** The names under which a browser on this machine reaches a server that listens only on a loopback address. */
const LOOPBACK = /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?$/i;

/**
 * Accepts only requests of the page itself. If another site's DNS points a name at 127.0.0.1, `Host` contains that name; and
 * a request of another site has its `Origin`, or shows itself in `Sec-Fetch-Site`.
 */
export const fromThisPage: RequestHandler = ({ headers }, response, next) => {
  const { host = '', origin } = headers;
  const site = headers['sec-fetch-site'] ?? 'same-origin';
  const isOwn = origin === undefined || origin === `http://${host}`;
  if (LOOPBACK.test(host) && isOwn && (site === 'same-origin' || site === 'none')) return next();
  reject(response, 403, 'foreign-page', 'only the page itself may ask; open it by its loopback address');
};

/** Accepts only requests that carry the token of this run. */
export function withToken(token: string): RequestHandler {
  const expected = Buffer.from(`Bearer ${token}`);
  return ({ headers: { authorization = '' } }, response, next) => {
    const given = Buffer.from(authorization);
    if (given.length === expected.length && timingSafeEqual(given, expected)) return next();
    reject(
      response,
      401,
      'no-token',
      'open the address that the command printed: it carries the token of this run',
    );
  };
}

export const HEADERS = {
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cache-Control': 'no-store',
} as const;

/** Headers with which the page loads nothing from outside and nothing inline, cannot be framed, and is not cached. */
export const guarded: RequestHandler = (_request, response, next) => {
  response.set({
    ...HEADERS,
    'Content-Security-Policy':
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  });
  next();
};

export function reject(
  response: Parameters<RequestHandler>[1],
  status: number,
  code: string,
  message: string,
): void {
  response.status(status).json({ error: { code, message } });
}
