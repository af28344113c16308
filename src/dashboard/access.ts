import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { RequestHandler } from 'express';

/** A new token for each run. It stands in the fragment of the page's address, which no browser sends. */
export function newToken(): string {
  return randomBytes(16).toString('base64url');
}

/** The names by which a browser on this machine calls a server that listens on a loopback address only. */
const LOOPBACK = /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?$/i;

/**
 * Lets through what the page itself asks. A name that another site's DNS points at 127.0.0.1 stands in `Host`; another
 * site's request has its `Origin`, or says so in `Sec-Fetch-Site`.
 */
export const fromThisPage: RequestHandler = ({ headers }, response, next) => {
  const { host = '', origin } = headers;
  const site = headers['sec-fetch-site'] ?? 'same-origin';
  const isOwn = origin === undefined || origin === `http://${host}`;
  if (LOOPBACK.test(host) && isOwn && (site === 'same-origin' || site === 'none')) return next();
  reject(response, 403, 'foreign-page', 'only the page itself may ask; open it by its loopback address');
};

/** Lets through what carries the token of this run. */
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

/** Nothing from outside, nothing inline, no frame around it, and nothing kept. */
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
