// Which URLs Linger calls. One regular expression for files and for the API server, whose own functions for URLs
// (Go's net/url) and ours (WHATWG's) differ at the edges. Whatever matches, `new URL` can read, but for names with
// punycode that is none (`xn--…`).

const HEX = '[0-9A-Fa-f]{1,4}';
const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const IPV4 = `(${OCTET}\\.){3}${OCTET}`;
const IPV6 = [
  `(${HEX}:){7}${HEX}`,
  `(${HEX}:){1,7}:`,
  ...[1, 2, 3, 4, 5, 6].map((before) => `(${HEX}:){1,${before}}(:${HEX}){1,${7 - before}}`),
  `:(:${HEX}){1,7}`,
  '::',
].join('|');
/** As short as DNS allows, and with the underscore that it is often used with. */
const LABEL = '[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?';
/** The last label begins with a letter: otherwise it would be read as an address. */
const NAME = `(${LABEL}\\.)*[A-Za-z]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\\.?`;
const PORT = '([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])';

/**
 * `http://` or `https://`, a name or an address, perhaps a port, a path and a query, in printable ASCII. No user and
 * password, which would be shown wherever the URL is; no fragment, which is never sent.
 */
export const HTTP_URL = new RegExp(`^https?://(${NAME}|${IPV4}|\\[(${IPV6})\\])(:${PORT})?([/?][!"$-~]*)?$`);

export const LONGEST_URL = 2048;

export const HTTP_URL_HINT =
  'an http:// or https:// URL in ASCII, at most 2048 characters, without credentials and without a #fragment';
