const CONTEXT = 3;

/** What turns one text into another, as `diff -u` shows it; nothing where they are the same. */
export function unifiedDiff(name: string, before: string, after: string): string {
  if (before === after) return '';
  const rows = rowsBetween(linesOf(before), linesOf(after));
  const hunks: string[] = [];
  /** How many lines of each text, and how many rows, come before the hunk. */
  let [old, now, shown] = [0, 0, 0];
  for (const [from, to] of rangesOf(rows)) {
    const hunk = rows.slice(from, to);
    const removed = hunk.filter((row) => row.startsWith('-')).length;
    const added = hunk.filter((row) => row.startsWith('+')).length;
    old += from - shown;
    now += from - shown;
    hunks.push(`@@ -${span(old, hunk.length - added)} +${span(now, hunk.length - removed)} @@\n`, ...hunk);
    old += hunk.length - added;
    now += hunk.length - removed;
    shown = to;
  }
  const text = hunks.map((row) => (row.endsWith('\n') ? row : `${row}\n\\ No newline at end of file\n`));
  return `--- ${name}\n+++ ${name}\n${text.join('')}`;
}

function linesOf(text: string): string[] {
  return text === '' ? [] : text.split(/(?<=\n)/);
}

function span(before: number, count: number): string {
  return `${count === 0 ? before : before + 1},${count}`;
}

/** The rows of each hunk: changed ones with their context, together where contexts touch. */
function rangesOf(rows: readonly string[]): [from: number, to: number][] {
  const ranges: [number, number][] = [];
  for (const [index, row] of rows.entries()) {
    if (row.startsWith(' ')) continue;
    const last = ranges.at(-1);
    const to = Math.min(rows.length, index + 1 + CONTEXT);
    if (last !== undefined && index - CONTEXT <= last[1]) last[1] = to;
    else ranges.push([Math.max(0, index - CONTEXT), to]);
  }
  return ranges;
}

/** The lines of both texts, with their signs. After each change, the texts meet again at the nearest equal lines. */
function rowsBetween(old: readonly string[], now: readonly string[]): string[] {
  const rows: string[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (old[i] === now[j]) {
      rows.push(` ${old[i]}`);
      i++;
      j++;
      continue;
    }
    const [skipOld, skipNew] = meeting(old, i, now, j);
    for (const line of old.slice(i, i + skipOld)) rows.push(`-${line}`);
    for (const line of now.slice(j, j + skipNew)) rows.push(`+${line}`);
    i += skipOld;
    j += skipNew;
  }
  return rows;
}

/** How many lines of each must go until the next ones are equal; the fewest in all. */
function meeting(old: readonly string[], i: number, now: readonly string[], j: number): [number, number] {
  const rest = old.length - i + now.length - j;
  for (let distance = 1; distance < rest; distance++) {
    for (let skipOld = 0; skipOld <= distance; skipOld++) {
      const [a, b] = [i + skipOld, j + distance - skipOld];
      const ends = a === old.length && b === now.length;
      if (ends || (a < old.length && b < now.length && old[a] === now[b]))
        return [skipOld, distance - skipOld];
    }
  }
  return [old.length - i, now.length - j];
}
