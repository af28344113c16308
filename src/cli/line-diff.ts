const CONTEXT = 3;

/** A piece of a unified diff: lines `before[from, to)` become `lines`. */
interface Change {
  readonly from: number;
  readonly to: number;
  readonly lines: readonly string[];
}

/** What turns one text into another, as `diff -u` shows it; nothing where they are the same. */
export function unifiedDiff(name: string, before: string, after: string): string {
  if (before === after) return '';
  const old = linesOf(before);
  const changes = changesBetween(old, linesOf(after));
  const hunks = Map.groupBy(changes, hunkOf(changes));
  let shift = 0;
  const parts = [...hunks.values()].map((hunk) => {
    const text = renderHunk(old, hunk, shift);
    for (const { from, to, lines } of hunk) shift += lines.length - (to - from);
    return text;
  });
  return `--- ${name}\n+++ ${name}\n${parts.join('')}`;
}

function linesOf(text: string): string[] {
  return text === '' ? [] : text.split(/(?<=\n)/);
}

/** Changes whose contexts touch belong to one hunk: each gets the first change of its own. */
function hunkOf(changes: readonly Change[]): (change: Change, index: number) => Change {
  let first: Change | undefined;
  return (change, index) => {
    const previous = changes[index - 1];
    if (first === undefined || previous === undefined || change.from - previous.to > 2 * CONTEXT)
      first = change;
    return first;
  };
}

function renderHunk(old: readonly string[], hunk: readonly Change[], shift: number): string {
  const start = Math.max(0, (hunk[0]?.from ?? 0) - CONTEXT);
  const end = Math.min(old.length, (hunk.at(-1)?.to ?? 0) + CONTEXT);
  let at = start;
  let added = 0;
  const rows: string[] = [];
  for (const { from, to, lines } of hunk) {
    rows.push(...old.slice(at, from).map((line) => ` ${line}`));
    rows.push(...old.slice(from, to).map((line) => `-${line}`), ...lines.map((line) => `+${line}`));
    added += lines.length - (to - from);
    at = to;
  }
  rows.push(...old.slice(at, end).map((line) => ` ${line}`));
  const span = (from: number, count: number) => `${count === 0 ? from : from + 1},${count}`;
  const head = `@@ -${span(start, end - start)} +${span(start + shift, end - start + added)} @@\n`;
  return (
    head + rows.map((row) => (row.endsWith('\n') ? row : `${row}\n\\ No newline at end of file\n`)).join('')
  );
}

/** Edits insert lines and replace some: after each change the texts meet again at the nearest equal lines. */
function changesBetween(old: readonly string[], now: readonly string[]): Change[] {
  const changes: Change[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (old[i] === now[j]) {
      i++;
      j++;
      continue;
    }
    const [skipOld, skipNew] = meeting(old, i, now, j);
    changes.push({ from: i, to: i + skipOld, lines: now.slice(j, j + skipNew) });
    i += skipOld;
    j += skipNew;
  }
  return changes;
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
