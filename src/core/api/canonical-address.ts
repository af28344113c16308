/** IPv6 has at most 45 characters, an interface's name 15. */
const LONGEST_ADDRESS = 64;

/** Four decimals, without the leading zeros that some programs read as octal. */
const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;
const GROUP = /^[\da-f]{1,4}$/i;
const GROUPS = 8;
/** The decimals at the end of an IPv6 address. */
const TAIL = /(?<=:)[\d.]+$/;

/**
 * The canonical spelling of an address, in which addresses are compared: IPv4 as four decimals, even if it is mapped into
 * IPv6; IPv6 as in RFC 5952, without a zone and without a dotted tail.
 * @returns undefined for anything that is not an address
 */
export function canonicalAddress(text: string): string | undefined {
  if (text.length > LONGEST_ADDRESS) return undefined;
  if (IPV4.test(text)) return text;
  const groups = groupsOf(text.split('%', 1)[0] ?? '');
  if (groups === undefined) return undefined;
  const [high = 0, low = 0] = groups.slice(-2);
  const isMapped = groups[5] === 0xffff && groups.slice(0, 5).every((group) => group === 0);
  return isMapped ? [high >> 8, high & 255, low >> 8, low & 255].join('.') : spelled(groups);
}

/** The eight groups of an IPv6 address, whose last two may be four decimals. */
function groupsOf(text: string): readonly number[] | undefined {
  const halves = (text.includes('.') ? text.replace(TAIL, hexTail) : text).split('::', 3);
  const [left = [], right = []] = halves.map((half) => (half === '' ? [] : half.split(':')));
  const gap = GROUPS - left.length - right.length;
  // `::` stands for one group at least.
  if (halves.length > 2 || (halves.length === 2 ? gap < 1 : gap !== 0)) return undefined;
  const all: number[] = [];
  for (const group of left) all.push(numberIn(group));
  for (let at = 0; at < gap; at += 1) all.push(0);
  for (const group of right) all.push(numberIn(group));
  return all.includes(Number.NaN) ? undefined : all;
}

function numberIn(group: string): number {
  return GROUP.test(group) ? Number.parseInt(group, 16) : Number.NaN;
}

/** `1.2.3.4` behind a colon → `102:304`. */
function hexTail(tail: string): string {
  if (!IPV4.test(tail)) return tail;
  const [a = 0, b = 0, c = 0, d = 0] = tail.split('.').map(Number);
  return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
}

/** The spelling of RFC 5952: the longest run of zero groups (the first of several) becomes `::`. */
function spelled(groups: readonly number[]): string {
  // A single zero is written out.
  let longest = { from: 0, length: 1 };
  for (let from = 0, to = 0; from < GROUPS; from = to + 1) {
    to = from;
    while (groups[to] === 0) to += 1;
    if (to - from > longest.length) longest = { from, length: to - from };
  }
  const { from, length } = longest;
  if (length === 1) return inHex(groups);
  return `${inHex(groups.slice(0, from))}::${inHex(groups.slice(from + length))}`;
}

function inHex(groups: readonly number[]): string {
  return groups.map((group) => group.toString(16)).join(':');
}
